"""A slice of one partition, fetch by fetch, through leader changes and broken connections.

The next fetch is asked for before this one is handed out, so that the broker works while the caller decodes. One buffer
is used again and again: what is handed out is valid until the next one is asked for.
"""

import time
from collections.abc import Iterator
from struct import Struct as Packer
from typing import NamedTuple

from penstock.base.errors import ErrorCode
from penstock.client.batch_table import BatchTable
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.connection import FETCH, Connection
from penstock.client.errors import (
    ClientError,
    OffsetOutOfRange,
    Refusal,
    TimedOut,
    Unreachable,
    is_worth_retrying,
)
from penstock.protocol.messages import Struct
from penstock.protocol.primitives import read_uvarint
from penstock.protocol.records import CorruptRecords

_VERSION = 12
# Correlation id, tags; throttle time, error, session: then the topics.
_HEAD = Packer(">iBihi")
_PARTITION = Packer(">ihqqq")
_ABORTED = Packer(">qqB")
_BACKOFF_S = 0.05
_BACKOFF_S_MAX = 1.0
_CORRUPT_TRIES_MAX = 3


class FetchLimits(NamedTuple):
    """Kafka's names for them: fetch.max.bytes, fetch.max.wait.ms, isolation.level, check.crcs."""

    bytes_max: int = 4 * 1024 * 1024
    wait_ms_max: int = 500
    read_committed: bool = False
    check_crcs: bool = True
    # For how long a fetch may bring nothing while there should be something.
    patience_ms: int = 120_000


class Fetched(NamedTuple):
    table: BatchTable
    # (producer id, first offset) of aborted transactions; None for a reader of uncommitted data.
    aborted: list[tuple[int, int]] | None
    # Where the next fetch goes on.
    next_offset: int


class _Answer(NamedTuple):
    error: ErrorCode
    aborted: list[tuple[int, int]]
    begin: int
    end: int


class PartitionFetcher:
    """Reads [start, end) of a partition once. Batches may reach beyond both ends: the caller cuts them."""

    def __init__(
        self, cluster: Cluster, partition: TopicPartition, start: int, end: int, limits: FetchLimits | None = None
    ) -> None:
        self.partition = partition
        self._cluster = cluster
        self._limits = limits or FetchLimits()
        self._offset = start
        self._end = end
        self._bytes_max = self._limits.bytes_max
        self._buffer = bytearray()
        self._connection: Connection | None = None
        self._is_asked = False
        self._corrupt_tries = 0

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._is_asked = False
        if connection is not None:
            connection.close()

    def __iter__(self) -> Iterator[Fetched]:
        """Raises OffsetOutOfRange, TimedOut, CorruptRecords, or another ClientError that trying again will not heal."""
        try:
            give_up_s = self._later_s()
            backoff_s = _BACKOFF_S
            while self._offset < self._end:
                try:
                    fetched = self._fetch()
                except ClientError as error:
                    if not is_worth_retrying(error):
                        raise
                    if time.monotonic() > give_up_s:
                        raise TimedOut(f"{self._stuck()}; the last failure: {error}") from error
                    self.close()
                    self._cluster.forget_leader(self.partition.topic)
                    time.sleep(backoff_s)
                    backoff_s = min(2 * backoff_s, _BACKOFF_S_MAX)
                    continue
                if fetched is not None:
                    yield fetched
                    give_up_s = self._later_s()
                    backoff_s = _BACKOFF_S
                elif time.monotonic() > give_up_s:
                    raise TimedOut(f"{self._stuck()}: there may be an open transaction, or the records are gone")
        finally:
            self.close()

    def _later_s(self) -> float:
        return time.monotonic() + self._limits.patience_ms / 1000

    def _stuck(self) -> str:
        waited_s = self._limits.patience_ms / 1000
        return f"{self.partition} brought nothing after offset {self._offset} for {waited_s:g} s"

    def _fetch(self) -> Fetched | None:
        """One answer; None if it had no records."""
        if self._connection is None:
            self._connection = self._cluster.connect(self._cluster.leader_of(self.partition))
        if not self._is_asked:
            self._ask(self._connection)
        answer = self._receive(self._connection)
        self._is_asked = False
        if answer.error == ErrorCode.offset_out_of_range:
            raise OffsetOutOfRange(*self.partition, self._offset)
        if answer.error != ErrorCode.none:
            raise Refusal(answer.error, f"fetching {self.partition}")
        table = self._table(answer)
        if not len(table):
            if answer.end > answer.begin:
                # Not even one batch fits: brokers before KIP-74 need to be asked for more.
                self._bytes_max *= 2
            return None
        self._offset = table.next_offset
        if self._offset < self._end:
            self._ask(self._connection)
        return Fetched(table, answer.aborted if self._limits.read_committed else None, self._offset)

    def _table(self, answer: _Answer) -> BatchTable:
        view = memoryview(self._buffer)
        try:
            table = BatchTable(view, answer.begin, answer.end, check_crcs=self._limits.check_crcs)
        except CorruptRecords as error:
            # It may have been damaged on the way: the next try brings it again.
            self._corrupt_tries += 1
            if self._corrupt_tries >= _CORRUPT_TRIES_MAX:
                raise
            raise Unreachable(f"{self.partition} at offset {self._offset}: {error}") from error
        self._corrupt_tries = 0
        return table

    def _ask(self, connection: Connection) -> None:
        limits = self._limits
        partition = Struct(
            partition=self.partition.partition,
            current_leader_epoch=-1,
            fetch_offset=self._offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=self._bytes_max,
        )
        connection.send(
            FETCH,
            connection.version_of(FETCH),
            Struct(
                replica_id=-1,
                max_wait=limits.wait_ms_max,
                min_bytes=1,
                max_bytes=self._bytes_max,
                isolation_level=int(limits.read_committed),
                session_id=0,
                session_epoch=-1,
                topics=[Struct(topic=self.partition.topic, partitions=[partition])],
                rack_id="",
            ),
        )
        self._is_asked = True

    def _receive(self, connection: Connection) -> _Answer:
        if connection.version_of(FETCH) != _VERSION:
            raise ClientError(f"{connection} is too old: it does not serve Fetch version {_VERSION} (Kafka 2.7)")
        length = connection.receive_length()
        if length > len(self._buffer):
            # Arrays of the last answer may still look at the old one, so it is replaced and not resized.
            self._buffer = bytearray(max(length, self._bytes_max + 4096))
        connection.receive_into(memoryview(self._buffer)[:length])
        return _read_answer(self._buffer, length)


def _read_answer(data: bytearray, length: int) -> _Answer:
    """The one partition in an answer of version 12."""
    error = _HEAD.unpack_from(data)[3]
    if error:
        return _Answer(ErrorCode(error), [], 0, 0)
    topics, position = read_uvarint(data, _HEAD.size)
    name_bytes, position = read_uvarint(data, position)
    partitions, position = read_uvarint(data, position + max(name_bytes - 1, 0))
    if topics != 2 or partitions != 2:
        raise ClientError("a fetch of one partition was answered with another number of them")
    _, error, *_ = _PARTITION.unpack_from(data, position)
    aborted_count, position = read_uvarint(data, position + _PARTITION.size)
    aborted = []
    for _ in range(aborted_count - 1):
        producer_id, first_offset, tags = _ABORTED.unpack_from(data, position)
        if tags:
            raise ClientError("a fetch was answered with fields that this client does not know")
        aborted.append((producer_id, first_offset))
        position += _ABORTED.size
    record_bytes, position = read_uvarint(data, position + 4)
    end = position + max(record_bytes - 1, 0)
    if end > length:
        raise ClientError("a fetch was answered with fewer bytes than it says")
    return _Answer(ErrorCode(error), aborted, position, end)
