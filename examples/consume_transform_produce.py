"""Exactly once: read orders, write a payment and a stock movement for each, and move on, all in one transaction.

Whoever dies in between leaves nothing behind: what was written is aborted, and the orders are read again.

python examples/consume_transform_produce.py orders payments inventory --crash-at 7   # dies within a transaction
python examples/consume_transform_produce.py orders payments inventory                # the rest, nothing twice
penstock consume payments -X isolation.level=read_committed
"""

import argparse
import os
import signal

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument("orders")
arguments.add_argument("payments")
arguments.add_argument("inventory")
arguments.add_argument("--group", default="billing")
arguments.add_argument("--per-transaction", type=int, default=5, help="orders at the most")
arguments.add_argument("--crash-at", type=int, metavar="N", help="die when the Nth order is written, not committed")
arguments.add_argument("--idle-seconds", type=float, default=10, help="stop when nothing came for so long")
options = arguments.parse_args()

brokers = os.environ.get("PENSTOCK_BROKERS", "127.0.0.1:9092")
consumer = Consumer(
    {
        "bootstrap.servers": brokers,
        "group.id": options.group,
        "group.instance.id": "worker-1",
        "auto.offset.reset": "earliest",
        # The transaction commits offsets, not the consumer.
        "enable.auto.commit": False,
        # Orders that were themselves written in a transaction count once that is committed.
        "isolation.level": "read_committed",
    }
)
# Each worker has an id of its own that it keeps over restarts: initialising it aborts what its last life left open.
producer = Producer({"bootstrap.servers": brokers, "transactional.id": f"{options.group}-worker-1"})
producer.init_transactions()
generation = None


def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Orders are committed as of the generation that they were read in: if another worker was given their partitions
    meanwhile, the commit is refused."""
    global generation
    generation = consumer.consumer_group_metadata()


consumer.subscribe([options.orders], on_assign=assigned)


def handle(orders: list[Message]) -> None:
    global count
    producer.begin_transaction()
    for order in orders:
        producer.produce(options.payments, key=order.key(), value=b"paid " + (order.value() or b""))
        producer.produce(options.inventory, key=order.key(), value=b"reserved " + (order.value() or b""))
        count += 1
        if count == options.crash_at:
            producer.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    ends = {(order.topic(), order.partition()): (order.offset() or 0) + 1 for order in orders}
    offsets = [TopicPartition(topic or "", partition or 0, offset) for (topic, partition), offset in ends.items()]
    producer.send_offsets_to_transaction(offsets, generation)
    producer.commit_transaction()


count = 0
while messages := consumer.consume(options.per_transaction, options.idle_seconds):
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
    try:
        handle(messages)
    except KafkaException as problem:
        if not problem.args[0].txn_requires_abort():
            raise
        # Another worker may have these partitions by now. Begin again where the group is.
        producer.abort_transaction()
        for partition in consumer.committed(consumer.assignment()):
            if partition.error:
                raise KafkaException(partition.error) from problem
            consumer.seek(TopicPartition(partition.topic, partition.partition, max(0, partition.offset)))
        continue
    for message in messages:
        print("processed", (message.value() or b"").decode(), flush=True)
consumer.close()
