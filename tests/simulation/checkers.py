"""The invariants, each a function with its number, on histories and on what the nodes hold in the end.

Where each is looked after, by the numbers of the reliability page:
1 readable        `check_acknowledged_is_readable`, `check_retention`, and every reader: no gap, no end before what was
                  read
2 one record      `History.place`: acknowledged, read and kept; `Recreator`, of topics that were deleted
3 identical       `check_replicas_are_identical`
4 high watermark  `Observer._check_leader`; readers hold every answer against it
5 one leader      `Observer._check_leader`; `LateComer` and `TransactionalProducer._haunt`, whom nobody may serve
6, 7, 8           `Observer._check_controller`, `_check_leader`, `_watch_truncations`
9 indexes         `check_indexes`, after torn writes; `Rot._check_others`, readers and all who look at logs: checksums
10 once           `check_appended_once`, and producers, which send acknowledged batches again
11, 12, 14, 15    `Observer._check_quorum`, `_watch_votes`, `_check_vote_was_kept`, `_check_isolation`,
                  `_check_metadata`; `check_settings`. That what is committed is on a majority's disks shows when all of
                  them lose their power.
13 snapshots      `check_images`
16, 17 groups     `Ownership`, `Member._committed_offset`
18 all or nothing `check_transactions`, `TransactionalProducer._check_offset`
19 one outcome    `check_markers`, `check_decisions`
20 stable offset  readers; `is_settled`, since only a log without open transactions can be read to its end
21 compaction     `check_compaction`
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from penstock.broker.transaction_coordinator import STATE_TOPIC
from penstock.cluster.metadata.snapshot import snapshot_records
from penstock.cluster.partition.partition import Partition
from penstock.coordinator.transaction.records import decode_record
from penstock.coordinator.transaction.states import PREPARING, TransactionState
from penstock.log.config import LogConfig
from penstock.log.end_marker import read_end_marker
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, read_header
from tests.simulation.client import Damaged, batches_of, records_of
from tests.simulation.history import ABORTED, COMMITTED, Trim, Violation

_TOPIC = 2

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld


def is_settled(world: "SimulatedWorld") -> bool:
    """Everything has come to rest: all replicas have everything, and readers have read it."""
    if not world.observer.is_healed() or not all(
        reader.offset >= world.observer.committed.get(reader.key, 0) for reader in world.readers
    ):
        return False
    ends: dict[str, set[int]] = {}
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            # A follower's high watermark may lag: it is told of it with records, and there are no more.
            of_leader = {partition.high_watermark} if partition.leader is not None else set()
            ends.setdefault(partition.name, set()).update({partition.log.log_end_offset} | of_leader)
    return all(len(found) == 1 for found in ends.values())


def check_at_the_end(world: "SimulatedWorld") -> None:
    log_bytes.cache_clear()
    try:
        _check_at_the_end(world)
    except Damaged as problem:
        raise Violation(9, "checksums", str(problem)) from problem


def _check_at_the_end(world: "SimulatedWorld") -> None:
    check_acknowledged_is_readable(world)
    check_appended_once(world)
    check_replicas_are_identical(world)
    check_indexes(world)
    check_images(world)
    check_transactions(world)
    check_markers(world)
    check_decisions(world)
    check_compaction(world)
    check_retention(world)
    check_settings(world)


@lru_cache(maxsize=200)
def log_bytes(partition: Partition) -> bytes:
    """As it is at the end, when nothing is written any more."""
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    data = bytearray()
    while offset < end:
        found = log.read(offset, 1 << 20, end, at_least_one=True)
        if found is None:
            break
        chunk = found.file.read(found.position, found.length)
        data += chunk
        for header, _ in _batches(chunk):
            offset = header.last_offset + 1
    return bytes(data)


# Replicas are the same bytes: what they are made of is found out once.
@lru_cache(maxsize=50)
def _batches(data: bytes) -> tuple[tuple[BatchHeader, bytes], ...]:
    return tuple(batches_of(data))


def _from(offset: int, data: bytes) -> bytes:
    """Where replicas begin is their own affair, as far as retention goes."""
    return b"".join(batch for header, batch in _batches(data) if header.base_offset >= offset)


def check_acknowledged_is_readable(world: "SimulatedWorld") -> None:
    """1: every acks=all record that was acknowledged is readable, once, at its offset."""
    found = {reader.key: reader.found for reader in world.readers}
    for write in world.history.writes.values():
        if write.acks != -1 or write.offset is None or write.partition not in found or write.transaction is not None:
            continue
        if write.partition[0] in world.history.compacted_topics | world.history.trimmed_topics:
            continue
        value = found[write.partition].get(write.offset)
        if value != write.value:
            raise Violation(
                1,
                "readable",
                f"{write.value!r} was acknowledged at {write.partition} {write.offset}; there is {value!r}",
            )


def check_appended_once(world: "SimulatedWorld") -> None:
    """10: no value twice; those of one producer in their order. What one without idempotence has given up may still
    come, by a connection of before, after what it sent by the next one."""
    for reader in world.readers:
        places: dict[bytes, int] = {}
        last: dict[str, int] = {}
        for offset, value in sorted(reader.found.items()):
            if value in places:
                raise Violation(10, "appended once", f"{value!r} at {places[value]} and {offset} of {reader.key}")
            places[value] = offset
            write = world.history.writes[value]
            if write.acks != -1 and write.offset is None:
                continue
            if write.number < last.get(write.producer, 0):
                raise Violation(10, "appended once", f"{value!r} at {offset} comes after number {last[write.producer]}")
            last[write.producer] = write.number


def check_replicas_are_identical(world: "SimulatedWorld") -> None:
    """3: logs of replicas are the same bytes; here everything is committed."""
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            if partition.leader is None or partition.config.is_compacted:
                continue
            mine = log_bytes(partition)
            for other in world.cluster.brokers():
                theirs = other.topics_by_name.get(partition.topic.encode(), {}).get(partition.index)
                if theirs is None or other is broker:
                    continue
                start = max(partition.log.log_start_offset, theirs.log.log_start_offset)
                if _from(start, log_bytes(theirs)) != _from(start, mine):
                    raise Violation(
                        3, "identical replicas", f"{partition.name} on nodes {broker.node_id} and {other.node_id}"
                    )


def check_indexes(world: "SimulatedWorld") -> None:
    """9: looking an offset up leads to the batch that a scan finds, and every batch has its checksum."""
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            expected = partition.log.log_start_offset
            for header, _ in _batches(log_bytes(partition)):
                first = max(header.base_offset, partition.log.log_start_offset)
                found = partition.log.read(first, 1, header.last_offset + 1, at_least_one=True)
                at = None if found is None else read_header(found.file.read(found.position, HEADER_BYTES)).base_offset
                is_dense = partition.config.is_compacted or header.base_offset <= expected
                if at != header.base_offset or not is_dense:
                    raise Violation(9, "indexes", f"{partition.name} on {broker.node_id}: {header.base_offset} is {at}")
                expected = header.last_offset + 1


def check_images(world: "SimulatedWorld") -> None:
    """13: however a node came by its metadata, by snapshots or by replaying all, it is the same."""
    images = {broker.node_id: sorted(map(repr, snapshot_records(broker.image))) for broker in world.cluster.brokers()}
    first, *_ = images.values()
    for node_id, records in images.items():
        if records != first:
            raise Violation(13, "snapshots", f"the metadata of node {node_id} is not that of the others")


def check_transactions(world: "SimulatedWorld") -> None:
    """18: of a transaction those who read committed records see all or nothing. 20: that they came to the end of the
    log says that none is open any more."""
    visible = {value for reader in world.readers if reader.is_committed for value in reader.found.values()}
    for transaction in world.history.transactions:
        seen = [write.value for write in transaction.writes if write.value in visible]
        sent = [write for write in transaction.writes if not write.is_refused]
        is_whole = len(seen) == len(sent)
        if transaction.outcome == ABORTED and seen:
            raise Violation(18, "all or nothing", f"{seen} of an aborted transaction can be read")
        if transaction.outcome == COMMITTED and not is_whole:
            raise Violation(18, "all or nothing", f"of {[one.value for one in sent]}, committed, {seen} can be read")
        if seen and not is_whole:
            raise Violation(18, "all or nothing", f"of {[one.value for one in sent]} {seen} can be read")


def check_markers(world: "SimulatedWorld") -> None:
    """19: one outcome for a producer's epoch in each partition's log: where a marker follows another of the same epoch
    without records in between, it is the same decision written again."""
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            last: dict[tuple[int, int], bool] = {}
            for header, batch in _batches(log_bytes(partition)) if partition.leader is not None else ():
                key = (header.producer_id, header.producer_epoch)
                marker = read_end_marker(batch, header) if header.is_control else None
                if marker is None:
                    last.pop(key, None)
                elif last.setdefault(key, marker.is_abort) != marker.is_abort:
                    raise Violation(
                        19, "one outcome", f"{partition.name}: {key} ended both ways, at {header.base_offset}"
                    )


def check_decisions(world: "SimulatedWorld") -> None:
    """19: what a coordinator told partitions of the end of a transaction, its log has decided, and still says."""
    kept: set[tuple[str, int, int, bool]] = set()
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            if partition.topic != STATE_TOPIC or partition.leader is None:
                continue
            for _, record in records_of(log_bytes(partition)):
                found = None if record.key is None else decode_record(record.key, record.value)
                state = None if found is None else found.value
                if found is not None and state is not None and state.state in PREPARING:
                    is_commit = state.state is TransactionState.PREPARE_COMMIT
                    kept.add((str(found.key), state.producer_id, state.producer_epoch, is_commit))
    for decision in sorted(world.history.decisions - kept):
        raise Violation(19, "one outcome", f"partitions were told of {decision}, which no coordinator has decided")


def check_retention(world: "SimulatedWorld") -> None:
    """1: only the beginning of a log is dropped, whole, and no more of it than its settings and users ask for. What was
    dropped may come back, the same as it was."""
    trims = world.history.trims
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            key = (partition.topic, partition.index)
            if partition.topic not in world.history.trimmed_topics or partition.leader is None:
                continue
            start = partition.log.log_start_offset
            if any(trim.offset > start and _must_hold(world, key, broker.node_id, trim) for trim in trims.get(key, ())):
                raise Violation(1, "trimmed", f"{partition.name} begins at {start} again")
            data = log_bytes(partition)
            found = {record.offset: record.value for _, record in records_of(data)}
            for write in world.history.writes.values():
                is_due = write.partition == key and write.offset is not None and write.offset >= start
                if is_due and found.get(write.offset or 0) != write.value:
                    raise Violation(1, "readable", f"{write.value!r}, acknowledged at {write.offset}, is gone")
            is_retained = len(data) >= partition.config.retention_bytes
            if start > world.history.trimmed_to.get(key, 0) and not is_retained:
                raise Violation(1, "retained", f"{partition.name} has {len(data)} bytes left, from {start} on")


def _must_hold(world: "SimulatedWorld", key: tuple[str, int], leader: int, trim: Trim) -> bool:
    """Where a log begins, the leader that confirmed it keeps on its disk. Those in sync know it until they end without
    a farewell (Kafka writes it down now and then): who leads then may begin where it did before."""
    has_kept_its_copy = key not in world.cluster.rotten and "reassign" not in world.works
    has_heard = trim.ends == world.cluster.ends and leader in trim.in_sync
    return has_heard or (trim.leader == leader and has_kept_its_copy)


def check_settings(world: "SimulatedWorld") -> None:
    """15: settings and places of partitions are what was decided, and what the nodes go by."""
    (image, *_) = (broker.image for broker in world.cluster.brokers())
    if world.administrator is not None:
        world.administrator.check(image)
    if world.voter_changer is not None:
        world.voter_changer.check(world.cluster.brokers())
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            settings = image.configs.get((_TOPIC, partition.topic), {})
            expected = int(settings.get("max.message.bytes", LogConfig().max_message_bytes))
            if partition.config.max_message_bytes != expected:
                raise Violation(15, "as decided", f"{partition.name} on {broker.node_id}: not {expected} bytes at most")


def check_compaction(world: "SimulatedWorld") -> None:
    """21: the last acknowledged value of each key is there, or a later one; offsets are what they were."""
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            if partition.topic not in world.history.compacted_topics:
                continue
            latest: dict[bytes | None, int] = {}
            for _, record in records_of(log_bytes(partition)):
                assert record.value is not None
                world.history.place((partition.topic, partition.index), record.offset, record.value, "kept")
                latest[record.key] = max(latest.get(record.key, 0), world.history.writes[record.value].number)
            for write in world.history.writes.values():
                if write.partition != (partition.topic, partition.index) or write.offset is None:
                    continue
                if latest.get(write.key, 0) < write.number:
                    raise Violation(21, "compaction", f"{write.value!r}, the last of {write.key!r}, is gone")
