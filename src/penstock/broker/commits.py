"""When what was appended is committed: on the disk where this node is the only replica, with all replicas that are in
sync where it is not.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError
from penstock.cluster.partition.partition import Partition

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

# Told once, of each partition that was asked for.
Done = Callable[[dict[Partition, ErrorCode]], None]


class Commits:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def is_due(self, partition: Partition) -> bool:
        """Whether what was just appended is not committed as it is."""
        return partition.leader is not None or partition.must_sync

    def when_committed(self, partitions: Sequence[Partition], timeout_ms: int | None, done: Done) -> None:
        """Calls `done` when everything appended so far to each of the partitions is committed or has failed, perhaps at
        once; after the time, REQUEST_TIMED_OUT stands for what is still undecided."""
        _Wait(self._broker, partitions, timeout_ms, done)


class _Wait:
    __slots__ = ("_done", "_outcome", "_timer", "_undecided")

    def __init__(self, broker: "Broker", partitions: Sequence[Partition], timeout_ms: int | None, done: Done) -> None:
        self._done = done
        self._outcome: dict[Partition, ErrorCode] = {}
        self._undecided = dict.fromkeys(partitions)
        self._timer: asyncio.TimerHandle | None = None
        alone = [partition for partition in partitions if partition.leader is None]
        if alone:
            self._sync(broker, alone)
        for partition in partitions:
            if partition.leader is not None:
                broker.replication.when_replicated(partition, self._replicated(partition))
        if self._undecided and timeout_ms is not None and len(alone) < len(partitions):
            self._timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, self._time_out)

    def _replicated(self, partition: Partition) -> Callable[[ErrorCode], None]:
        return lambda error: self._decide(partition, error)

    def _sync(self, broker: "Broker", partitions: Sequence[Partition]) -> None:
        flushes = [(partition, partition.log.flush()) for partition in partitions]

        def synced(problem: DiskError | None) -> None:
            for partition, flush in flushes:
                if problem is None:
                    partition.log.mark_flushed(flush)
                    self._decide(partition, ErrorCode.none)
                else:
                    # After a failed fsync nobody knows what the disk has: no more writes here until recovery.
                    partition.has_failed = True
                    self._decide(partition, ErrorCode.kafka_storage_error)

        broker.group_commit.submit([file for _, flush in flushes for file in flush.files], synced)

    def _decide(self, partition: Partition, error: ErrorCode) -> None:
        if partition not in self._undecided:
            return
        del self._undecided[partition]
        self._outcome[partition] = error
        if not self._undecided:
            if self._timer is not None:
                self._timer.cancel()
            self._done(self._outcome)

    def _time_out(self) -> None:
        for partition in tuple(self._undecided):
            self._decide(partition, ErrorCode.request_timed_out)
