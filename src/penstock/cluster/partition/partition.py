"""One partition on one node: the log, and the rules of who may append to it and who may read how far.

The caller's duties: call from one thread; perform what `append` asks for (a sync before an `acks=all` answer, see
`must_sync`); set `leader_epoch`, `isr` and `config` as the metadata says.

Hot path: a handful of objects per batch, and plain attributes that handlers read directly.
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import DiskError
from penstock.cluster.metadata.names import INTERNAL_TOPICS
from penstock.cluster.partition.batch_changes import as_the_topic_wants
from penstock.cluster.partition.follower import Follower
from penstock.cluster.partition.replication import Leader
from penstock.cluster.partition.validation import (
    NotOneBatch,
    Rejected,
    check_batch,
    cut_to_one_batch,
    firsts_of_producers,
    is_plainly_good,
    must_open,
    plain_run,
    refuse_headless,
)
from penstock.cluster.partition.verification import Verification, Verifications
from penstock.log.config import LogConfig
from penstock.log.end_marker import EndMarker, encode_end_marker
from penstock.log.log import Log
from penstock.log.producer_state import Duplicate
from penstock.protocol.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from penstock.protocol.produce import PartitionAnswer, PartitionAnswers, Placed

_ACKS_ALL = -1
# For so long after a change of leaders producers may send what follows a batch that was refused just before,
_SETTLING_MS = 2000
# and for so long one that follows a batch of which they have not heard from the leader before: clients give up then.
_OUTSTANDING_MS = 30_000
LONG_AGO_MS = -1 << 62

_new_tuple = tuple.__new__

# A set that keeps its order.
Listeners = dict[Callable[[int], None], None]


class Partition:
    __slots__ = (
        "_changes_batches",
        "_led_since_ms",
        "_log",
        "_must_open",
        "_open_log",
        "_refusal",
        "_verifications",
        "append_listeners",
        "bytes_in",
        "bytes_out",
        "config",
        "fetch_requests",
        "follower",
        "has_failed",
        "index",
        "is_leading",
        "isr",
        "leader",
        "leader_epoch",
        "messages_in",
        "on_appended",
        "produce_requests",
        "replica_listeners",
        "replicas",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        config: LogConfig,
        *,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        leader_epoch: int,
        open_log: Callable[["Partition"], Log],
    ) -> None:
        self._log: Log | None = None
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.reconfigure(config)
        self.replicas = replicas
        self.isr = isr
        self.leader_epoch = leader_epoch
        self._led_since_ms = LONG_AGO_MS
        self.has_failed = False
        # Since the node started, for its metrics.
        self.messages_in = self.bytes_in = self.bytes_out = self.produce_requests = self.fetch_requests = 0
        self._set_leading(True)
        # What this node knows of the other replicas while it leads, or of the leader while it follows. Neither where
        # it is the only replica: then everything appended is replicated.
        self.leader: Leader | None = None
        self.follower: Follower | None = None
        # Called with the bytes that consumers may read in addition; by other replicas' fetches, with the bytes of each
        # append. In the order of their coming; None while nobody waits.
        self.append_listeners: Listeners | None = None
        self.replica_listeners: Listeners | None = None
        # Whom to tell of appends, where there are other replicas.
        self.on_appended: Callable[[Partition], None] | None = None
        self._open_log = open_log
        # Made by the first transaction.
        self._verifications: Verifications | None = None

    def reconfigure(self, config: LogConfig) -> None:
        self.config = config
        self._must_open = must_open(config)
        # Whether a batch may be stored otherwise than it was sent.
        self._changes_batches = config.compression_type != "producer" or config.timestamp_type == "LogAppendTime"
        if self._log is not None:
            self._log.reconfigure(config)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def log(self) -> Log:
        """Opened on first use: ten thousand idle partitions cost neither descriptors nor start-up time."""
        if self._log is None:
            self._log = self._open_log(self)
        return self._log

    @property
    def loaded_log(self) -> Log | None:
        return self._log

    @property
    def high_watermark(self) -> int:
        """Up to where consumers may read: what all replicas that are in sync have."""
        if self.leader is not None:
            return self.leader.high_watermark
        if self.follower is not None:
            return self.follower.high_watermark
        return self.log.log_end_offset

    @property
    def knows_what_is_committed(self) -> bool:
        """A new leader learns from its followers how much of what it has was committed before it led (KIP-207)."""
        return self.leader is None or self.leader.high_watermark >= self.leader.epoch_start_offset

    @property
    def low_watermark(self) -> int:
        """Where the log of that living replica begins which begins first."""
        start_offset = self.log.log_start_offset
        return start_offset if self.leader is None else self.leader.low_watermark(start_offset)

    # Roles

    def _set_leading(self, is_leading: bool) -> None:
        self.is_leading = is_leading
        # Why producers are turned away, whatever they send.
        self._refusal = ErrorCode.none if is_leading else ErrorCode.not_leader_or_follower
        if self.topic in INTERNAL_TOPICS:
            self._refusal = ErrorCode.invalid_topic_exception

    def lead_alone(self, leader_epoch: int, now_ms: int) -> None:
        """`now_ms`: LONG_AGO_MS where there is nobody from whom it could have been taken over."""
        self._begin(leader_epoch, now_ms)
        self._set_leading(True)
        self.leader = self.follower = self.on_appended = None

    def lead(self, leader: Leader, leader_epoch: int, on_appended: Callable[["Partition"], None], now_ms: int) -> None:
        self._begin(leader_epoch, now_ms)
        self._set_leading(True)
        self.leader = leader
        self.follower = None
        self.on_appended = on_appended

    def _begin(self, leader_epoch: int, now_ms: int) -> None:
        if leader_epoch != self.leader_epoch or self._led_since_ms == LONG_AGO_MS:
            self._led_since_ms = now_ms
        if leader_epoch != self.leader_epoch:
            # Somebody else may have led meanwhile, and have ended the transactions that they are for.
            self._verifications = None
        self.leader_epoch = leader_epoch

    def resign(self) -> None:
        """From here on nobody may write or read here, until it is known whom to follow: how far the in-sync replicas
        are is not known any more, and the log's end is not it."""
        self.leader = self.on_appended = None
        self._set_leading(False)

    def await_leader(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self._set_leading(False)

    def follow(self, follower: Follower, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self._set_leading(False)
        self.leader = self.on_appended = None
        self.follower = follower

    @property
    def must_sync(self) -> bool:
        """Whether the answer to `acks=all`, which means that it survives, has to wait for the disk."""
        flush_mode = self.config.flush_mode
        return flush_mode == "ack" or (flush_mode == "auto" and len(self.replicas) == 1)

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """KIP-320: whether a client's idea of the leader is older or newer than ours; -1 says it has none."""
        if epoch < 0 or epoch == self.leader_epoch:
            return ErrorCode.none
        return ErrorCode.fenced_leader_epoch if epoch < self.leader_epoch else ErrorCode.unknown_leader_epoch

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, where it ended) of the largest epoch not above `epoch`; (-1, -1) for one that is yet to come. The
        leader's own epoch ends where the log does, also before its first batch."""
        if epoch > self.leader_epoch:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return self.log.end_offset_for_epoch(epoch)

    def epoch_for_offset(self, offset: int) -> int:
        return self.leader_epoch if offset >= self.log.log_end_offset else self.log.epoch_for_offset(offset)

    def append(
        self,
        data: memoryview | None,
        acks: int,
        produce_version: int,
        now_ms: int,
        verification: Verification | None = None,
    ) -> PartitionAnswer:
        """Appends one producer's batch, in place in the log's next offsets. `data` is changed (placement, time).
        `verification` is what `start_verification` gave; None where the request names no transactional id."""
        if self._refusal:
            return PartitionAnswer(self.index, self._refusal)
        try:
            if self.has_failed:
                raise DiskError(f"{self.name} failed to reach the disk earlier; restart the node")
            if acks == _ACKS_ALL and len(self.isr) < min(self.config.min_insync_replicas, len(self.replicas)):
                raise Rejected(
                    ErrorCode.not_enough_replicas,
                    f"{len(self.isr)} replicas are in sync; min.insync.replicas is {self.config.min_insync_replicas}",
                )
            if data is None or len(data) < HEADER_BYTES:
                raise refuse_headless(data)
            header = read_header(data)
            if self._must_open or not is_plainly_good(data, header, self.config, now_ms):
                data = cut_to_one_batch(data, header, produce_version)
                if header.attributes & TRANSACTIONAL and verification is None:
                    raise NotOneBatch(
                        ErrorCode.transactional_id_authorization_failed,
                        "a transactional batch needs a transactional id in its request",
                    )
                check_batch(data, header, self.config, now_ms)
            return self._append_valid(data, header, now_ms, verification)
        except Refused as problem:
            return PartitionAnswer(self.index, problem.code, error_message=problem.message)
        except NotOneBatch as problem:
            return PartitionAnswer(self.index, problem.code, error_message=problem.message)
        except Rejected as problem:
            return PartitionAnswer(
                self.index,
                problem.code,
                log_start_offset=self.log.log_start_offset if problem.code in _TELLS_LOG_START else -1,
                record_errors=problem.record_errors,
                error_message=problem.message,
            )
        except DiskError as problem:
            return PartitionAnswer(self.index, ErrorCode.kafka_storage_error, error_message=str(problem))

    def append_all(
        self, batches: Sequence[memoryview | None], acks: int, produce_version: int, now_ms: int
    ) -> PartitionAnswers:
        """As `append` of one after the other, none of them in a transaction: with one write if none needs a second
        look."""
        if len(batches) == 1:
            return [self.append(batches[0], acks, produce_version, now_ms)]
        try:
            base_offsets = self._append_plain(batches, acks, now_ms)
        except DiskError as problem:
            refused = PartitionAnswer(self.index, ErrorCode.kafka_storage_error, error_message=str(problem))
            return [refused] * len(batches)
        if base_offsets is None:
            return [self.append(batch, acks, produce_version, now_ms) for batch in batches]
        return Placed(self.index, self.log.log_start_offset, base_offsets)

    def _append_plain(self, batches: Sequence[memoryview | None], acks: int, now_ms: int) -> list[int] | None:
        """The base offsets; None, nothing being done, where `append` has to look at each. Raises DiskError, nothing
        being done either."""
        if (
            self._refusal
            or self.has_failed
            or self._must_open
            or self._changes_batches
            or (acks == _ACKS_ALL and len(self.isr) < min(self.config.min_insync_replicas, len(self.replicas)))
        ):
            return None
        run = plain_run(batches, self.config, now_ms)
        log = self.log
        if run is None or (run.headers and not self._are_next_of_producers(run.headers, log, now_ms)):
            return None
        base_offsets = log.append_run(run, self.leader_epoch, now_ms)
        if base_offsets is None:
            return None
        self.produce_requests += len(batches)
        self.messages_in += log.log_end_offset - base_offsets[0]
        self.bytes_in += run.size
        if self.append_listeners or self.on_appended is not None:
            self._tell_of_append(run.size)
        return base_offsets

    def _are_next_of_producers(self, headers: Sequence[BatchHeader], log: Log, now_ms: int) -> bool:
        firsts = firsts_of_producers(headers)
        return firsts is not None and all(
            log.check_producer(header) is None and not self._follows_a_refused_one(header, None, log, now_ms)
            for header in firsts
        )

    def append_own(self, batch: bytearray, now_ms: int) -> None:
        """Appends a batch that this node made itself, as a coordinator does. Raises DiskError."""
        header = read_header(batch)
        self.log.append(batch, header, self.leader_epoch, now_ms)
        if self._verifications is not None:
            self._verifications.end(header.producer_id)
        self._tell_of_append(len(batch))

    # Transactions

    def start_verification(
        self, producer_id: int, epoch: int, sequence: int, epoch_bumps: bool, now_ms: int
    ) -> Verification:
        """To be given back with the batch once the coordinator has confirmed that the partition is in the producer's
        transaction; NOTHING_TO_VERIFY where the transaction is open here. Raises DiskError."""
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications.start(self.log.producers, producer_id, epoch, sequence, epoch_bumps, now_ms)

    def check_own_in_transaction(self, producer_id: int, epoch: int, verification: Verification) -> ErrorCode:
        """Whether `append_own` may be given a batch of the producer's transaction. Raises DiskError."""
        if self._verifications is None:
            self._verifications = Verifications()
        return self._verifications.check(self.log.producers, producer_id, epoch, verification)

    def append_marker(
        self, marker: EndMarker, producer_id: int, producer_epoch: int, transaction_version: int, now_ms: int
    ) -> ErrorCode:
        """Ends the producer's transaction here. Raises DiskError."""
        if not self.is_leading:
            return ErrorCode.not_leader_or_follower
        if self.has_failed:
            return ErrorCode.kafka_storage_error
        if len(self.isr) < min(self.config.min_insync_replicas, len(self.replicas)):
            return ErrorCode.not_enough_replicas
        error = self.log.producers.check_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, transaction_version
        )
        if error:
            return error
        self.append_own(encode_end_marker(marker, producer_id, producer_epoch, now_ms), now_ms)
        return ErrorCode.none

    @property
    def last_stable_offset(self) -> int:
        """Up to where those may read who want committed records only."""
        return self.log.last_stable_offset(self.high_watermark)

    def expire_producers(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets producers that have been silent for so long."""
        if self._log is not None:
            self._log.expire_producers(now_ms, expiration_ms)
        if self._verifications is not None:
            self._verifications.expire(now_ms - expiration_ms)

    def _check_transaction(
        self, header: BatchHeader, verification: Verification, verdict: ErrorCode | None
    ) -> ErrorCode | None:
        """The verdict on a transactional batch that is no duplicate; `verdict` is what its sequence number says."""
        if self._verifications is None:
            self._verifications = Verifications()
        producers = self.log.producers
        return (
            self._verifications.check(producers, header.producer_id, header.producer_epoch, verification)
            or self._verifications.check_sequence(producers, header)
            or verdict
        )

    def _tell_of_append(self, size: int) -> None:
        if self.on_appended is None:
            self.tell_readers(size)
            return
        self.tell_replicas(size)
        self.on_appended(self)

    def tell_replicas(self, size: int) -> None:
        """There are so many bytes more for the other replicas."""
        for listener in tuple(self.replica_listeners or ()):
            listener(size)

    def tell_readers(self, size: int) -> None:
        """There are so many bytes more for consumers."""
        for listener in tuple(self.append_listeners or ()):
            listener(size)

    def _follows_a_refused_one(self, header: BatchHeader, verdict: ErrorCode | None, log: Log, now_ms: int) -> bool:
        """A producer keeps several batches on their way. When this node did not lead yet as the first came, but did
        for the second, that one leaves a gap; so does one that librdkafka sends here while it is about to give up the
        first, which went to a leader that was cut off. Taken from a producer that is not known here, it would have
        librdkafka count the first as delivered too; refused for the gap, begin a new epoch and send what it has not
        heard of again in all partitions, which doubles what was written. Told that the leader has changed, every client
        sends them again in their order. Kafka takes the one and refuses the other."""
        led_ms = now_ms - self._led_since_ms
        if verdict is None:
            is_first = header.producer_id not in log.producers.producers
            return header.base_sequence > 0 and 0 <= led_ms < _SETTLING_MS and is_first
        # Of a transaction nothing is doubled by a refusal, which only aborts it; nor by one of what was written before.
        is_gap = not header.attributes & TRANSACTIONAL and log.producers.leaves_gap(header)
        patience_ms = _OUTSTANDING_MS if is_gap else _SETTLING_MS
        return verdict is ErrorCode.out_of_order_sequence_number and 0 <= led_ms < patience_ms

    def _append_valid(
        self, data: memoryview | bytearray, header: BatchHeader, now_ms: int, verification: Verification | None
    ) -> PartitionAnswer:
        log = self._log
        if log is None:
            log = self.log
        if header.producer_id >= 0:
            verdict = log.check_producer(header)
            if isinstance(verdict, Duplicate):
                return PartitionAnswer(self.index, 0, verdict.base_offset, verdict.timestamp, log.log_start_offset)
            if header.attributes & TRANSACTIONAL:
                assert verification is not None
                verdict = self._check_transaction(header, verification, verdict)
            if self._follows_a_refused_one(header, verdict, log, now_ms):
                raise Rejected(ErrorCode.not_leader_or_follower, "the leader is new: send again what goes before it")
            if isinstance(verdict, ErrorCode):
                raise Rejected(verdict, _SEQUENCE_PROBLEMS.get(verdict, verdict.name))
        append_time_ms = -1
        if self._changes_batches or header.attributes & LOG_APPEND_TIME:
            data, header, append_time_ms = as_the_topic_wants(data, header, self.config, now_ms)
        base_offset = log.append(data, header, self.leader_epoch, now_ms)
        self.produce_requests += 1
        self.messages_in += header.record_count
        self.bytes_in += len(data)
        if verification is not None and header.attributes & TRANSACTIONAL and self._verifications is not None:
            self._verifications.end(header.producer_id)
        if self.append_listeners or self.on_appended is not None:
            self._tell_of_append(len(data))
        return PartitionAnswer(self.index, 0, base_offset, append_time_ms, log.log_start_offset)


# Refusals that carry the log start offset, as Kafka's do.
_TELLS_LOG_START = frozenset(
    {
        ErrorCode.invalid_record,
        ErrorCode.invalid_timestamp,
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
    }
)
_SEQUENCE_PROBLEMS = {
    ErrorCode.out_of_order_sequence_number: "the sequence number does not follow the last one of this producer",
    ErrorCode.invalid_producer_epoch: "a newer instance of this producer has taken over",
    ErrorCode.unknown_producer_id: "nothing is known of this producer any more",
    ErrorCode.invalid_txn_state: "the batch is not part of an open transaction",
}
