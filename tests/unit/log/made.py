"""Batches and logs for the tests of this room, and a reader that checks files as Kafka's DumpLogSegments does."""

from collections.abc import Sequence

from penstock.base.ports import Disk
from penstock.log.config import LogConfig
from penstock.log.index import OFFSET_ENTRY, TIME_ENTRY
from penstock.log.log import Log
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader, crc_is_valid, read_header
from penstock.protocol.records import Record, build_batch, iterate_records

NOW_MS = 1_700_000_000_000
DIRECTORY = "orders-0"


def open_log(
    disk: Disk,
    config: LogConfig | None = None,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = NOW_MS,
) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        config or LogConfig(),
        topic_id=None,
        recovery_point=recovery_point,
        clean=clean,
        log_start_offset=log_start_offset,
        now_ms=now_ms,
    )


def make_batch(
    timestamps: Sequence[int] = (NOW_MS,),
    value_bytes: int = 10,
    *,
    base_offset: int = 0,
    codec: int = 0,
    leader_epoch: int = -1,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytearray:
    """`producer` is (producer id, epoch, base sequence)."""
    records = [
        Record(base_offset + delta, timestamp, b"key", bytes(value_bytes)) for delta, timestamp in enumerate(timestamps)
    ]
    producer_id, producer_epoch, base_sequence = producer
    return build_batch(
        records,
        codec=codec,
        attributes=TRANSACTIONAL if transactional else 0,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def make_marker(
    producer_id: int, epoch: int, *, abort: bool, timestamp: int = NOW_MS, coordinator: int = 3
) -> bytearray:
    key = b"\0\0\0\0" if abort else b"\0\0\0\1"
    record = Record(0, timestamp, key, b"\0\0" + coordinator.to_bytes(4, "big"))
    return build_batch([record], attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=epoch)


def append(log: Log, batch: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> int:
    return log.append(batch, read_header(batch), leader_epoch, now_ms)


def batches_in(data: bytes) -> list[tuple[int, BatchHeader]]:
    """(position, header) of every batch; all must be whole and valid."""
    found = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        assert position + header.size <= len(data)
        assert crc_is_valid(data, header, position)
        found.append((position, header))
        position += header.size
    return found


def file_bytes(disk: Disk, suffix: str = ".log") -> dict[str, bytes]:
    names = [name for name in disk.list(DIRECTORY) if name.endswith(suffix)]
    return {name: disk.read_file(f"{DIRECTORY}/{name}") for name in names}


def read_everything(log: Log) -> bytes:
    """All batches from the start, as a consumer would get them."""
    data = bytearray()
    offset = log.log_start_offset
    while (found := log.read(offset, 1 << 30, log.log_end_offset)) is not None:
        chunk = found.file.read(found.position, found.length)
        data += chunk
        offset = batches_in(chunk)[-1][1].last_offset + 1
    return bytes(data)


def complaints_about_indexes(disk: Disk) -> list[str]:
    """What DumpLogSegments would find wrong in the closed log's indexes."""
    complaints = []
    for name, data in file_bytes(disk, ".log").items():
        stem = f"{DIRECTORY}/{name.removesuffix('.log')}"
        base_offset = int(name[:20])
        batches = batches_in(data)
        if not disk.exists(stem + ".index"):
            # A log that is smaller than the distance between two entries has no files beside it.
            assert len(file_bytes(disk)) == 1
            continue
        by_position = dict(batches)
        by_last_offset = {header.last_offset: (position, header) for position, header in batches}
        for relative, position in OFFSET_ENTRY.iter_unpack(disk.read_file(stem + ".index")):
            if position not in by_position or by_position[position].last_offset != base_offset + relative:
                complaints.append(f"{stem}.index: {base_offset + relative} at {position}")
        previous = -1
        for timestamp, relative in TIME_ENTRY.iter_unpack(disk.read_file(stem + ".timeindex")):
            found = by_last_offset.get(base_offset + relative)
            if found is None:
                complaints.append(f"{stem}.timeindex: no batch ends at {base_offset + relative}")
                continue
            position, header = found
            records = iterate_records(data[position : position + header.size], header)
            if max(record.timestamp for record in records) != timestamp or timestamp <= previous:
                complaints.append(f"{stem}.timeindex: {timestamp} at {base_offset + relative}")
            previous = timestamp
        # Of batches with records: one that compaction has emptied keeps its timestamp, but nobody looks for it.
        largest = max((header.max_timestamp for _, header in batches if header.record_count), default=-1)
        if largest != previous:
            complaints.append(f"{stem}.timeindex ends with {previous}, not with {largest}")
    return complaints
