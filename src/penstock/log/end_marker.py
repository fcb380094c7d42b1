"""The end marker of a transaction: a control batch of one record, in Kafka's bytes.

key     version int16 (0), kind int16 (0 abort, 1 commit)
value   version int16 (0), epoch of the coordinator that decided int32
"""

from struct import Struct
from struct import error as struct_error
from typing import NamedTuple

from penstock.base.ports import Bytes
from penstock.protocol.batch import CONTROL, TRANSACTIONAL, BatchHeader
from penstock.protocol.records import Record, build_batch, iterate_records

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class EndMarker(NamedTuple):
    is_abort: bool
    coordinator_epoch: int


def read_end_marker(batch: Bytes, header: BatchHeader) -> EndMarker | None:
    """The marker in a control batch; None when it is none that ends a transaction (a leader change, an emptied batch).
    Raises CorruptRecords."""
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
    key = _KEY.pack(_VERSION, _ABORT if marker.is_abort else _COMMIT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(0, now_ms, key, value)],
        attributes=TRANSACTIONAL | CONTROL,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
