"""From the metadata log to whoever follows it: what is committed, in pieces between which others have a turn."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from penstock.broker.metadata_snapshots import metadata_records
from penstock.cluster.metadata.records import MetadataRecord
from penstock.cluster.raft.rpc import OffsetAndEpoch
from penstock.cluster.raft.stored_log import StoredRaftLog
from penstock.protocol.batch import HEADER_BYTES, BatchHeader, read_header

_READ_BYTES = 1 << 20
# Of a committed batch, before others have a turn: 10 to 20 ms.
RECORDS_OF_A_TURN = 500


class CommittedBatch(NamedTuple):
    base_offset: int
    records: list[MetadataRecord]


class MetadataListener(Protocol):
    """Who follows the metadata. Calls come from the event loop, in the order of the log."""

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, records: Iterator[list[MetadataRecord]]) -> None:
        """Everything there is now stands in these records; what was known before counts no more."""

    def gather(self) -> Sequence[MetadataRecord] | None:
        """Everything there is now, for a snapshot; None while a metadata transaction is under way."""

    def on_committed(self, batch: CommittedBatch) -> Iterator[None]:
        """Is gone through to the end before anything else is told; between its steps others have a turn."""

    def on_leader_changed(self, leader_id: int, epoch: int) -> None: ...
    def on_leading(self, epoch: int) -> None: ...
    def on_stopped_leading(self, epoch: int) -> None: ...


def committed_batches(log: StoredRaftLog, offset: int, high_watermark: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """From `offset` on; those of the quorum itself too."""
    while offset < high_watermark:
        data = memoryview(log.read(offset, _READ_BYTES))
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = read_header(data, position)
            if header.base_offset >= high_watermark:
                return
            yield header, data[position : position + header.size]
            offset = header.last_offset + 1
            position += header.size
        if not position:
            return


def hand_on(header: BatchHeader, batch: memoryview, listener: MetadataListener) -> Iterator[None]:
    """Tells the listener of a batch that is not the quorum's own."""
    records: list[MetadataRecord] = []
    for record in metadata_records(batch, header):
        records.append(record)
        if len(records) % RECORDS_OF_A_TURN == 0:
            yield
    yield from listener.on_committed(CommittedBatch(header.base_offset, records))
