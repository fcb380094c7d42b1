"""The end marker of a transaction: a control batch of one record, in Kafka's bytes.

key     version int16 (0), kind int16 (0 abort, 1 commit)
value   version int16 (0), epoch of the coordinator that decided int32
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.base.ports import Bytes
from penstock.protocol.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, encode_batch
from penstock.protocol.records import iterate_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1

# The record as brokers write it, all of it: what comes before the key (length 16, attributes, timestamp and offset
# deltas, length of the key), the key, the length of the value, the value, the number of headers.
_RECORD = Struct(">5shhbhib")
_OPENING, _VALUE_LENGTH, _NO_HEADERS = b"\x20\0\0\0\x08", 12, 0
_BATCH_BYTES = HEADER_BYTES + _RECORD.size


class EndMarker(NamedTuple):
    is_abort: bool
    coordinator_epoch: int


def read_end_marker(batch: Bytes, header: BatchHeader) -> EndMarker | None:
    """The marker in a control batch; None when it is none that ends a transaction (a leader change, an emptied batch).
    Raises CorruptRecords."""
    if header.size == _BATCH_BYTES and header.record_count == 1 and not header.codec:
        opening, _, kind, value_length, _, coordinator_epoch, headers = _RECORD.unpack_from(batch, HEADER_BYTES)
        if (opening, value_length, headers) == (_OPENING, _VALUE_LENGTH, _NO_HEADERS) and kind in (_ABORT, _COMMIT):
            return EndMarker(kind == _ABORT, coordinator_epoch)
    for record in iterate_records(batch, header):
        try:
            _, kind = _KEY.unpack_from(record.key or b"")
            if kind in (_ABORT, _COMMIT):
                _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
                return EndMarker(kind == _ABORT, coordinator_epoch)
        except struct_error:
            pass
        return None
    return None


def encode_end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, now_ms: int) -> bytearray:
    kind = _ABORT if marker.is_abort else _COMMIT
    return encode_batch(
        _RECORD.pack(_OPENING, _VERSION, kind, _VALUE_LENGTH, _VERSION, marker.coordinator_epoch, _NO_HEADERS),
        record_count=1,
        attributes=TRANSACTIONAL | CONTROL,
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
