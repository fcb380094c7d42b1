"""The target assignment of a group: computed slice by slice, then written piece by piece.

Small groups see none of that: their target is computed and written within the request that asked for it. In a large
group the pieces are spread over ticks, and the record with the new epoch comes last. Until then members stay with the
old epoch, so that none follows half a target; and as it is ownership that decides who may have a partition, pieces of
two targets side by side give nobody what another still has.
"""

from collections.abc import Container

from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group import consumer_records
from penstock.coordinator.group.assignors import ASSIGNORS, Partitions
from penstock.coordinator.group.consumer_change import Change
from penstock.coordinator.group.consumer_state import ConsumerGroup

SLICES_PER_CALL = 2
RECORDS_PER_CALL = 100


class TargetWork:
    __slots__ = ("_assigning", "_queue", "_renamed", "assignment", "epoch")

    def __init__(self, epoch: int, change: Change, assignor: str) -> None:
        self.epoch = epoch
        self.assignment: dict[str, Partitions] | None = None
        self._assigning = ASSIGNORS[assignor](change.spec())
        self._queue: list[str] = []
        # Static members that came back under a new id meanwhile.
        self._renamed: dict[str, str] = {}

    def rename(self, old_member_id: str, new_member_id: str) -> None:
        self._renamed[old_member_id] = new_member_id

    def assign(self, slices: int | None = SLICES_PER_CALL) -> bool:
        """Works on; whether the assignment is there. Without a limit it always is."""
        while self.assignment is None and slices != 0:
            try:
                next(self._assigning)
            except StopIteration as stop:
                assignment: dict[str, Partitions] = stop.value
                self.assignment = assignment
                self._queue = list(reversed(assignment))
            if slices is not None:
                slices -= 1
        return self.assignment is not None

    def next_records(
        self, group: ConsumerGroup, members: Container[str], now_ms: int, limit: int | None = RECORDS_PER_CALL
    ) -> tuple[list[CoordinatorRecord], bool]:
        """The next records to append, and whether they are the last. `members` are those in the group by now."""
        assert self.assignment is not None
        records: list[CoordinatorRecord] = []
        while self._queue and (limit is None or len(records) < limit):
            assigned_id = self._queue.pop()
            member_id = self._current_id(assigned_id)
            partitions = self.assignment[assigned_id]
            if member_id in members and group.target.get(member_id) != partitions:
                records.append(consumer_records.target_assignment(group.group_id, member_id, partitions))
        if self._queue:
            return records, False
        records.append(consumer_records.target_epoch(group.group_id, self.epoch, now_ms))
        return records, True

    def _current_id(self, member_id: str) -> str:
        while member_id in self._renamed:
            member_id = self._renamed[member_id]
        return member_id
