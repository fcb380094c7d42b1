"""Fan out: many groups on one topic. Each group gets every record; within a group, each record goes to one member.

python examples/fan_out.py orders billing shipping audit
"""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, KafkaException

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("topic")
arguments.add_argument("groups", nargs="+")
arguments.add_argument("--idle-seconds", type=float, default=10, help="stop when nothing came for so long")
options = arguments.parse_args()


def read_as(group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ.get("PENSTOCK_BROKERS", "127.0.0.1:9092"),
            "group.id": group,
            # A group that is new to the topic begins with what is there already.
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([options.topic])
    while (message := consumer.poll(options.idle_seconds)) is not None:
        if message.error():
            raise KafkaException(message.error())
        # In one piece: the others print too.
        print(f"{group} {(message.value() or b'').decode()}\n", end="", flush=True)
    # Leaves the group and commits what was read: run it again, and nothing comes again.
    consumer.close()


with ThreadPoolExecutor(len(options.groups)) as threads:
    list(threads.map(read_as, options.groups))
