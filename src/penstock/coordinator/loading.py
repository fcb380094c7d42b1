"""Which records of a coordinator's log count: the last one of each key, as compaction would have it.

Most records of a busy log are overtaken by later ones, and decoding a record costs several times as much as finding it.
So a log is gone through as bytes first, and only what is left of it is decoded and replayed.

A record of a transaction counts once its end is noted. Of such a record and another one for the same key the one that
was written later counts, whenever the end comes. A tombstone counts at once, and nothing is left of what transactions
wrote before it.
"""

from collections.abc import Iterator

from penstock.coordinator.effects import NO_PRODUCER_ID

# Where it was written, and the value.
_Written = tuple[int, bytes | None]
_NOTHING: _Written = (-1, None)


class LatestRecords:
    def __init__(self) -> None:
        # The last one noted, or whose transaction ended last, is the last one here too.
        self._decided: dict[bytes, _Written] = {}
        self._undecided: dict[int, dict[bytes, _Written]] = {}
        self._position = 0

    def note(self, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """The next record of the log; `producer_id` is that of its batch where it is transactional."""
        self._position += 1
        if value is None:
            for records in self._undecided.values():
                records.pop(key, None)
        if producer_id == NO_PRODUCER_ID or value is None:
            self._decide(key, (self._position, value))
        else:
            self._undecided.setdefault(producer_id, {})[key] = (self._position, value)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        for key, written in self._undecided.pop(producer_id, {}).items():
            if is_committed and self._is_latest(key, written):
                self._decide(key, written)

    def _decide(self, key: bytes, written: _Written) -> None:
        self._decided.pop(key, None)
        self._decided[key] = written

    def _is_latest(self, key: bytes, written: _Written) -> bool:
        return written > self._decided.get(key, _NOTHING)

    def __iter__(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """Key, value and producer id (of a transaction that has not ended); of one key in the order of the log."""
        overtaking = []
        for written, key, producer_id in sorted(
            (written, key, producer_id)
            for producer_id, records in self._undecided.items()
            for key, written in records.items()
        ):
            if self._is_latest(key, written):
                overtaking.append((key, written[1], producer_id))
            else:
                yield key, written[1], producer_id
        for key, (_, value) in self._decided.items():
            yield key, value, NO_PRODUCER_ID
        yield from overtaking
