"""The invariants, each a function with its number, on histories and on what the nodes hold in the end.

Where each is looked after, by the numbers of the reliability page:
1 readable        `check_acknowledged_is_readable`, and every reader: no gap, no end before what was read
2 one record      `History.place`: acknowledged, read and kept
3 identical       `check_replicas_are_identical`
4 high watermark  `Observer._check_leader`; readers hold every answer against it
5 one leader      `Observer._check_leader`. That a stale epoch is refused is not asked for as such.
6, 7, 8           `Observer._check_controller`, `_check_leader`, `_watch_truncations`
9 indexes         `check_indexes`, after torn writes. No bits rot here yet.
10 once           `check_appended_once`, and producers, which send acknowledged batches again
11, 12, 14, 15    `Observer._check_quorum`, `_check_vote_was_kept`, `_check_isolation`, `_check_metadata`. That what is
                  committed is on a majority's disks shows when all of them lose their power.
13 snapshots      `check_images`
16, 17 groups     `Ownership`, `Member._committed_offset`
18 all or nothing `check_transactions`, `TransactionalProducer._check_offset`
19 one outcome    `check_markers`
20 stable offset  readers; `is_settled`, since only a log without open transactions can be read to its end
21 compaction     `check_compaction`
"""

from typing import TYPE_CHECKING

from penstock.cluster.metadata.snapshot import snapshot_records
from penstock.cluster.partition.partition import Partition
from penstock.log.end_marker import read_end_marker
from penstock.protocol.batch import HEADER_BYTES, read_header
from tests.simulation.client import batches_of, records_of
from tests.simulation.history import ABORTED, COMMITTED, Violation

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
    check_acknowledged_is_readable(world)
    check_appended_once(world)
    check_replicas_are_identical(world)
    check_indexes(world)
    check_images(world)
    check_transactions(world)
    check_markers(world)
    check_compaction(world)


def log_bytes(partition: Partition) -> bytes:
    log = partition.log
    offset, end = log.log_start_offset, log.log_end_offset
    data = bytearray()
    while offset < end:
        found = log.read(offset, 1 << 20, end, at_least_one=True)
        if found is None:
            break
        chunk = found.file.read(found.position, found.length)
        data += chunk
        for header, _ in batches_of(chunk):
            offset = header.last_offset + 1
    return bytes(data)


def check_acknowledged_is_readable(world: "SimulatedWorld") -> None:
    """1: every acks=all record that was acknowledged is readable, once, at its offset."""
    found = {reader.key: reader.found for reader in world.readers}
    for write in world.history.writes.values():
        if write.acks != -1 or write.offset is None or write.partition not in found or write.transaction is not None:
            continue
        if write.partition[0] in world.history.compacted_topics:
            continue
        value = found[write.partition].get(write.offset)
        if value != write.value:
            raise Violation(
                1,
                "readable",
                f"{write.value!r} was acknowledged at {write.partition} {write.offset}; there is {value!r}",
            )


def check_appended_once(world: "SimulatedWorld") -> None:
    """10: no value twice; those of one producer in their order."""
    for reader in world.readers:
        places: dict[bytes, int] = {}
        last: dict[str, int] = {}
        for offset, value in sorted(reader.found.items()):
            if value in places:
                raise Violation(10, "appended once", f"{value!r} at {places[value]} and {offset} of {reader.key}")
            places[value] = offset
            write = world.history.writes[value]
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
                if log_bytes(theirs) != mine:
                    raise Violation(
                        3, "identical replicas", f"{partition.name} on nodes {broker.node_id} and {other.node_id}"
                    )


def check_indexes(world: "SimulatedWorld") -> None:
    """9: looking an offset up leads to the batch that a scan finds, and every batch has its checksum."""
    for broker in world.cluster.brokers():
        for partition in broker.hosting:
            expected = partition.log.log_start_offset
            for header, _ in batches_of(log_bytes(partition)):
                found = partition.log.read(header.base_offset, 1, header.last_offset + 1, at_least_one=True)
                at = None if found is None else read_header(found.file.read(found.position, HEADER_BYTES)).base_offset
                is_dense = partition.config.is_compacted or header.base_offset <= expected
                if at != header.base_offset or not is_dense:
                    raise Violation(9, "indexes", f"{partition.name} on {broker.node_id}: {header.base_offset} is {at}")
                expected = header.last_offset + 1


def check_images(world: "SimulatedWorld") -> None:
    """13: however a node came by its metadata, by snapshots or by replaying all, it is the same."""
    images = {broker.node_id: list(snapshot_records(broker.image)) for broker in world.cluster.brokers()}
    for node_id, records in images.items():
        if sorted(map(repr, records)) != sorted(map(repr, next(iter(images.values())))):
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
            for header, batch in batches_of(log_bytes(partition)) if partition.leader is not None else ():
                key = (header.producer_id, header.producer_epoch)
                marker = read_end_marker(batch, header) if header.is_control else None
                if marker is None:
                    last.pop(key, None)
                elif last.setdefault(key, marker.is_abort) != marker.is_abort:
                    raise Violation(
                        19, "one outcome", f"{partition.name}: {key} ended both ways, at {header.base_offset}"
                    )


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
