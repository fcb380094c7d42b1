"""How a group of the new protocol moves on: subscriptions to group epoch, group epoch to target, target to members.

Each step writes what it decides as records. What takes long (matching regular expressions against all topics,
assigning thousands of partitions) is begun within the request that asks for it and, where it does not end there, goes
on in ticks; the group stays in its old epoch until it has ended.
"""

from typing import NamedTuple

from penstock.coordinator.effects import Append, CoordinatorRecord, Effect
from penstock.coordinator.group import consumer_records
from penstock.coordinator.group.assignors import ASSIGNORS, Partitions
from penstock.coordinator.group.consumer_change import Change
from penstock.coordinator.group.consumer_state import ConsumerGroup, ConsumerMember, ResolvedRegex
from penstock.coordinator.group.reconciliation import Goal, Owned, reconcile
from penstock.coordinator.group.regex_work import Patterns, RegexWork
from penstock.coordinator.group.state import ShardState
from penstock.coordinator.group.target import TargetWork

# Topics come and go; a group's expressions are matched anew at most this often.
REGEX_REFRESH_INTERVAL_MS = 1000


class Step(NamedTuple):
    """A member's request on its way: what the member was, what it says it is, and the records so far."""

    group: ConsumerGroup
    old: ConsumerMember
    member: ConsumerMember
    replaced: ConsumerMember | None
    """The static member whose place it takes under another id."""
    owned: Owned | None
    records: list[CoordinatorRecord]

    def change(self) -> Change:
        known = self.group.members.get(self.member.member_id)
        removed = [member for member in (known, self.replaced) if member is not None]
        return Change(self.group, removed, self.member)


class _RegexOutcome(NamedTuple):
    has_updated: bool
    """The member has another expression than before."""
    needs_new_epoch: bool


class Progress:
    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._patterns = Patterns()
        self._targets: dict[str, TargetWork] = {}
        self._regexes: dict[str, RegexWork] = {}
        # When each group's expressions were last matched, and against which topics.
        self._regex_checks: dict[str, tuple[int, int]] = {}
        self._changed_ms: dict[str, int] = {}
        # When each group is to be worked on next.
        self._work_at_ms: dict[str, int] = {}

    def changed_ms(self, group_id: str) -> int | None:
        """When the group last got a new epoch, as far as this coordinator saw it."""
        return self._changed_ms.get(group_id)

    def forget(self, group_id: str) -> None:
        self._targets.pop(group_id, None)
        self._regexes.pop(group_id, None)
        self._regex_checks.pop(group_id, None)
        self._changed_ms.pop(group_id, None)
        self._work_at_ms.pop(group_id, None)
        self._state.timers.cancel(("consumer work", group_id))

    def rename(self, group_id: str, old_member_id: str, new_member_id: str) -> None:
        if (work := self._targets.get(group_id)) is not None:
            work.rename(old_member_id, new_member_id)

    # Within a request

    def advance(self, step: Step, now_ms: int) -> ConsumerMember:
        """The member as far as it gets now; everything decided is in the step's records. Raises Refused."""
        change = step.change()
        has_new_subscription, epoch = self.subscribe(step, change, now_ms)
        target_epoch, target = self._target(step, change, epoch, now_ms)
        return self.reconcile(step, change, has_new_subscription, target_epoch, target)

    def subscribe(self, step: Step, change: Change, now_ms: int) -> tuple[bool, int]:
        """Whether the member subscribes to something else than before, and the group's epoch after that."""
        group, topics_version = step.group, self._state.topics.version
        regex = self._follow_regex(step, change, now_ms)
        if step.member != step.old:
            step.records.append(consumer_records.member(group.group_id, step.member))
        has_new_names = step.member.topic_names != step.old.topic_names
        # No member can be in epoch 0, which stands for joining: a new group leaves it even if it has no topics yet.
        is_new = has_new_names or regex.needs_new_epoch or group.epoch == 0
        epoch = group.epoch
        if is_new or group.checked_topics_version != topics_version:
            metadata_hash = change.metadata_hash()
            if is_new or metadata_hash != group.metadata_hash:
                epoch += 1
                step.records.append(self.new_epoch(group, metadata_hash, now_ms))
            if group.has_partition_metadata_record:
                step.records.append(consumer_records.partition_metadata_tombstone(group.group_id))
            group.checked_topics_version = topics_version
        return has_new_names or regex.has_updated, epoch

    def new_epoch(self, group: ConsumerGroup, metadata_hash: int, now_ms: int) -> CoordinatorRecord:
        self._changed_ms[group.group_id] = now_ms
        return consumer_records.group_epoch(group.group_id, group.epoch + 1, metadata_hash)

    def reconcile(
        self, step: Step, change: Change, has_new_subscription: bool, target_epoch: int, target: Partitions
    ) -> ConsumerMember:
        group, member = step.group, step.member
        if not has_new_subscription and member.is_reconciled_to(target_epoch):
            return member
        own_ids = (member.member_id,) if step.replaced is None else (member.member_id, step.replaced.member_id)
        topics = change.topic_ids(member)
        goal = Goal(target_epoch, target, topics, has_new_subscription, step.owned, group.owners_of, own_ids)
        moved = reconcile(member, goal)
        if moved != member:
            step.records.append(consumer_records.current_assignment(group.group_id, moved))
        return moved

    def _target(self, step: Step, change: Change, epoch: int, now_ms: int) -> tuple[int, Partitions]:
        """The target that the member is to follow now: a new one, if it is time for it and it is soon found."""
        group, member = step.group, step.member
        current = group.assignment_epoch, group.target_of(member)
        if epoch <= group.assignment_epoch or group.group_id in self._targets:
            return current
        due_ms = self._target_due_ms(group)
        if due_ms > now_ms:
            self.work_at(group.group_id, due_ms)
            return current
        work = TargetWork(epoch, change, self._assignor(change))
        # For the same reason the first target is always waited for.
        is_first = group.assignment_epoch <= 0
        if work.assign(None) if is_first else work.assign():
            records, is_done = work.next_records(group, change.members(), now_ms, *((None,) if is_first else ()))
            step.records.extend(records)
            if is_done:
                return epoch, (work.assignment or {}).get(member.member_id, {})
        self._targets[group.group_id] = work
        self.work_at(group.group_id, now_ms)
        return current

    def _target_due_ms(self, group: ConsumerGroup) -> int:
        """From when on the group may have a new target (KIP-1263: not too often, members come in numbers)."""
        interval_ms: int = self._state.setting_of(group.group_id, "consumer.assignment.interval.ms")
        return group.assignment_ms + interval_ms if group.assignment_ms and interval_ms else 0

    def _assignor(self, change: Change) -> str:
        configured = self._state.settings["group.consumer.assignors"]
        return change.preferred_assignor([name for name in configured if name in ASSIGNORS])

    # Regular expressions

    def _follow_regex(self, step: Step, change: Change, now_ms: int) -> _RegexOutcome:
        group, old, new = step.group, step.old.topic_regex, step.member.topic_regex
        needs_new_epoch = needs_matching = False
        if old != new:
            if old is not None and group.regex_counts[old] == 1 and old in change.regexes:
                del change.regexes[old]
                step.records.append(consumer_records.regex_tombstone(group.group_id, old))
            if new is None or new in change.regexes:
                needs_new_epoch = True
            elif group.regex_counts[new] == 0:
                # Even where the matching is left to a tick, a mistake in it is this request's.
                self._patterns.compiled(new)
                needs_matching = True
        if needs_matching or self._regexes_are_old(group, now_ms):
            work = RegexWork(change.regex_counts(), self._patterns, self._state.topics)
            if work.resolve():
                needs_new_epoch = self._take_matches(change, work, step.records, now_ms) or needs_new_epoch
            else:
                self._regexes[group.group_id] = work
                self.work_at(group.group_id, now_ms)
        return _RegexOutcome(old != new, needs_new_epoch)

    def _regexes_are_old(self, group: ConsumerGroup, now_ms: int) -> bool:
        if not group.regex_counts or group.group_id in self._regexes:
            return False
        topics_version, checked_ms = self._regex_checks.get(group.group_id, (-1, 0))
        is_complete = len(group.regexes) >= len(group.regex_counts)
        is_current = is_complete and topics_version == self._state.topics.version
        return not is_current and now_ms >= checked_ms + REGEX_REFRESH_INTERVAL_MS

    def _take_matches(self, change: Change, work: RegexWork, records: list[CoordinatorRecord], now_ms: int) -> bool:
        """Writes down what was found; whether that is news."""
        group_id = change.group.group_id
        self._regexes.pop(group_id, None)
        self._regex_checks[group_id] = (work.topics_version, now_ms)
        counts = change.regex_counts()
        has_news = False
        for expression, topics in (work.matches or {}).items():
            known = change.regexes.get(expression)
            if counts[expression] and (known is None or known.topics != topics):
                has_news = True
                change.regexes[expression] = resolved = ResolvedRegex(topics, work.topics_version, now_ms)
                records.append(consumer_records.regex(group_id, expression, resolved))
        return has_news

    # In ticks

    def work_at(self, group_id: str, at_ms: int) -> None:
        """Asks for a tick, then or earlier."""
        at_ms = self._work_at_ms[group_id] = min(at_ms, self._work_at_ms.get(group_id, at_ms))
        self._state.timers.schedule(("consumer work", group_id), at_ms, lambda now_ms: self._work(group_id, now_ms))

    def work_when_due(self, group: ConsumerGroup, now_ms: int) -> None:
        """For a group that has a new epoch by other means than a member's heartbeat."""
        self.work_at(group.group_id, max(now_ms, self._target_due_ms(group)))

    def _work(self, group_id: str, now_ms: int) -> list[Effect]:
        """One slice of what there is to do, and a millisecond for others before the next."""
        self._work_at_ms.pop(group_id, None)
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            self.forget(group_id)
            return []
        records: list[CoordinatorRecord] = []
        if (regexes := self._regexes.get(group_id)) is not None:
            if regexes.resolve():
                change = Change(group)
                if self._take_matches(change, regexes, records, now_ms):
                    records.append(self.new_epoch(group, change.metadata_hash(), now_ms))
            self.work_at(group_id, now_ms + 1)
        elif (target := self._targets.get(group_id)) is not None or (target := self._begin(group, now_ms)) is not None:
            self.work_at(group_id, now_ms + 1)
            if target.assign():
                records, is_done = target.next_records(group, group.members, now_ms)
                if is_done:
                    del self._targets[group_id]
        return [Append(records)] if records else []

    def _begin(self, group: ConsumerGroup, now_ms: int) -> TargetWork | None:
        if not group.members or group.epoch <= group.assignment_epoch:
            return None
        due_ms = self._target_due_ms(group)
        if due_ms > now_ms:
            self.work_at(group.group_id, due_ms)
            return None
        change = Change(group)
        work = self._targets[group.group_id] = TargetWork(group.epoch, change, self._assignor(change))
        return work
