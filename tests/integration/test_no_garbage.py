"""What requests leave behind is gone when they are answered. What only Python's garbage collector finds makes everybody
wait while it looks: ten milliseconds, twice a second, at a thousand records a second.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.testing.in_process import BrokerInProcess

ROUNDS = 30
TOPIC = "t"
# Of a broker: servers of HTTP, which other tests may have left running in this process, are another matter.
ROOMS = tuple(f"penstock.{room}." for room in ("base", "broker", "cluster", "coordinator", "log", "protocol"))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with BrokerInProcess() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        [created] = admin.create_topics([NewTopic(TOPIC, 1, 1)]).values()
        created.result(10)
        yield broker.bootstrap_servers


@contextmanager
def garbage_kept() -> Iterator[list[str]]:
    """At its end: the names of what brokers left that was only reachable from itself."""
    found: list[str] = []
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [name for name in map(_name, gc.garbage) if name.startswith(ROOMS)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def _name(thing: object) -> str:
    kind = type(thing)
    of = thing if hasattr(thing, "__qualname__") else kind
    return f"{getattr(of, '__module__', '')}.{getattr(of, '__qualname__', '')}"


def _producing(address: str) -> Callable[[], None]:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})

    def produce() -> None:
        producer.produce(TOPIC, b"x", partition=0)
        assert producer.flush(10) == 0

    return produce


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_fetch_that_waited_leaves_no_garbage(address: str, isolation: str) -> None:
    produce = _producing(address)
    settings = {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False}
    # Many that wait in vain, too.
    consumer = Consumer(settings | {"isolation.level": isolation, "fetch.wait.max.ms": 20})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_END)])
        assert consumer.poll(0.5) is None
        with garbage_kept() as garbage:
            for _ in range(ROUNDS):
                produce()
                assert consumer.poll(10) is not None
        assert garbage == []
    finally:
        consumer.close()


def test_commits_and_transactions_leave_no_garbage(address: str) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "h", "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": address, "transactional.id": "x", "linger.ms": 0})
    try:
        producer.init_transactions(10)

        def commit(offset: int) -> None:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
            producer.begin_transaction()
            producer.produce(TOPIC, b"x", partition=0)
            producer.commit_transaction(10)

        # The first one has coordinators and their topics made.
        commit(0)
        with garbage_kept() as garbage:
            for offset in range(ROUNDS):
                commit(offset)
        assert garbage == []
    finally:
        consumer.close()
