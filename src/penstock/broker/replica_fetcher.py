"""Fetches what this node follows from one leader: all partitions in one request, in one fetch session (KIP-227).

A fetch that waits at the leader cannot be told of more partitions. Those that come meanwhile are fetched in a lane of
their own, until the fetch that waits is answered and the main lane takes them in: writes to a new partition need not
wait for it, and thousands of others are not named again because of it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.broker.fetch.waiting import WAKE_BYTES
from penstock.broker.peers import Peer, PeerGone
from penstock.cluster.partition.fetcher import FetchBody, Fetcher, Key
from penstock.cluster.partition.follower import FetchedPartition
from penstock.cluster.partition.partition import Partition
from penstock.protocol.messages import Malformed, Struct

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.replication")

_FETCH, _FETCH_VERSION = 1, 17
_LIST_OFFSETS, _LIST_OFFSETS_VERSION = 2, 8
_LATEST, _EARLIEST = -1, -2
_FAILURE_PAUSE_MS = 50


class ReplicaFetcher:
    def __init__(self, broker: "Broker", leader_id: int) -> None:
        self._main = _Lane(broker, leader_id, on_answered=self._take_newcomers_in)
        self._newcomers = _Lane(broker, leader_id, on_answered=lambda: None)

    def add(self, partition: Partition) -> None:
        """Also when the leader's epoch has changed."""
        if partition in self._main or not self._main.is_waiting:
            self._main.add(partition)
        else:
            self._newcomers.add(partition)
            self._newcomers.ask_anew()

    def remove(self, partition: Partition) -> None:
        self._main.remove(partition)
        self._newcomers.remove(partition)

    def stop(self) -> None:
        self._main.stop()
        self._newcomers.stop()

    def _take_newcomers_in(self) -> None:
        for partition in self._newcomers.partitions():
            self._newcomers.remove(partition)
            self._main.add(partition)


class _Lane:
    """One connection to the leader, with one fetch under way. Runs while there is something to fetch."""

    def __init__(self, broker: "Broker", leader_id: int, *, on_answered: Callable[[], None]) -> None:
        self._broker = broker
        self._leader_id = leader_id
        self._on_answered = on_answered
        self._core = Fetcher(backoff_ms=_FAILURE_PAUSE_MS)
        self._partitions: dict[Key, Partition] = {}
        # Whose log may have grown since it was last synced, as far as their topics ask for that.
        self._unsynced: dict[Partition, None] = {}
        # For whom there was no space when they were last tried.
        self._full: set[Key] = set()
        self._peer: Peer | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_asking_anew = False
        # Set when there may be something to ask for though nothing was.
        self._news = asyncio.Event()

    def __contains__(self, partition: Partition) -> bool:
        return _key(partition) in self._partitions

    @property
    def is_waiting(self) -> bool:
        return self._core.is_under_way

    def partitions(self) -> list[Partition]:
        return list(self._partitions.values())

    def add(self, partition: Partition) -> None:
        assert partition.follower is not None
        self._partitions[_key(partition)] = partition
        self._core.add(_key(partition), partition.follower)
        self._unsynced[partition] = None
        self._news.set()
        if self._running is None:
            self._running = asyncio.get_running_loop().create_task(self._run())

    def remove(self, partition: Partition) -> None:
        if self._partitions.pop(_key(partition), None) is not None:
            self._core.remove(_key(partition))
            self._news.set()

    def ask_anew(self) -> None:
        """Does not wait for the fetch under way."""
        if self._core.is_under_way and self._peer is not None:
            self._is_asking_anew = True
            self._peer.close()

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
        if self._peer is not None:
            self._peer.close()

    async def _run(self) -> None:
        try:
            while self._partitions:
                try:
                    await self._fetch_once()
                except (PeerGone, Malformed, TimeoutError) as problem:
                    self._after_failure(problem)
        except Exception:
            log.exception("the fetcher from node %d met a defect in the broker", self._leader_id)
        finally:
            self._running = None
            if self._peer is not None:
                self._peer.close()
                self._peer = None
            self._core = Fetcher(backoff_ms=_FAILURE_PAUSE_MS)
            # Of a defect, which has been told.
            self._partitions.clear()

    def _after_failure(self, problem: Exception) -> None:
        if self._is_asking_anew:
            self._core.give_up()
        else:
            log.debug("cannot fetch from node %d: %s", self._leader_id, problem)
            self._core.on_failure(self._broker.clock.monotonic_ms())
        self._is_asking_anew = False
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def _fetch_once(self) -> None:
        self._news.clear()
        peer = self._connect()
        if peer is None:
            raise PeerGone("it is not registered")
        await self._ask_for_offsets(peer)
        while self._unsynced:
            await self._sync()
        now_ms = self._broker.clock.monotonic_ms()
        body = self._core.next_request(now_ms, quota_is_exceeded=self._broker.throttling.follower.is_exceeded(now_ms))
        for key, problem in self._core.take_failed().items():
            self._give_up(self._partitions.pop(key), problem)
        if body is None:
            await self._rest(now_ms)
            return
        settings = self._broker.settings
        wait_ms: int = settings["replica.fetch.wait.max.ms"]
        rest_ends_ms = self._core.rest_ends_ms()
        if rest_ends_ms is not None:
            wait_ms = max(0, min(wait_ms, rest_ends_ms - now_ms))
        async with asyncio.timeout((wait_ms + settings["replica.socket.timeout.ms"]) / 1000):
            answer = await peer.request(_FETCH, _FETCH_VERSION, self._request(body, wait_ms))
        self._take_in(answer)
        self._on_answered()

    async def _sync(self) -> None:
        """A position promises all that lies before it: what has to be on the disk is, before it is asked from."""
        partitions, self._unsynced = self._unsynced, {}
        flushes = [(one, one.log.flush()) for one in partitions if one.must_sync and one in self]
        flushes = [(partition, flush) for partition, flush in flushes if flush.files]
        if not flushes:
            return
        try:
            await self._broker.group_commit.sync([file for _, flush in flushes for file in flush.files])
        except DiskError as problem:
            for partition, _ in flushes:
                self.remove(partition)
                self._give_up(partition, problem)
            return
        for partition, flush in flushes:
            # One that has left the lane may lead meanwhile, or have cut its log for another leader.
            if partition in self:
                partition.log.mark_flushed(flush)

    async def _rest(self, now_ms: int) -> None:
        """Until there is something to ask for."""
        if self._core.wanting_offsets():
            return
        deadline_ms = self._core.next_deadline_ms()
        try:
            async with asyncio.timeout(None if deadline_ms is None else max(0, deadline_ms - now_ms) / 1000):
                await self._news.wait()
        except TimeoutError:
            return

    def _connect(self) -> Peer | None:
        registered = self._broker.image.brokers.get(self._leader_id)
        if registered is None:
            return None
        address = (registered.host, registered.port)
        if self._peer is None or (self._peer.host, self._peer.port) != address:
            if self._peer is not None:
                self._peer.close()
            self._peer = Peer(*address, f"replica-{self._broker.node_id}")
        return self._peer

    def _request(self, body: FetchBody, wait_ms: int) -> Struct:
        settings = self._broker.settings
        bytes_max = settings["replica.fetch.max.bytes"]
        return Struct(
            replica_state=Struct(replica_id=self._broker.node_id, replica_epoch=self._broker.life.epoch),
            max_wait=wait_ms,
            max_wait_ms=wait_ms,
            min_bytes=settings["replica.fetch.min.bytes"],
            max_bytes=settings["replica.fetch.response.max.bytes"],
            isolation_level=0,
            session_id=body.session_id,
            session_epoch=body.session_epoch,
            topics=[
                Struct(
                    topic_id=topic_id,
                    partitions=[
                        Struct(
                            partition=index,
                            current_leader_epoch=position.leader_epoch,
                            fetch_offset=position.fetch_offset,
                            last_fetched_epoch=position.last_fetched_epoch,
                            log_start_offset=position.log_start_offset,
                            partition_max_bytes=bytes_max,
                        )
                        for index, position in listed
                    ],
                )
                for topic_id, listed in _by_topic(body.partitions)
            ],
            forgotten_topics_data=[
                Struct(topic_id=topic_id, partitions=[index for index, _ in listed])
                for topic_id, listed in _by_topic((key, None) for key in body.forgotten)
            ],
            rack_id="",
        )

    def _take_in(self, answer: Any) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        answers = [
            ((topic.topic_id, one.partition_index), _fetched(one))
            for topic in answer.responses
            for one in topic.partitions
        ]
        answered = [self._partitions[key] for key, _ in answers if key in self._partitions]
        self._unsynced.update((one, None) for one in answered if one.must_sync)
        before = [(partition.high_watermark, partition.log.log_end_offset) for partition in answered]
        wall_ms = self._broker.clock.now_ms()
        taken = self._core.on_answer(ErrorCode(answer.error_code), answer.session_id, answers, now_ms, wall_ms=wall_ms)
        throttle = self._broker.throttling.follower
        for key, fetched in answers:
            if fetched.records and key in self._partitions and throttle.covers(self._partitions[key]):
                throttle.record(len(fetched.records), now_ms)
        for key, doomed in taken.doomed.items():
            self._broker.hosting.remove_later(doomed, self._partitions[key])
        for key, lack in taken.full.items():
            if key not in self._full:
                log.error("%s cannot follow its leader for now: %s", self._partitions[key].name, lack)
        self._full.difference_update(key for key, _ in answers)
        self._full.update(taken.full)
        for key, problem in taken.failed.items():
            self._give_up(self._partitions.pop(key), problem)
        for partition, (high_watermark, end_offset) in zip(answered, before, strict=True):
            if partition.high_watermark > high_watermark:
                partition.tell_readers(WAKE_BYTES - 1)
            if partition.log.log_end_offset < end_offset:
                self._broker.log_keeper.note_truncation(partition, partition.log.log_end_offset)

    async def _ask_for_offsets(self, peer: Peer) -> None:
        """For those whose log ends outside of the leader's."""
        for key in self._core.wanting_offsets():
            partition = self._partitions[key]
            follower = partition.follower
            assert follower is not None
            epoch = follower.leader_epoch
            end_offset = partition.log.log_end_offset
            offsets = [await self._list_offset(peer, partition, epoch, which) for which in (_EARLIEST, _LATEST)]
            if partition not in self or partition.follower is not follower:
                continue
            now_ms = self._broker.clock.monotonic_ms()
            if offsets[0] is None or offsets[1] is None:
                follower.back_off(now_ms)
                continue
            try:
                wall_ms = self._broker.clock.now_ms()
                doomed = follower.on_leader_offsets(epoch, offsets[0], offsets[1], now_ms, wall_ms=wall_ms)
            except DiskError as problem:
                self.remove(partition)
                self._give_up(partition, problem)
                continue
            self._broker.hosting.remove_later(doomed, partition)
            if partition.log.log_end_offset != end_offset:
                self._broker.log_keeper.note_truncation(partition, partition.log.log_end_offset)
            self._core.changed(key)

    @staticmethod
    def _give_up(partition: Partition, problem: DiskError) -> None:
        log.error("%s cannot follow its leader, its disk fails: %s", partition.name, problem)
        partition.has_failed = True

    async def _list_offset(self, peer: Peer, partition: Partition, epoch: int, which: int) -> int | None:
        body = Struct(
            replica_id=self._broker.node_id,
            isolation_level=0,
            topics=[
                Struct(
                    name=partition.topic,
                    partitions=[Struct(partition_index=partition.index, current_leader_epoch=epoch, timestamp=which)],
                )
            ],
        )
        async with asyncio.timeout(self._broker.settings["replica.socket.timeout.ms"] / 1000):
            answer = await peer.request(_LIST_OFFSETS, _LIST_OFFSETS_VERSION, body)
        (found,) = answer.topics[0].partitions
        return None if found.error_code else found.offset


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.index


def _fetched(one: Any) -> FetchedPartition:
    diverging = getattr(one, "diverging_epoch", None)
    return FetchedPartition(
        ErrorCode(one.error_code),
        one.high_watermark,
        one.log_start_offset,
        one.records or b"",
        None if diverging is None or diverging.epoch < 0 else (diverging.epoch, diverging.end_offset),
    )


def _by_topic(entries: Iterable[tuple[Key, Any]]) -> Iterable[tuple[UUID, list[tuple[int, Any]]]]:
    topics: dict[UUID, list[tuple[int, Any]]] = {}
    for (topic_id, index), value in entries:
        topics.setdefault(topic_id, []).append((index, value))
    return topics.items()
