"""What `guided` fuzzes.

`requests`: from a frame to its decoded request; nothing but Malformed may be raised. `batches`: what a producer sends
is taken or refused; where a topic has its batches opened, what was taken can be read again.
"""

import struct
from collections.abc import Callable

from crc32c import crc32c

from penstock.base.errors import ErrorCode
from penstock.broker.router import APIS
from penstock.log.config import LogConfig
from penstock.protocol.batch import CODEC_MASK, HEADER_BYTES, read_header
from penstock.protocol.compression import CODEC_NAMES, NONE
from penstock.protocol.fetch import decode_fetch_request
from penstock.protocol.frames import HEADER, body_position, is_flexible
from penstock.protocol.frames import HEADER_BYTES as REQUEST_HEADER_BYTES
from penstock.protocol.messages import Malformed, decode_request
from penstock.protocol.offset_commit import FLEXIBLE_FROM, read_commit_request
from penstock.protocol.produce import decode_produce_request
from penstock.protocol.records import Record, build_batch, iterate_records
from penstock.testing.sim_disk import SimDisk
from tests.fuzz.corpus import recorded_frames
from tests.unit.partition.made import NOW_MS, make_partition

_PRODUCE, _FETCH, _OFFSET_COMMIT = 0, 1, 8
_PRODUCE_VERSION = 12
_COMPACTED, _RECOMPRESSED = LogConfig(cleanup_policy=("compact",)), LogConfig(compression_type="gzip")
_versions = {api.key: range(api.version_min, api.version_max + 1) for api in APIS}


def requests(data: bytes) -> None:
    if len(data) < REQUEST_HEADER_BYTES:
        return
    api_key, version, _, client_id_bytes = HEADER.unpack_from(data)
    if version not in _versions.get(api_key, ()):
        return
    frame = memoryview(bytearray(data))
    try:
        position = body_position(frame, client_id_bytes, is_flexible(api_key, version))
        if api_key == _PRODUCE:
            decode_produce_request(version, frame, position)
        elif api_key == _FETCH:
            decode_fetch_request(version, frame, position)
        elif api_key == _OFFSET_COMMIT and version >= FLEXIBLE_FROM:
            read_commit_request(version, frame, position)
        else:
            decode_request(api_key, version, frame, position)
    except Malformed:
        return


def batches(data: bytes) -> None:
    if not data:
        return
    # The first byte says which topic it is for, and whether length and checksum are made right: what guesses at bytes
    # would hardly ever guess those.
    choice, batch = data[0], bytearray(data[1:])
    if choice & 1 and len(batch) >= HEADER_BYTES:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    config = (LogConfig(), _COMPACTED, _RECOMPRESSED)[choice // 2 % 3]
    partition = make_partition(SimDisk(), config)
    answer = partition.append(memoryview(batch), 1, _PRODUCE_VERSION, NOW_MS)
    assert answer.error_code != ErrorCode.unknown_server_error
    found = partition.log.read(0, 1 << 20, partition.log.log_end_offset)
    assert (found is None) == bool(answer.error_code)
    if found is not None:
        kept = found.file.read(found.position, found.length)
        header = read_header(kept)
        assert header.size == len(kept)
        if config.is_compacted and header.attributes & CODEC_MASK == NONE:
            assert len(list(iterate_records(memoryview(kept), header))) == header.record_count


def corpus_of(target: str) -> list[bytes]:
    if target == "requests":
        return [frame for _, frame in recorded_frames()]
    records = [Record(index, NOW_MS, b"key", b"value " * index) for index in range(3)]
    return [
        bytes([choice]) + build_batch(records, codec=codec) for codec in range(len(CODEC_NAMES)) for choice in range(6)
    ]


TARGETS: dict[str, Callable[[bytes], None]] = {"requests": requests, "batches": batches}
