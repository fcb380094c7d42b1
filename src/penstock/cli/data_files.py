"""What the files of a data directory say, as plain rows: segments, indexes, snapshots, checkpoints. Bytes in, data out.

A row of a segment is a batch; `problem` says what is wrong with it, and nothing after a batch that does not hold
together can be trusted, so there the walk ends.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any, BinaryIO

from penstock.log.checkpoints import (
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    META_PROPERTIES_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINTS_FILE,
    BadCheckpoint,
    format_topic_id,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from penstock.log.epochs import FILE_NAME as LEADER_EPOCHS_FILE
from penstock.log.epochs import EpochCache
from penstock.log.index import OFFSET_ENTRY, TIME_ENTRY
from penstock.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from penstock.log.transaction_index import ENTRY as TRANSACTION_ENTRY
from penstock.protocol.batch import HEADER_BYTES, LOG_APPEND_TIME, MAGIC, BatchHeader, crc_is_valid, read_header
from penstock.protocol.compression import CODEC_NAMES

# Far beyond any batch a broker accepts: a length above it is damage, not data.
BATCH_BYTES_MAX = 1 << 30

Row = dict[str, Any]


class Unreadable(ValueError):
    """The file does not hold what its name says."""


@dataclass(frozen=True)
class Batch:
    position: int
    header: BatchHeader
    data: bytes
    problem: str | None

    def row(self) -> Row:
        header = self.header
        row = {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "position": self.position,
            "size": header.size,
            "codec": CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else f"codec {header.codec}",
            "timestamp_type": "LogAppendTime" if header.attributes & LOG_APPEND_TIME else "CreateTime",
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "leader_epoch": header.leader_epoch,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "crc": header.crc,
        }
        return row | {"problem": self.problem}


def read_batches(file: BinaryIO) -> Iterator[Batch]:
    """Every batch of a segment, checked, without holding more than one in memory."""
    position = 0
    while True:
        head = file.read(HEADER_BYTES)
        if not head:
            return
        if len(head) < HEADER_BYTES:
            raise Unreadable(f"{len(head)} bytes at position {position} are too few for a batch: a torn tail")
        header = read_header(head)
        if not HEADER_BYTES <= header.size <= BATCH_BYTES_MAX or header.magic != MAGIC:
            raise Unreadable(
                f"no batch begins at position {position} (magic {header.magic}, length {header.batch_length})"
            )
        data = head + file.read(header.size - HEADER_BYTES)
        if len(data) < header.size:
            raise Unreadable(f"the batch at position {position} is torn: {len(data)} of {header.size} bytes are there")
        problem = None if crc_is_valid(data, header) else "wrong checksum"
        yield Batch(position, header, data, problem)
        position += header.size


def index_rows(path: PurePath, data: bytes) -> list[Row]:
    base_offset = _base_offset(path)
    if len(data) % OFFSET_ENTRY.size:
        raise Unreadable(f"its {len(data)} bytes are no whole number of {OFFSET_ENTRY.size}-byte entries")
    entries = [entry for entry in OFFSET_ENTRY.iter_unpack(data) if entry != (0, 0)]
    _must_rise([offset for offset, _ in entries], "offsets")
    return [{"offset": base_offset + offset, "position": position} for offset, position in entries]


def time_index_rows(path: PurePath, data: bytes) -> list[Row]:
    base_offset = _base_offset(path)
    if len(data) % TIME_ENTRY.size:
        raise Unreadable(f"its {len(data)} bytes are no whole number of {TIME_ENTRY.size}-byte entries")
    # Kafka's own active segments have room for entries to come: zeros.
    entries = [entry for entry in TIME_ENTRY.iter_unpack(data) if entry != (0, 0)]
    _must_rise([timestamp for timestamp, _ in entries], "timestamps")
    return [{"timestamp": timestamp, "offset": base_offset + offset} for timestamp, offset in entries]


def transaction_index_rows(path: PurePath, data: bytes) -> list[Row]:
    if len(data) % TRANSACTION_ENTRY.size:
        raise Unreadable(f"its {len(data)} bytes are no whole number of {TRANSACTION_ENTRY.size}-byte entries")
    names = ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset")
    return [dict(zip(names, entry, strict=True)) for entry in TRANSACTION_ENTRY.iter_unpack(data)]


def snapshot_rows(path: PurePath, data: bytes) -> list[Row]:
    try:
        producers = decode_snapshot(data)
    except CorruptSnapshot as error:
        raise Unreadable(str(error)) from error
    rows = []
    for producer_id, producer in producers.items():
        last = producer.batches[-1] if producer.batches else None
        rows.append(
            {
                "producer_id": producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": last.last_sequence if last else None,
                "last_offset": last.last_offset if last else None,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "transaction_first_offset": producer.transaction_first_offset,
            }
        )
    return rows


def offsets_rows(path: PurePath, data: bytes) -> list[Row]:
    offsets = parse_offsets(data, path.name)
    return [{"topic": topic, "partition": number, "offset": offset} for (topic, number), offset in offsets.items()]


def leader_epochs_rows(path: PurePath, data: bytes) -> list[Row]:
    return [{"epoch": epoch, "start_offset": start} for epoch, start in EpochCache.parse(data, path.name).entries()]


def partition_metadata_rows(path: PurePath, data: bytes) -> list[Row]:
    return [{"topic_id": format_topic_id(parse_partition_metadata(data, path.name))}]


def meta_properties_rows(path: PurePath, data: bytes) -> list[Row]:
    meta = parse_meta_properties(data, path.name)
    return [{"cluster_id": meta.cluster_id, "node_id": meta.node_id, "directory_id": meta.directory_id}]


_BY_SUFFIX: dict[str, Callable[[PurePath, bytes], list[Row]]] = {
    ".index": index_rows,
    ".timeindex": time_index_rows,
    ".txnindex": transaction_index_rows,
    ".snapshot": snapshot_rows,
}
_BY_NAME: dict[str, Callable[[PurePath, bytes], list[Row]]] = {
    RECOVERY_POINTS_FILE: offsets_rows,
    LOG_START_OFFSETS_FILE: offsets_rows,
    HIGH_WATERMARKS_FILE: offsets_rows,
    LEADER_EPOCHS_FILE: leader_epochs_rows,
    PARTITION_METADATA_FILE: partition_metadata_rows,
    META_PROPERTIES_FILE: meta_properties_rows,
}
SEGMENT_SUFFIX = ".log"


def is_segment(path: PurePath) -> bool:
    return path.suffix == SEGMENT_SUFFIX and path.stem.isdigit()


def is_known(path: PurePath) -> bool:
    return is_segment(path) or path.name in _BY_NAME or (path.suffix in _BY_SUFFIX and path.stem.isdigit())


def small_file_rows(path: PurePath, data: bytes) -> list[Row]:
    """The rows of any known file but a segment. Raises Unreadable."""
    read = _BY_NAME.get(path.name) or _BY_SUFFIX[path.suffix]
    try:
        return read(path, data)
    except BadCheckpoint as error:
        raise Unreadable(str(error)) from error


def _base_offset(path: PurePath) -> int:
    return int(path.stem)


def _must_rise(numbers: list[int], what: str) -> None:
    for before, after in pairwise(numbers):
        if after <= before:
            raise Unreadable(f"its {what} do not rise: {after} comes after {before}")
