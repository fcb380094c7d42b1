"""Who is in a group of the new protocol: how members are found, how long they may be silent, how they go.

Timers, one of each kind per member:
    session    it must be heard of
    rebalance  by the new protocol: it must give up the partitions it is told to
    join       by the classic protocol: it must join again when told that a rebalance is under way
    sync       by the classic protocol: it must send SyncGroup after JoinGroup
"""

from collections.abc import Callable, Sequence
from typing import Literal

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.effects import Append, CoordinatorRecord, Effect
from penstock.coordinator.group import consumer_records
from penstock.coordinator.group.consumer_change import Change
from penstock.coordinator.group.consumer_progress import Progress
from penstock.coordinator.group.consumer_state import ConsumerGroup, ConsumerMember, MemberState
from penstock.coordinator.group.migration import Migration
from penstock.coordinator.group.state import ShardState

TimerKind = Literal["session", "rebalance", "join", "sync"]
_TIMER_KINDS: tuple[TimerKind, ...] = ("session", "rebalance", "join", "sync")


class Membership:
    def __init__(self, state: ShardState, progress: Progress, migration: Migration) -> None:
        self._state = state
        self._progress = progress
        self._migration = migration

    # Finding them

    def find(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
        """A member that must be there. Raises Refused."""
        if instance_id is None:
            member = group.members.get(member_id)
            if member is None:
                raise Refused(
                    ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group.group_id}."
                )
            return member
        member = group.static_member(instance_id)
        if member is None:
            raise Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise Refused(
                ErrorCode.fenced_instance_id,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        """Raises Refused."""
        size_max = self._state.settings["group.consumer.max.size"]
        if len(group.members) >= size_max and member_id not in group.members:
            raise Refused(
                ErrorCode.group_max_size_reached,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def replace(
        self, group: ConsumerGroup, old: ConsumerMember, member_id: str, records: list[CoordinatorRecord], now_ms: int
    ) -> ConsumerMember:
        """A static member came back under a new id: it takes over what it had."""
        new = old._replace(member_id=member_id, epoch=0, previous_epoch=0)
        records += consumer_records.member_tombstones(group.group_id, old.member_id)
        records.append(consumer_records.member(group.group_id, new))
        records.append(consumer_records.target_assignment(group.group_id, member_id, group.target_of(old)))
        records.append(consumer_records.current_assignment(group.group_id, new))
        self.cancel_timers(group.group_id, old.member_id)
        self._progress.rename(group.group_id, old.member_id, member_id)
        reason = f"another instance joined with its group.instance.id {old.instance_id}"
        self._state.note_eviction(group.group_id, old.member_id, now_ms, reason)
        return new

    # Timers

    def expect(self, kind: TimerKind, group_id: str, member_id: str, timeout_ms: int, now_ms: int) -> None:
        """The member must do what the timer stands for by then, or it is put out."""
        reason = _REASONS[kind](timeout_ms)
        self._state.timers.schedule(
            (f"consumer {kind}", group_id, member_id),
            now_ms + timeout_ms,
            lambda at_ms: self._expire(kind, group_id, member_id, reason, at_ms),
        )

    def is_expected(self, kind: TimerKind, group_id: str, member_id: str) -> bool:
        return (f"consumer {kind}", group_id, member_id) in self._state.timers

    def no_longer_expect(self, kind: TimerKind, group_id: str, member_id: str) -> None:
        self._state.timers.cancel((f"consumer {kind}", group_id, member_id))

    def cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in _TIMER_KINDS:
            self.no_longer_expect(kind, group_id, member_id)

    def keep_session(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        timeout_ms = (
            self._state.setting_of(group_id, "consumer.session.timeout.ms")
            if member.classic is None
            else member.classic.session_timeout_ms
        )
        self.expect("session", group_id, member.member_id, timeout_ms, now_ms)

    def time_revocation(self, group_id: str, member: ConsumerMember, now_ms: int) -> None:
        """After the member's state has changed. Classic members have the timers of joining and syncing instead."""
        if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            self.expect("rebalance", group_id, member.member_id, member.rebalance_timeout_ms, now_ms)
        else:
            self.no_longer_expect("rebalance", group_id, member.member_id)

    def _expire(self, kind: TimerKind, group_id: str, member_id: str, reason: str, now_ms: int) -> list[Effect]:
        group = self._state.groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return []
        if kind == "rebalance" and member.state is not MemberState.UNREVOKED_PARTITIONS:
            return []
        self._state.note_eviction(group_id, member_id, now_ms, reason)
        return self.remove(group, [member], now_ms)

    # Going

    def remove(self, group: ConsumerGroup, members: Sequence[ConsumerMember], now_ms: int) -> list[Effect]:
        """Takes members out of the group; what is left of it may be a classic group."""
        group_id = group.group_id
        if not members:
            return []
        for member in members:
            self.cancel_timers(group_id, member.member_id)
        if self._migration.may_downgrade(group, members):
            return [Append(self.downgrade(group, members, None, needs_rebalance=True, now_ms=now_ms))]
        records = [
            record for member in members for record in consumer_records.member_tombstones(group_id, member.member_id)
        ]
        change = Change(group, members)
        counts = change.regex_counts()
        for expression in [expression for expression in change.regexes if not counts[expression]]:
            del change.regexes[expression]
            records.append(consumer_records.regex_tombstone(group_id, expression))
        records.append(self._progress.new_epoch(group, change.metadata_hash(), now_ms))
        self._progress.work_when_due(group, now_ms)
        return [Append(records)]

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerMember],
        joining: ConsumerMember | None,
        needs_rebalance: bool,
        now_ms: int,
    ) -> list[CoordinatorRecord]:
        for member_id in group.members:
            self.cancel_timers(group.group_id, member_id)
        self._progress.forget(group.group_id)
        return self._migration.downgrade(group, leaving, joining, needs_rebalance, now_ms)


_REASONS: dict[TimerKind, Callable[[int], str]] = {
    "session": "no heartbeat for {} ms (session timeout)".format,
    "rebalance": "did not give up its partitions within {} ms (rebalance timeout)".format,
    "join": "did not join again within {} ms (rebalance timeout)".format,
    "sync": "did not send SyncGroup within {} ms (rebalance timeout)".format,
}
