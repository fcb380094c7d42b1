"""JoinGroup on classic groups: new members, members that come back, static members that restarted."""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Append, Effect
from penstock.coordinator.group.classic_answers import (
    fail_waiting,
    join_failed,
    joined,
    joined_without_rebalance,
    members_for_leader,
)
from penstock.coordinator.group.classic_member import ClassicMember, WaitingJoin
from penstock.coordinator.group.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, Rebalances
from penstock.coordinator.group.classic_state import ClassicGroup, State
from penstock.coordinator.group.requests import fits_record, instance_id_of
from penstock.coordinator.group.state import ShardState
from penstock.coordinator.requests import RequestContext, milliseconds

# From here on a new dynamic member is first told its id and joins with it (KIP-394).
_JOIN_GROUP_KNOWN_MEMBER_ID = 4


class Joins:
    def __init__(self, state: ShardState, rebalances: Rebalances) -> None:
        self._state = state
        self._rebalances = rebalances

    def join_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        join = WaitingJoin(token, context.version)
        if error := self._check_join(request, context):
            return [join_failed(join, request.member_id, error)]
        group = self._state.groups.get(request.group_id)
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                return [join_failed(join, request.member_id, ErrorCode.unknown_member_id)]
            group = ClassicGroup(request.group_id)
            group.state_since_ms = now_ms
            self._state.groups[request.group_id] = group
        if not self._has_room_for(group, request.member_id):
            return self._turn_away(group, join, request.member_id, now_ms)
        if not group.supports(request.protocol_type, _protocols(request)):
            return [join_failed(join, request.member_id, ErrorCode.inconsistent_group_protocol)]
        if not request.member_id:
            return self._join_unknown(group, join, request, context, now_ms)
        return self._join_known(group, join, request, context, now_ms)

    def _check_join(self, request: Any, context: RequestContext) -> ErrorCode:
        if not request.group_id or not fits_record(request.group_id):
            return ErrorCode.invalid_group_id
        settings = self._state.settings
        session_timeout_ms = milliseconds(request.session_timeout)
        if not (
            settings["group.min.session.timeout.ms"] <= session_timeout_ms <= settings["group.max.session.timeout.ms"]
        ):
            return ErrorCode.invalid_session_timeout
        texts = [instance_id_of(request) or "", context.client_id, request.protocol_type, *_protocols(request)]
        return ErrorCode.none if all(map(fits_record, texts)) else ErrorCode.invalid_request

    def _has_room_for(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._state.settings["group.max.size"]
        if group.state is State.EMPTY:
            return True
        member = group.members.get(member_id)
        if group.state is State.PREPARING_REBALANCE:
            # Those who wait count, not those who are members: a group above a lowered limit loses the last to rejoin.
            is_in = member is not None and member.waiting_join is not None
            return is_in or group.waiting_join_count() < size_max
        return member is not None or len(group.members) < size_max

    def _turn_away(self, group: ClassicGroup, join: WaitingJoin, member_id: str, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        member = group.members.get(member_id)
        if member is not None:
            self._state.note_eviction(group.group_id, member_id, now_ms, "the group is full (group.max.size)")
            effects += self._rebalances.drop(group, member)
        elif member_id in group.pending_members:
            self._rebalances.end_session(group.group_id, member_id)
            group.remove(member_id)
        effects.append(join_failed(join, "", ErrorCode.group_max_size_reached))
        return effects + self._rebalances.complete_join_if_ready(group, now_ms)

    def _join_unknown(
        self, group: ClassicGroup, join: WaitingJoin, request: Any, context: RequestContext, now_ms: int
    ) -> list[Effect]:
        instance_id = instance_id_of(request)
        member_id = f"{context.client_id if instance_id is None else instance_id}-{self._state.random_uuid()}"
        if instance_id is not None:
            known_id = group.member_ids_by_instance.get(instance_id)
            if known_id is not None:
                return self._replace_static(group, group.members[known_id], member_id, join, request, now_ms)
        elif context.version >= _JOIN_GROUP_KNOWN_MEMBER_ID:
            group.pending_members.add(member_id)
            self._rebalances.expect(group.group_id, member_id, now_ms, milliseconds(request.session_timeout))
            return [join_failed(join, member_id, ErrorCode.member_id_required)]
        return self._add(group, member_id, join, request, context, now_ms)

    def _join_known(
        self, group: ClassicGroup, join: WaitingJoin, request: Any, context: RequestContext, now_ms: int
    ) -> list[Effect]:
        member_id = request.member_id
        if member_id in group.pending_members and instance_id_of(request) is None:
            return self._add(group, member_id, join, request, context, now_ms)
        if error := group.check_member(member_id, instance_id_of(request)):
            return [join_failed(join, member_id, error)]
        member = group.members[member_id]
        is_leader = group.leader_id == member_id
        is_unchanged = member.has_protocols(_protocols(request))
        if group.state is State.COMPLETING_REBALANCE and is_unchanged:
            # It may not have got the first answer.
            return [joined(join, group, member_id, members_for_leader(group) if is_leader else ())]
        if group.state is State.STABLE and is_unchanged and not is_leader:
            return [joined(join, group, member_id)]
        # A leader that joins again asks for a new assignment, for reasons of its own: topics may have grown.
        effects = self._wait_for_join(group, member, join)
        group.update(member, _protocols(request), _rebalance_timeout_ms(request), milliseconds(request.session_timeout))
        return effects + self._rebalances.prepare_or_complete(group, now_ms)

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        join: WaitingJoin,
        request: Any,
        context: RequestContext,
        now_ms: int,
    ) -> list[Effect]:
        member = ClassicMember(
            member_id,
            instance_id_of(request),
            context.client_id,
            context.client_host,
            _rebalance_timeout_ms(request),
            milliseconds(request.session_timeout),
            _protocols(request),
        )
        member.is_new = True
        member.waiting_join = join
        if group.state is State.PREPARING_REBALANCE and group.is_initial_rebalance:
            group.new_member_came = True
        if not group.members:
            group.protocol_type = request.protocol_type
        group.add(member)
        self._rebalances.keep_session(group, member, now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalances.prepare_or_complete(group, now_ms)

    def _wait_for_join(self, group: ClassicGroup, member: ClassicMember, join: WaitingJoin) -> list[Effect]:
        """A request that waited already was given up by its client; it is answered all the same, so that none leaks."""
        effects: list[Effect] = [
            *fail_waiting(group, member, member.member_id, ErrorCode.rebalance_in_progress),
        ]
        group.set_waiting_join(member, join)
        return effects

    def _replace_static(
        self, group: ClassicGroup, old: ClassicMember, new_id: str, join: WaitingJoin, request: Any, now_ms: int
    ) -> list[Effect]:
        """A static member restarted: it takes its old place under a new id, and the old id is fenced (KIP-345)."""
        effects: list[Effect] = [*fail_waiting(group, old, old.member_id, ErrorCode.fenced_instance_id)]
        self._rebalances.end_session(group.group_id, old.member_id)
        reason = f"another instance joined with its group.instance.id {old.instance_id}"
        self._state.note_eviction(group.group_id, old.member_id, now_ms, reason)
        old_leader_id = group.leader_id or ""
        member = group.replace_static(old, new_id)
        group.update(member, _protocols(request), _rebalance_timeout_ms(request), milliseconds(request.session_timeout))
        self._rebalances.keep_session(group, member, now_ms)
        if group.state is State.STABLE and group.select_protocol() == group.protocol:
            assignments = {member.member_id: member.assignment for member in group.members.values()}
            effects.append(Append([group.record(assignments, now_ms)]))
            effects.append(joined_without_rebalance(join, group, new_id, old_leader_id))
            return effects
        group.set_waiting_join(member, join)
        return effects + self._rebalances.prepare_or_complete(group, now_ms)


def _protocols(request: Any) -> dict[str, bytes]:
    """By name, the preferred one first; of several with one name the first counts."""
    protocols: dict[str, bytes] = {}
    for protocol in request.protocols:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def _rebalance_timeout_ms(request: Any) -> int:
    # Version 0 has one timeout for both.
    return milliseconds(getattr(request, "rebalance_timeout", request.session_timeout))
