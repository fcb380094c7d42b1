"""Replay: read a topic again from wherever you like. What a group has committed stays as it is: this is nobody's turn.

python examples/replay.py orders start
python examples/replay.py orders end                          # only what comes from now on
python examples/replay.py orders 5                            # from offset 5 of each partition
python examples/replay.py orders 2024-05-01T12:00:00+00:00    # from the first record at or after a time
"""

import argparse
import os
import sys
from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("topic")
arguments.add_argument("where", help="start, end, an offset, or a time")
arguments.add_argument("--idle-seconds", type=float, default=10, help="stop when nothing came for so long")
options = arguments.parse_args()

consumer = Consumer(
    {
        "bootstrap.servers": os.environ.get("PENSTOCK_BROKERS", "127.0.0.1:9092"),
        # librdkafka wants a name, but who assigns partitions itself and commits nothing is in no group.
        "group.id": "replay",
        "enable.auto.commit": False,
        # An offset that is not there any more: take the first one that is.
        "auto.offset.reset": "earliest",
    }
)
numbers = consumer.list_topics(options.topic, timeout=10).topics[options.topic].partitions
partitions = [TopicPartition(options.topic, number) for number in numbers]
if options.where == "start":
    offsets = [OFFSET_BEGINNING] * len(partitions)
elif options.where == "end":
    offsets = [consumer.get_watermark_offsets(partition, timeout=10)[1] for partition in partitions]
elif options.where.isdigit():
    offsets = [int(options.where)] * len(partitions)
else:
    timestamp_ms = round(datetime.fromisoformat(options.where).timestamp() * 1000)
    questions = [TopicPartition(options.topic, number, timestamp_ms) for number in numbers]
    # Where nothing is that young, the answer is the end.
    offsets = [answer.offset for answer in consumer.offsets_for_times(questions, timeout=10)]

for partition, offset in zip(partitions, offsets, strict=True):
    partition.offset = offset
consumer.assign(partitions)
print("reading", options.topic, "from", options.where, file=sys.stderr, flush=True)
while (message := consumer.poll(options.idle_seconds)) is not None:
    if message.error():
        raise KafkaException(message.error())
    print(message.partition(), message.offset(), (message.value() or b"").decode(), flush=True)
consumer.close()
