"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup and DescribeGroups on classic groups.

A member joins, waits until all have joined, learns the generation; the leader sends everybody's assignment with
SyncGroup, the others wait for it with theirs; then all send heartbeats until one of them answers that a rebalance is
under way. `classic_state` has the group and its states, `classic_rebalance` the barrier and its timers.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Answer, Effect
from penstock.coordinator.group.classic_answers import fail_waiting, left, sync_failed, synced
from penstock.coordinator.group.classic_join import Joins
from penstock.coordinator.group.classic_rebalance import Rebalances
from penstock.coordinator.group.classic_state import ClassicGroup, State
from penstock.coordinator.group.records import GroupMetadataValue
from penstock.coordinator.group.requests import LeavingMember, instance_id_of, leaving_members
from penstock.coordinator.group.state import ShardState
from penstock.coordinator.requests import RequestContext
from penstock.protocol.messages import Struct

# From here on DescribeGroups says with an error that a group is not there; before, its state is Dead (KIP-1043).
_DESCRIBE_TELLS_NOT_FOUND = 6


class ClassicGroups:
    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._rebalances = Rebalances(state)
        self._joins = Joins(state, self._rebalances)

    def join_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._joins.join_group(token, request, context, now_ms)

    # SyncGroup

    def sync_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        if not request.group_id:
            return [sync_failed(token, ErrorCode.invalid_group_id)]
        group = self._find(request.group_id)
        if group is None or group.is_empty():
            return [sync_failed(token, ErrorCode.unknown_member_id)]
        if error := self._check_sync(group, request):
            return [sync_failed(token, error)]
        member = group.members[request.member_id]
        self._rebalances.note_sync(group, member.member_id)
        if group.state is State.STABLE:
            return [synced(token, group, member.assignment)]
        effects: list[Effect] = [*fail_waiting(group, member, member.member_id, ErrorCode.rebalance_in_progress)]
        member.waiting_sync = token
        if group.leader_id == member.member_id:
            assignments = {each.member_id: bytes(each.assignment) for each in request.assignments}
            effects += self._rebalances.finish(group, assignments, now_ms)
        return effects

    def _check_sync(self, group: ClassicGroup, request: Any) -> ErrorCode:
        if error := group.check_member(request.member_id, instance_id_of(request)):
            return error
        if request.generation_id != group.generation:
            return ErrorCode.illegal_generation
        protocol_type = getattr(request, "protocol_type", None)
        protocol = getattr(request, "protocol_name", None)
        if protocol_type not in (None, group.protocol_type) or protocol not in (None, group.protocol):
            return ErrorCode.inconsistent_group_protocol
        return ErrorCode.rebalance_in_progress if group.state is State.PREPARING_REBALANCE else ErrorCode.none

    # Heartbeat

    def heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return [Answer(token, Struct(error_code=self._heartbeat(request, now_ms)))]

    def _heartbeat(self, request: Any, now_ms: int) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.invalid_group_id
        group = self._find(request.group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        if error := group.check_member(request.member_id, instance_id_of(request)):
            return error
        if request.generation_id != group.generation:
            return ErrorCode.illegal_generation
        self.note_alive(group, request.member_id, now_ms)
        return ErrorCode.rebalance_in_progress if group.state is State.PREPARING_REBALANCE else ErrorCode.none

    def note_alive(self, group: ClassicGroup, member_id: str, now_ms: int) -> None:
        """A commit shows, like a heartbeat, that the member lives."""
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.keep_session(group, member, now_ms)

    # LeaveGroup

    def leave_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        leaving = leaving_members(request)
        if not request.group_id:
            return [Answer(token, Struct(error_code=ErrorCode.invalid_group_id, members=()))]
        group = self._find(request.group_id)
        effects: list[Effect] = []
        outcomes = []
        for one in leaving:
            outcomes.append(ErrorCode.unknown_member_id if group is None else self._leave(group, one, effects, now_ms))
        if group is not None and not all(outcomes):
            effects += self._rebalances.after_departure(group, now_ms)
        effects.append(left(token, context, leaving, outcomes))
        return effects

    def _leave(self, group: ClassicGroup, leaving: LeavingMember, effects: list[Effect], now_ms: int) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if not member_id:
            # An administrator removes a static member by its name.
            member_id = group.member_ids_by_instance.get(instance_id, "") if instance_id is not None else ""
            if not member_id:
                return ErrorCode.unknown_member_id
            reason = f"removed by an administrator: {leaving.reason or 'no reason given'}"
            self._state.note_eviction(group.group_id, member_id, now_ms, reason)
        elif member_id in group.pending_members:
            self._rebalances.end_session(group.group_id, member_id)
            group.remove(member_id)
            return ErrorCode.none
        elif error := group.check_member(member_id, instance_id):
            return error
        effects += self._rebalances.drop(group, group.members[member_id])
        return ErrorCode.none

    # DescribeGroups

    def describe(self, group_id: str, context: RequestContext) -> Struct:
        group = self._find(group_id)
        if group is None:
            is_told = context.version >= _DESCRIBE_TELLS_NOT_FOUND
            problem = "is not a classic group" if group_id in self._state.groups else "not found"
            return Struct(
                error_code=ErrorCode.group_id_not_found if is_told else ErrorCode.none,
                error_message=f"Group {group_id} {problem}." if is_told else None,
                group_id=group_id,
                group_state="Dead",
                members=(),
            )
        is_stable = group.state is State.STABLE
        return Struct(
            error_code=ErrorCode.none,
            group_id=group_id,
            group_state=group.state_name(),
            protocol_type=group.protocol_type_name(),
            protocol_data=(group.protocol or "") if is_stable else "",
            members=[
                Struct(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.protocols[group.protocol or ""] if is_stable else b"",
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    # The life of the shard

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self._find(group_id)
        if value is None:
            if group is not None:
                self._rebalances.forget(group)
                del self._state.groups[group_id]
            return
        if group is None:
            group = ClassicGroup(group_id)
            self._state.groups[group_id] = group
        group.apply(value)

    def on_loaded(self, now_ms: int) -> list[Effect]:
        """Everybody gets a whole session to be heard of."""
        effects: list[Effect] = []
        for group in [group for group in self._state.groups.values() if isinstance(group, ClassicGroup)]:
            for member in group.members.values():
                self._rebalances.keep_session(group, member, now_ms)
            if len(group.members) > self._state.settings["group.max.size"]:
                effects += self._rebalances.prepare(group, now_ms)
        return effects

    def _find(self, group_id: str) -> ClassicGroup | None:
        group = self._state.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None
