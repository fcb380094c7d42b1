"""What clients did and saw, as lines of JSON: the only thing that the checker is given.

Every line has `t` (seconds since the start) and `e` (what it is); the rest depends on that:

    sent       w writer, tp, s [first, last]              numbers of records that a writer is about to send
    acked      w, tp, s [...], o [...]                    numbers, and the offsets that they were given (or None)
    failed     w, tp, s [...], why                        perhaps there, perhaps not
    placed     w, n, tp, s [...], o [...]                 where records of a transaction went, so far as acknowledged
    txn        w, n, of [[tp, index], ...], out           its end: committed, aborted or unknown, and all its records
    topic      name, kind, source                         plain, transactional, or copies of the records of `source`
    start      r reader, iso, tp, o, g                    a reader takes up a partition at an offset; g: for a group
    poll       r, tp, o [...], v [...]                    offsets and values, in the order of the poll
    whole      r, tp                                      the reader has read all of it, when all writers were done
    commit     g group, tp, o                             an acknowledged commit, in a transaction or not
    committed  g, tp, o, began                            what the group was told of its offset
    fault      kind, node, what ...                       something is broken, until `over`
    over       kind
    converged  ms, after, last                            after healing: in sync, writing, last stable offset moving
    stuck      what, after_ms                             the same in vain
    copied     w, count, out                              a copier's transaction, for people
    note       who, what                                  a client's life ended, for people
    defect     node, what                                 something in a node's log that must never be there
    batches    tp, of [[offset, producer, epoch, sequence], ...]  what stands on a disk, at the end
    replicas   differ [tp, ...]                           at the end: logs that are not the same on all nodes

A value names its writer: `writer:number` for plain records, `writer:transaction:index` for those of transactions,
`partition:offset` for copies.
"""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Recorder:
    """Of one run. Any thread may write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", buffering=1 << 20)
        self._lock = threading.Lock()
        self._start_s = time.monotonic()
        # For who watches the run: acknowledged records, by partition.
        self.acknowledged: dict[str, int] = {}

    @property
    def now_s(self) -> float:
        return round(time.monotonic() - self._start_s, 4)

    def write(self, event: str, /, **fields: Any) -> None:
        line = json.dumps({"t": self.now_s, "e": event, **fields}, separators=(",", ":"))
        with self._lock:
            self._file.write(line + "\n")
            if event in ("acked", "placed"):
                tp = fields["tp"]
                self.acknowledged[tp] = self.acknowledged.get(tp, 0) + len(fields["s"])

    @property
    def acknowledged_count(self) -> int:
        with self._lock:
            return sum(self.acknowledged.values())

    def acknowledged_by_partition(self) -> dict[str, int]:
        with self._lock:
            return dict(self.acknowledged)

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_history(path: Path) -> Iterator[Event]:
    with path.open() as file:
        for line in file:
            yield json.loads(line)
