"""A follower's fetch: of the partitions that it follows, thousands perhaps, only those are looked at that have news.

A partition has news for a follower when the follower names it in its request, when something is appended to it, when
its high watermark or its first offset moves, and when its leadership ends; and it keeps them until an answer has said
all there is. So an idle partition costs nothing, however many there are.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred
from penstock.broker.fetch.plan import Plan, plan_fetch
from penstock.broker.fetch.sessions import FetchContext, PartitionKey
from penstock.broker.fetch.waiting import WAKE_BYTES
from penstock.cluster.partition.partition import Partition
from penstock.protocol.fetch import FetchRequest, Part, PartitionAnswer

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

# Makes the answer's bytes of what was found.
Encode = Callable[[Plan], list[Part]]


class FollowerNews:
    """Which partitions of one session have something to tell; kept from fetch to fetch."""

    __slots__ = ("_news", "_watched", "on_append")

    def __init__(self) -> None:
        self._news: dict[PartitionKey, None] = {}
        self._watched: dict[PartitionKey, tuple[Partition, Callable[[int], None]]] = {}
        # The fetch that waits, to be told of the bytes of each append.
        self.on_append: Callable[[int], None] | None = None

    def add(self, key: PartitionKey) -> None:
        self._news[key] = None

    def take(self) -> list[PartitionKey]:
        keys, self._news = list(self._news), {}
        return keys

    def give_back(self, keys: Iterable[PartitionKey]) -> None:
        """Those that have waited for longest go first."""
        self._news = dict.fromkeys(keys) | self._news

    def forget(self, key: PartitionKey) -> None:
        self._news.pop(key, None)
        self._unwatch(key)

    def watch(self, key: PartitionKey, partition: Partition) -> None:
        watched = self._watched.get(key)
        if watched is not None:
            if watched[0] is partition:
                return
            # The topic was deleted, and made again.
            self._unwatch(key)

        def on_news(size: int) -> None:
            self._news[key] = None
            if size and self.on_append is not None:
                self.on_append(size)

        partition.replica_listeners = partition.replica_listeners or {}
        partition.replica_listeners[on_news] = None
        self._watched[key] = partition, on_news

    def _unwatch(self, key: PartitionKey) -> None:
        watched = self._watched.pop(key, None)
        if watched is not None:
            partition, listener = watched
            assert partition.replica_listeners is not None
            partition.replica_listeners.pop(listener, None)
            if not partition.replica_listeners:
                partition.replica_listeners = None

    def stop(self) -> None:
        """The session has ended."""
        for key in tuple(self._watched):
            self._unwatch(key)


class FollowerFetch:
    """One fetch, until it is answered."""

    def __init__(
        self,
        broker: "Broker",
        connection: Connection,
        request: FetchRequest,
        context: FetchContext,
        encode: Encode,
        *,
        uses_topic_ids: bool,
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._request = request
        self._encode = encode
        self._throttle = broker.throttling.leader
        self._uses_topic_ids = uses_topic_ids
        self._topics = broker.topics_by_id if uses_topic_ids else broker.topics_by_name
        session = context.session
        if session is None:
            self._news = FollowerNews()
            self._partitions = {(one.topic, one.request.partition): one for one in context.partitions}
        else:
            if session.news is None:
                session.news = FollowerNews()
            self._news = session.news
            self._partitions = session.partitions
        self._is_once = session is None
        self._bytes_missing = 0
        self._timer: asyncio.TimerHandle | None = None
        self._deferred: Deferred | None = None

    def answer(self) -> list[Part] | Deferred:
        request, news = self._request, self._news
        for topic, partitions in request.topics:
            for one in partitions:
                news.add((topic, one.partition))
        for partition in self._broker.replication.outside(request.replica_id):
            # Where it is not in sync, what it has is looked at each time: a request of its other connection that was
            # late may have said less since.
            key = (partition.topic_id.bytes if self._uses_topic_ids else partition.topic.encode(), partition.index)
            if key in self._partitions:
                news.add(key)
        for topic, indexes in request.forgotten:
            for index in indexes:
                news.forget((topic, index))
        plan = self._plan()
        self._note_progress(plan)
        if (
            plan.bytes_found >= request.bytes_min
            or request.wait_ms_max <= 0
            or plan.must_answer
            or not self._partitions
        ):
            return self._finished(plan)
        self._wait(plan)
        self._deferred = Deferred()
        return self._deferred

    def _plan(self) -> Plan:
        wanted = []
        for key in self._news.take():
            one = self._partitions.get(key)
            if one is None:
                continue
            partition = self._partition(key)
            if partition is not None:
                self._news.watch(key, partition)
            wanted.append(one)
        bytes_max = min(self._request.bytes_max, self._broker.fetch_bytes_max)
        return plan_fetch(
            wanted,
            self._topics,
            self._request,
            bytes_max=bytes_max,
            uses_topic_ids=self._uses_topic_ids,
            is_held_back=self._is_held_back if self._throttle.is_exceeded(self._now_ms()) else None,
        )

    def _is_held_back(self, partition: Partition) -> bool:
        """KIP-73: those that are in sync are to stay so."""
        return self._request.replica_id not in partition.isr and self._throttle.covers(partition)

    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()

    def _partition(self, key: PartitionKey) -> Partition | None:
        return self._topics.get(key[0], {}).get(key[1])

    def _note_progress(self, plan: Plan) -> None:
        """What a follower asks for, it does not have yet, and has everything before. That holds for what it named
        earlier in its session too."""
        request, replication = self._request, self._broker.replication
        replication.on_follower_contact(request.replica_id, request.replica_epoch)
        for one, answer in plan.answers:
            asked = one.request
            if not answer.error_code and answer.diverging_epoch is None:
                replication.on_follower_fetch(
                    self._topics[one.topic][asked.partition],
                    request.replica_id,
                    request.replica_epoch,
                    asked.fetch_offset,
                    asked.log_start_offset,
                )

    def _finished(self, plan: Plan) -> list[Part]:
        unsaid = [
            (one.topic, one.request.partition)
            for one, answer in plan.answers
            if not self._says_all(one.topic, one.request.fetch_offset, answer)
        ]
        self._news.give_back(unsaid)
        for one, answer in plan.answers:
            if answer.records is not None and self._throttle.covers(self._topics[one.topic][answer.partition]):
                self._throttle.record(answer.records.length, self._now_ms())
        if self._is_once:
            self._news.stop()
        return self._encode(plan)

    def _says_all(self, topic: bytes, fetch_offset: int, answer: PartitionAnswer) -> bool:
        """Records count as unsaid until the follower asks for those after them."""
        if answer.error_code or answer.records is not None or answer.diverging_epoch is not None:
            return False
        return fetch_offset >= self._topics[topic][answer.partition].log.log_end_offset

    # Waiting

    def _wait(self, plan: Plan) -> None:
        self._news.give_back((one.topic, one.request.partition) for one, _ in plan.answers)
        self._bytes_missing = self._request.bytes_min - plan.bytes_found
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._request.wait_ms_max / 1000, self._finish, True)
            self._connection.on_closed.append(self._give_up)
            self._news.on_append = self._on_append

    def _on_append(self, size: int) -> None:
        self._bytes_missing -= size
        if self._bytes_missing <= 0:
            self._finish(size >= WAKE_BYTES)

    def _finish(self, is_time_up: bool) -> None:
        plan = self._plan()
        if not is_time_up and plan.bytes_found < self._request.bytes_min and not plan.must_answer:
            self._wait(plan)
            return
        self._give_up()
        self._connection.on_closed.remove(self._give_up)
        assert self._deferred is not None
        self._deferred.complete(self._finished(plan))

    def _give_up(self) -> None:
        """The answer is given, or the follower is gone and nobody wants it."""
        assert self._timer is not None
        self._timer.cancel()
        if self._news.on_append == self._on_append:
            self._news.on_append = None
        if self._is_once:
            self._news.stop()
