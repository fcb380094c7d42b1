"""More consumers than partitions: a partition has one reader in a group, so some have nothing to do. They are not in
vain: when a reader goes, one of them takes over what it had.

    penstock topic create orders -p 2
    python examples/more_consumers_than_partitions.py orders --consumers 4
"""

import argparse
import os
import time
from itertools import chain

from confluent_kafka import Consumer

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("topic")
arguments.add_argument("--group", default="crowd")
arguments.add_argument("--consumers", type=int, default=4)
options = arguments.parse_args()


def joined(name: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ.get("PENSTOCK_BROKERS", "127.0.0.1:9092"),
            "group.id": options.group,
            # Members of the new protocol (KIP-848) move partitions without everybody stopping.
            "group.protocol": "consumer",
            "client.id": name,
        }
    )
    consumer.subscribe([options.topic])
    return consumer


def settle(consumers: dict[str, Consumer], partition_count: int) -> None:
    """Polls everybody until each partition has had the same one reader for three seconds; prints who that is."""
    before, since = None, time.monotonic()
    while before is None or time.monotonic() - since < 3:
        for consumer in consumers.values():
            consumer.poll(0.05)
        now = {name: sorted(each.partition for each in one.assignment()) for name, one in consumers.items()}
        is_complete = sorted(chain(*now.values())) == list(range(partition_count))
        if not is_complete or now != before:
            before, since = now if is_complete else None, time.monotonic()
    for name, partitions in before.items():
        print(name, "reads", ",".join(map(str, partitions)) or "nothing", flush=True)


consumers = {f"consumer-{number}": joined(f"consumer-{number}") for number in range(options.consumers)}
count = len(consumers["consumer-0"].list_topics(options.topic, timeout=10).topics[options.topic].partitions)
settle(consumers, count)

reader = next(name for name, consumer in consumers.items() if consumer.assignment())
consumers.pop(reader).close()
print(reader, "leaves", flush=True)
settle(consumers, count)
for consumer in consumers.values():
    consumer.close()
