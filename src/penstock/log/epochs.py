"""Which leader wrote which offsets: the leader-epoch-checkpoint of a partition (KIP-101, KIP-279).

A line of the file is `epoch start_offset`; epochs and offsets both rise. It tells a follower, or a consumer that was
away for long, where its log and the leader's part ways.
"""

from bisect import bisect_right

from penstock.log.checkpoints import format_checkpoint, parse_checkpoint

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class EpochCache:
    __slots__ = ("_epochs", "_start_offsets", "has_changed")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._start_offsets: list[int] = []
        # Whether it says something else than its file.
        self.has_changed = False

    @classmethod
    def parse(cls, data: bytes, path: str) -> "EpochCache":
        cache = cls()
        for epoch, start_offset in parse_checkpoint(data, path, (int, int)):
            cache.assign(epoch, start_offset)
        cache.has_changed = False
        return cache

    def format(self) -> bytes:
        return format_checkpoint(self.entries())

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._start_offsets, strict=True))

    @property
    def latest(self) -> int:
        return self._epochs[-1] if self._epochs else UNDEFINED_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Notes that `epoch` begins at `start_offset`, dropping entries that contradict it."""
        if self._epochs and self._epochs[-1] == epoch and self._start_offsets[-1] <= start_offset:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.has_changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(the largest epoch not above `epoch`, the offset where it ended); (-1, -1) when nothing is known."""
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == len(self._epochs):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        # Below everything known: the data is gone, and the follower goes on from where ours begins.
        floor_epoch = self._epochs[above - 1] if above else epoch
        return floor_epoch, self._start_offsets[above]

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 when it is not known."""
        slot = bisect_right(self._start_offsets, offset) - 1
        return self._epochs[slot] if slot >= 0 else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drops the epochs that begin at or beyond `end_offset`."""
        while self._epochs and self._start_offsets[-1] >= end_offset:
            self._epochs.pop()
            self._start_offsets.pop()
            self.has_changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: so does the epoch that wrote it."""
        slot = bisect_right(self._start_offsets, start_offset) - 1
        if slot < 0 or (slot == 0 and self._start_offsets[0] == start_offset):
            return
        del self._epochs[:slot]
        del self._start_offsets[:slot]
        self._start_offsets[0] = start_offset
        self.has_changed = True
