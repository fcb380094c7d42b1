"""The segment that compaction writes, under its `.cleaned` names.

As long as everything stays as it is in the one segment that is read, nothing is written: most of a log that was
compacted before comes through unchanged, and then keeps its files.
"""

from penstock.base.ports import Bytes, Disk, File
from penstock.log import swapping
from penstock.log.config import LogConfig
from penstock.log.loading import CLEANED_SUFFIX
from penstock.log.segment import Segment
from penstock.log.transaction_index import AbortedTransaction
from penstock.protocol.batch import NO_TIMESTAMP, BatchHeader, read_header

_COPY_BYTES = 1 << 20


class CleanedSegment:
    def __init__(self, disk: Disk, directory: str, base_offset: int, config: LogConfig) -> None:
        # What an earlier attempt left.
        swapping.discard(disk, directory, base_offset)
        self._segment = Segment(disk, directory, base_offset, config, 0, file_suffix=CLEANED_SUFFIX)
        self._segment.start_empty()
        self._parts: list[Bytes] = []
        # The source, as long as what was taken over is its unchanged beginning.
        self._same_as: File | None = None
        self.size = 0
        self._is_begun = False

    @property
    def is_same(self) -> bool:
        """Whether all that there is of it is one source, unchanged."""
        return self._same_as is not None

    def begin_source(self, file: File) -> None:
        if self._is_begun:
            self._part_ways()
        else:
            self._same_as = file
            self._is_begun = True

    def keep(self, batch: memoryview, header: BatchHeader) -> None:
        if self._same_as is None:
            self._parts.append(batch)
        self._note(header)

    def change(self, batch: bytearray | None) -> None:
        """A batch that takes the place of the next one of the source, or None for nothing."""
        self._part_ways()
        if batch is not None:
            self._parts.append(batch)
            self._note(read_header(batch))

    def _note(self, header: BatchHeader) -> None:
        # Nobody looks for the time of a batch without records.
        timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP
        self._segment.note_batch(self.size, header.last_offset, timestamp)
        self.size += header.size

    def _part_ways(self) -> None:
        """From here on it differs from its source, whose beginning it takes over."""
        file, self._same_as = self._same_as, None
        if file is None:
            return
        position = 0
        while position < self.size:
            data = file.read(position, min(_COPY_BYTES, self.size - position))
            self._segment.file.append(data)
            position += len(data)

    def write(self) -> None:
        """Hands what was gathered to the disk."""
        if self._parts:
            self._segment.file.append(b"".join(self._parts))
            self._parts = []

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Everything that belongs to the segment is on the disk when this returns."""
        segment = self._segment
        segment.file.append(b"")
        segment.size = self.size
        segment.seal()
        for transaction in aborted:
            segment.transactions.append(transaction)
        for file in (segment.file, *segment.sealed_files()):
            file.sync()
            file.close()
