"""The rebalance of a classic group: who is waited for, for how long, and what happens when the time is up.

Timers, each of one kind per group or member:
    session  a member that sends nothing for its session timeout is put out; one that waits for us is not
    join     the join phase ends: after `group.initial.rebalance.delay.ms` for a new group, put off while members
             keep coming; after the longest rebalance timeout of the members otherwise
    sync     members that have not sent SyncGroup within the longest rebalance timeout are put out
"""

from collections.abc import Mapping

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Append, Effect
from penstock.coordinator.group.classic_answers import fail_waiting, joined, members_for_leader, sync_failed, synced
from penstock.coordinator.group.classic_member import ClassicMember
from penstock.coordinator.group.classic_state import ClassicGroup, Event, State
from penstock.coordinator.group.state import ShardState

# A new member does not know its id yet and cannot send heartbeats, and a client that gave up and tries again becomes
# one more member. So a join that waits is ended after this long.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


class Rebalances:
    def __init__(self, state: ShardState) -> None:
        self._state = state

    # Sessions

    def keep_session(
        self, group: ClassicGroup, member: ClassicMember, now_ms: int, timeout_ms: int | None = None
    ) -> None:
        """The member was heard of."""
        timeout_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self.expect(group.group_id, member.member_id, now_ms, timeout_ms)

    def expect(self, group_id: str, member_id: str, now_ms: int, timeout_ms: int) -> None:
        """Something must be heard of this member, or pending member, by then."""
        self._state.timers.schedule(
            ("session", group_id, member_id),
            now_ms + timeout_ms,
            lambda at_ms: self._expire_session(group_id, member_id, timeout_ms, at_ms),
        )

    def end_session(self, group_id: str, member_id: str) -> None:
        self._state.timers.cancel(("session", group_id, member_id))

    def forget(self, group: ClassicGroup) -> None:
        """Stops all timers of a group that is gone."""
        for member_id in (*group.members, *group.pending_members):
            self.end_session(group.group_id, member_id)
        self._state.timers.cancel(("join", group.group_id))
        self._state.timers.cancel(("sync", group.group_id))

    def _expire_session(self, group_id: str, member_id: str, timeout_ms: int, now_ms: int) -> list[Effect]:
        group = self._find(group_id)
        if group is None:
            return []
        if member_id in group.pending_members:
            group.remove(member_id)
            return self.complete_join_if_ready(group, now_ms)
        member = group.members.get(member_id)
        if member is None or member.needs_no_heartbeat():
            return []
        reason = f"no heartbeat for {timeout_ms} ms (session timeout)"
        if member.is_new:
            reason = f"its JoinGroup waited for {timeout_ms} ms"
        return self.evict(group, member, reason, now_ms)

    # Members that go

    def evict(self, group: ClassicGroup, member: ClassicMember, reason: str, now_ms: int) -> list[Effect]:
        self._state.note_eviction(group.group_id, member.member_id, now_ms, reason)
        effects = self.drop(group, member)
        return effects + self.after_departure(group, now_ms)

    def drop(self, group: ClassicGroup, member: ClassicMember) -> list[Effect]:
        """Takes the member out. The answer it may wait for tells it to join as somebody new."""
        self.end_session(group.group_id, member.member_id)
        effects: list[Effect] = [*fail_waiting(group, member, "", ErrorCode.unknown_member_id)]
        group.remove(member.member_id)
        return effects

    def after_departure(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            return self.prepare(group, now_ms)
        return self.complete_join_if_ready(group, now_ms)

    # The join phase

    def prepare_or_complete(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        if group.can_rebalance():
            return self.prepare(group, now_ms)
        return self.complete_join_if_ready(group, now_ms)

    def prepare(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        """Starts a rebalance: everybody is to join again."""
        effects: list[Effect] = []
        if group.state is State.COMPLETING_REBALANCE:
            effects += self._fail_syncs(group, now_ms)
        group.pending_syncs.clear()
        self._state.timers.cancel(("sync", group.group_id))
        group.is_initial_rebalance = group.state is State.EMPTY
        group.move(Event.REBALANCE, now_ms)
        if group.is_initial_rebalance:
            delay_ms = self._state.settings["group.initial.rebalance.delay.ms"]
            remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._schedule_initial(group.group_id, delay_ms, remaining_ms, now_ms)
            return effects
        if group.all_joined():
            return effects + self._complete_join(group, now_ms)
        self._schedule_join(group, now_ms)
        return effects

    def complete_join_if_ready(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        """Ends the join phase if nobody is missing. An initial one lasts its time: more members may come."""
        if group.state is State.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined():
            return self._complete_join(group, now_ms)
        return []

    def _schedule_initial(self, group_id: str, delay_ms: int, remaining_ms: int, now_ms: int) -> None:
        self._state.timers.schedule(
            ("join", group_id),
            now_ms + delay_ms,
            lambda at_ms: self._end_initial_delay(group_id, delay_ms, remaining_ms, at_ms),
        )

    def _end_initial_delay(self, group_id: str, delay_ms: int, remaining_ms: int, now_ms: int) -> list[Effect]:
        group = self._find(group_id)
        if group is None or group.state is not State.PREPARING_REBALANCE:
            return []
        if group.new_member_came and remaining_ms > 0:
            group.new_member_came = False
            next_delay_ms = min(self._state.settings["group.initial.rebalance.delay.ms"], remaining_ms)
            self._schedule_initial(group_id, next_delay_ms, max(remaining_ms - delay_ms, 0), now_ms)
            return []
        return self._complete_join(group, now_ms)

    def _schedule_join(self, group: ClassicGroup, now_ms: int) -> None:
        self._state.timers.schedule(
            ("join", group.group_id),
            now_ms + group.rebalance_timeout_ms(),
            lambda at_ms: self._end_join_phase(group.group_id, at_ms),
        )

    def _end_join_phase(self, group_id: str, now_ms: int) -> list[Effect]:
        group = self._find(group_id)
        if group is None or group.state is not State.PREPARING_REBALANCE:
            return []
        return self._complete_join(group, now_ms)

    def _complete_join(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        self._state.timers.cancel(("join", group.group_id))
        self._drop_absent(group, now_ms)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left and none has joined: they keep their places until their sessions end.
            self._schedule_join(group, now_ms)
            return []
        group.new_member_came = False
        group.start_generation(now_ms)
        if group.state is State.EMPTY:
            return [Append([group.record({}, now_ms)])]
        effects: list[Effect] = []
        for_leader = members_for_leader(group)
        for member in group.members.values():
            if member.waiting_join is not None:
                members = for_leader if member.member_id == group.leader_id else ()
                effects.append(joined(member.waiting_join, group, member.member_id, members))
                group.set_waiting_join(member, None)
            self.keep_session(group, member, now_ms)
            member.is_new = False
            group.pending_syncs.add(member.member_id)
        generation = group.generation
        self._state.timers.schedule(
            ("sync", group.group_id),
            now_ms + group.rebalance_timeout_ms(),
            lambda at_ms: self._expire_syncs(group.group_id, generation, at_ms),
        )
        return effects

    def _drop_absent(self, group: ClassicGroup, now_ms: int) -> None:
        """Dynamic members that have not joined lose their place; static ones keep it until their session ends."""
        reason = f"it did not rejoin within {group.rebalance_timeout_ms()} ms (rebalance timeout)"
        for member in [*group.members.values()]:
            if member.waiting_join is None and member.instance_id is None:
                self._state.note_eviction(group.group_id, member.member_id, now_ms, reason)
                self.end_session(group.group_id, member.member_id)
                group.remove(member.member_id)

    # The sync phase

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._state.timers.cancel(("sync", group.group_id))

    def finish(self, group: ClassicGroup, assignments: Mapping[str, bytes], now_ms: int) -> list[Effect]:
        """The leader's assignment is here: it goes to the log, and with it the group becomes stable."""
        effects: list[Effect] = [Append([group.record(assignments, now_ms)])]
        for member in group.members.values():
            if member.waiting_sync is not None:
                effects.append(synced(member.waiting_sync, group, assignments.get(member.member_id, b"")))
                member.waiting_sync = None
                self.keep_session(group, member, now_ms)
        return effects

    def _fail_syncs(self, group: ClassicGroup, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for member in group.members.values():
            member.assignment = b""
            if member.waiting_sync is not None:
                effects.append(sync_failed(member.waiting_sync, ErrorCode.rebalance_in_progress))
                member.waiting_sync = None
                # A session that ended while the member waited was let pass, and its timer is gone.
                self.keep_session(group, member, now_ms)
        return effects

    def _expire_syncs(self, group_id: str, generation: int, now_ms: int) -> list[Effect]:
        group = self._find(group_id)
        if group is None or group.generation != generation or not group.pending_syncs or not group.can_rebalance():
            return []
        reason = f"it did not send SyncGroup within {group.rebalance_timeout_ms()} ms (rebalance timeout)"
        for member_id in sorted(group.pending_syncs):
            self._state.note_eviction(group_id, member_id, now_ms, reason)
            self.end_session(group_id, member_id)
            group.remove(member_id)
        return self.prepare(group, now_ms)

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None
