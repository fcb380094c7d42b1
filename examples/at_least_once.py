"""At least once: process, then commit. Whoever dies in between leaves a record that comes again; none is lost.

python examples/at_least_once.py orders --crash-at 7     # dies with record 7 processed but not committed
python examples/at_least_once.py orders                  # record 7 again, then the rest
"""

import argparse
import os
import signal

from confluent_kafka import Consumer, KafkaException

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("topic")
arguments.add_argument("--group", default="at-least-once")
arguments.add_argument("--crash-at", type=int, metavar="N", help="die between processing the Nth record and its commit")
arguments.add_argument("--idle-seconds", type=float, default=10, help="stop when nothing came for so long")
options = arguments.parse_args()

consumer = Consumer(
    {
        "bootstrap.servers": os.environ.get("PENSTOCK_BROKERS", "127.0.0.1:9092"),
        "group.id": options.group,
        # A worker with a name gets its partitions back as soon as it is restarted, without waiting for its old session.
        "group.instance.id": "worker-1",
        "auto.offset.reset": "earliest",
        # Left on, offsets are committed now and then, whether or not their records have been processed.
        "enable.auto.commit": False,
    }
)
consumer.subscribe([options.topic])
count = 0
while (message := consumer.poll(options.idle_seconds)) is not None:
    if message.error():
        raise KafkaException(message.error())
    print("processed", (message.value() or b"").decode(), flush=True)
    count += 1
    if count == options.crash_at:
        os.kill(os.getpid(), signal.SIGKILL)
    consumer.commit(message=message, asynchronous=False)
consumer.close()
