"""A client of the simulated cluster: real requests, encoded by the production codec, over the simulated network."""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.peers import Peer, PeerGone
from penstock.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid, read_header
from penstock.protocol.messages import Malformed, Struct
from penstock.protocol.records import Record, iterate_records
from tests.simulation.cluster import PORT, SimCluster
from tests.simulation.loop import make_loop

TopicPartition = tuple[str, int]

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 19, 20
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID = 8, 9, 10, 22
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28
INCREMENTAL_ALTER_CONFIGS, REASSIGN, CONSUMER_GROUP_HEARTBEAT = 44, 45, 68
GROUP_KEY, TRANSACTION_KEY = 0, 1
_REQUEST_SECONDS_MAX = 4.0
_VERSIONS = {METADATA: 12, FETCH: 12, LIST_OFFSETS: 8, CREATE_TOPICS: 7, DELETE_TOPICS: 6, FIND_COORDINATOR: 4}


class Unavailable(Exception):
    """No answer came, or none that says anything: what was asked may or may not have been done."""


class Damaged(Unavailable):
    """What came is not what was written: a checksum is wrong."""


class SimClient:
    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.random = random.Random(cluster.random.getrandbits(64))
        self.loop = make_loop(cluster.scheduler, name, clock_rate=1.0)
        self.leaders: dict[TopicPartition, int] = {}
        self.leader_epochs: dict[TopicPartition, int] = {}
        self.partition_counts: dict[str, int] = {}
        self.topic_ids: dict[str, Any] = {}
        self._peers: dict[int, Peer] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        cluster.graveyard.append(self)

    @property
    def now_s(self) -> float:
        return self.cluster.scheduler.now_s

    def run(self, work: Callable[[], Any]) -> None:
        self.loop.call_soon(lambda: self.loop.create_task(work()))

    # Requests

    async def ask(self, node_id: int, api_key: int, body: Struct, version: int | None = None) -> Any:
        """The decoded answer. Raises Unavailable."""
        peer = self._peers.get(node_id)
        if peer is None:
            peer = self._peers[node_id] = Peer(f"node{node_id}", PORT, self.name)
        try:
            async with asyncio.timeout(_REQUEST_SECONDS_MAX):
                return await peer.request(api_key, _VERSIONS[api_key] if version is None else version, body)
        except TimeoutError as problem:
            peer.close()
            raise Unavailable(f"node {node_id} did not answer") from problem
        except (PeerGone, Malformed) as problem:
            raise Unavailable(str(problem)) from problem

    async def ask_any(self, api_key: int, body: Struct, version: int | None = None) -> Any:
        return await self.ask(self.random.choice(self.cluster.node_ids), api_key, body, version)

    async def pause(self, seconds: float = 0.1) -> None:
        await asyncio.sleep(seconds * self.random.uniform(0.5, 1.5))

    # Where things are

    async def refresh(self, topics: Iterable[str]) -> None:
        """Raises Unavailable."""
        body = Struct(
            topics=[Struct(name=name, topic_id=None) for name in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        answer = await self.ask_any(METADATA, body)
        for topic in answer.topics:
            if topic.error_code:
                continue
            self.partition_counts[topic.name] = len(topic.partitions)
            self.topic_ids[topic.name] = topic.topic_id
            for one in topic.partitions:
                key = (topic.name, one.partition_index)
                # An answer from a node that is behind must not lead back to a leader of the past.
                if one.leader_epoch >= self.leader_epochs.get(key, -1):
                    self.leaders[key] = one.leader_id
                    self.leader_epochs[key] = one.leader_epoch

    def forget_topic(self, name: str) -> None:
        for key in [key for key in self.leaders if key[0] == name]:
            del self.leaders[key], self.leader_epochs[key]

    async def leader_of(self, key: TopicPartition) -> int:
        """Raises Unavailable."""
        if self.leaders.get(key, -1) < 0:
            await self.refresh([key[0]])
        leader = self.leaders.get(key, -1)
        if leader < 0:
            raise Unavailable(f"{key} has no leader")
        return leader

    async def coordinator_of(self, kind: int, name: str) -> int:
        """Raises Unavailable."""
        known = self._coordinators.get((kind, name))
        if known is not None:
            return known
        answer = await self.ask_any(FIND_COORDINATOR, Struct(key_type=kind, coordinator_keys=[name]))
        (found,) = answer.coordinators
        if found.error_code:
            raise Unavailable(f"no coordinator of {name}: {ErrorCode(found.error_code).name}")
        self._coordinators[kind, name] = found.node_id
        return int(found.node_id)

    async def ask_coordinator(self, kind: int, name: str, api_key: int, version: int, body: Struct) -> Any:
        """Raises Unavailable, also where the coordinator has moved; where it is now is asked anew the next time."""
        try:
            answer = await self.ask(await self.coordinator_of(kind, name), api_key, body, version)
        except Unavailable:
            self._coordinators.pop((kind, name), None)
            raise
        if any(code in COORDINATOR_MOVED for code in _codes(answer)):
            self._coordinators.pop((kind, name), None)
            raise Unavailable("the coordinator is elsewhere or loading")
        return answer

    # Records

    async def fetch(
        self,
        key: TopicPartition,
        offset: int,
        *,
        isolation_level: int = 0,
        max_wait_ms: int = 2500,
        leader_epoch: int = -1,
    ) -> Any:
        """One partition's answer. Raises Unavailable."""
        leader = await self.leader_of(key)
        partition = Struct(
            partition=key[1],
            current_leader_epoch=leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=200_000,
        )
        body = Struct(
            replica_id=-1,
            max_wait=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=[Struct(topic=key[0], partitions=[partition])],
            forgotten_topics_data=[],
            rack_id="",
        )
        try:
            answer = await self.ask(leader, FETCH, body)
        except Unavailable:
            self.leaders.pop(key, None)
            raise
        return answer.responses[0].partitions[0]


# Codes by which a client is told to look for the coordinator again.
COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    }
)


def _codes(answer: Any) -> Iterator[int]:
    code = getattr(answer, "error_code", None)
    if code is not None:
        yield code
    for topic in getattr(answer, "topics", None) or getattr(answer, "results_by_topic_v3_and_below", None) or ():
        for one in getattr(topic, "partitions", None) or getattr(topic, "results_by_partition", None) or ():
            yield int(getattr(one, "error_code", 0) or getattr(one, "partition_error_code", 0))
    for group in getattr(answer, "groups", None) or ():
        yield group.error_code


def batches_of(data: bytes | None) -> Iterator[tuple[BatchHeader, bytes]]:
    """All whole batches; one that is cut short ends it, as it may in a fetch, but for the first. Raises Damaged."""
    position = 0
    while data and position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        end = position + header.size
        if end > len(data) and position:
            return
        batch = data[position:end]
        if header.magic != MAGIC or not HEADER_BYTES <= header.size == len(batch) or not crc_is_valid(batch, header):
            raise Damaged(f"a batch at offset {header.base_offset} with a wrong checksum")
        yield header, batch
        position = end


def records_of(data: bytes | None) -> Iterator[tuple[BatchHeader, Record]]:
    for header, batch in batches_of(data):
        if not header.is_control:
            for record in iterate_records(batch, header):
                yield header, record


def visible_batches(answer: Any, batches: Iterable[tuple[BatchHeader, bytes]]) -> Iterator[tuple[BatchHeader, bytes]]:
    """What a reader of committed records delivers: the aborted ones that the answer names are left out."""
    aborted = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
    open_aborts: set[int] = set()
    for header, batch in batches:
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborts.add(aborted.pop(0)[1])
        if header.is_control:
            open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            yield header, batch
