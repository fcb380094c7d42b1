"""A classic group: its members, the generation they are in, and where it stands in a rebalance.

    state                event      new state            what happens
    -------------------  ---------  -------------------  ----------------------------------------------------------
    Empty                REBALANCE  PreparingRebalance   the first member joined; more get some time to come
    PreparingRebalance   JOINED     CompletingRebalance  everybody (re)joined, or time is up: a new generation
    PreparingRebalance   EMPTIED    Empty                time is up and nobody is there: a new, empty generation
    CompletingRebalance  SYNCED     Stable               the leader's assignment is in the log
    CompletingRebalance  REBALANCE  PreparingRebalance   a member came, went or changed before that
    Stable               REBALANCE  PreparingRebalance   a member came, went or changed
    Stable               SYNCED     Stable               a static member came back under a new id

A group that is deleted is gone; answers about it say `Dead`. What survives the coordinator is what the last
GroupMetadata record says: a Stable or Empty generation. Who has joined or synced in a rebalance that is under way is
known in memory only: after a failover the members find their generation gone and join again.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, StrEnum
from typing import Literal

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import CoordinatorRecord
from penstock.coordinator.group.classic_member import ClassicMember, WaitingJoin
from penstock.coordinator.group.records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from penstock.coordinator.group.subscription import subscribed_topics

CONSUMER_PROTOCOL_TYPE = "consumer"


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


class Event(Enum):
    REBALANCE = 1
    JOINED = 2
    EMPTIED = 3
    SYNCED = 4


TRANSITIONS: Mapping[State, Mapping[Event, State]] = {
    State.EMPTY: {Event.REBALANCE: State.PREPARING_REBALANCE},
    State.PREPARING_REBALANCE: {Event.JOINED: State.COMPLETING_REBALANCE, Event.EMPTIED: State.EMPTY},
    State.COMPLETING_REBALANCE: {Event.SYNCED: State.STABLE, Event.REBALANCE: State.PREPARING_REBALANCE},
    State.STABLE: {Event.REBALANCE: State.PREPARING_REBALANCE, Event.SYNCED: State.STABLE},
}


class ClassicGroup:
    __slots__ = (
        "_protocol_counts",
        "_subscribed_topics",
        "_waiting_join_count",
        "generation",
        "group_id",
        "is_initial_rebalance",
        "leader_id",
        "member_ids_by_instance",
        "members",
        "new_member_came",
        "pending_members",
        "pending_syncs",
        "protocol",
        "protocol_type",
        "state",
        "state_since_ms",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.state_since_ms: int | None = None
        self.generation = 0
        # None for a group that only commits offsets.
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.member_ids_by_instance: dict[str, str] = {}
        # Ids that were given out by JoinGroup 4 and later, not yet joined with.
        self.pending_members: set[str] = set()
        # Members of the generation that have not sent SyncGroup yet.
        self.pending_syncs: set[str] = set()
        # The group was Empty before: it waits for more members rather than for those it has.
        self.is_initial_rebalance = False
        self.new_member_came = False
        self._protocol_counts: dict[str, int] = {}
        self._waiting_join_count = 0
        # None where the coordinator cannot tell.
        self._subscribed_topics: set[str] | None = None

    @property
    def kind(self) -> Literal["classic"]:
        return "classic"

    def state_name(self) -> str:
        return self.state.value

    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def move(self, event: Event, now_ms: int) -> None:
        self.state = TRANSITIONS[self.state][event]
        self.state_since_ms = now_ms

    def can_rebalance(self) -> bool:
        return Event.REBALANCE in TRANSITIONS[self.state]

    # Members

    def add(self, member: ClassicMember) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.member_ids_by_instance
            self.member_ids_by_instance[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if member.waiting_join is not None:
            self._waiting_join_count += 1
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Also for pending members; no error for strangers. The caller has answered what the member waits for."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.waiting_join is not None:
                self._waiting_join_count -= 1
            if member.instance_id is not None:
                self.member_ids_by_instance.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.pending_syncs.discard(member_id)

    def update(
        self, member: ClassicMember, protocols: dict[str, bytes], rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, old: ClassicMember, new_member_id: str) -> ClassicMember:
        """The same member under a new id; what the old one waits for is the caller's to answer."""
        assert old.instance_id is not None
        was_leader = self.leader_id == old.member_id
        self.remove(old.member_id)
        new = ClassicMember(
            new_member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        self.add(new)
        if was_leader:
            self.leader_id = new_member_id
        return new

    def set_waiting_join(self, member: ClassicMember, waiting: WaitingJoin | None) -> None:
        self._waiting_join_count += (waiting is not None) - (member.waiting_join is not None)
        member.waiting_join = waiting

    def waiting_join_count(self) -> int:
        return self._waiting_join_count

    def all_joined(self) -> bool:
        return len(self.members) == self._waiting_join_count and not self.pending_members

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader is one who joined; False if nobody did."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].waiting_join is None:
            joined = (member.member_id for member in self.members.values() if member.waiting_join is not None)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        if instance_id is not None:
            known_id = self.member_ids_by_instance.get(instance_id)
            if known_id is None:
                return ErrorCode.unknown_member_id
            if known_id != member_id:
                return ErrorCode.fenced_instance_id
        return ErrorCode.none if member_id in self.members else ErrorCode.unknown_member_id

    # Protocols

    def supports(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """Whether a member with these can be in the group: one of them is known to all the others."""
        if self.state is State.EMPTY:
            return protocol_type != "" and any(True for _ in protocols)
        counts = self._protocol_counts
        return self.protocol_type == protocol_type and any(
            counts.get(name, 0) == len(self.members) for name in protocols
        )

    def select_protocol(self) -> str:
        """The one that most members prefer, of those that all of them have."""
        everywhere = {name for name, count in self._protocol_counts.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name in member.protocols if name in everywhere)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    def start_generation(self, now_ms: int) -> None:
        """Ends the join phase with the members that are there."""
        self.generation += 1
        self.is_initial_rebalance = False
        self.pending_syncs.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.move(Event.JOINED, now_ms)
        else:
            self.protocol = None
            self.move(Event.EMPTIED, now_ms)
        self._subscribed_topics = self._compute_subscribed_topics()

    def _count_protocols(self, member: ClassicMember, change: int) -> None:
        for name in member.protocols:
            self._protocol_counts[name] = self._protocol_counts.get(name, 0) + change

    def _compute_subscribed_topics(self) -> set[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if self.protocol is None:
            return None if self.members else set()
        everything: set[str] = set()
        # Most members of a large group say the same.
        for subscription in {member.protocols[self.protocol] for member in self.members.values()}:
            topics = subscribed_topics(subscription)
            if topics is None:
                return None
            everything |= topics
        return everything

    # What offsets and administration ask

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation_or_epoch: int, is_transactional: bool, version: int
    ) -> ErrorCode:
        if generation_or_epoch < 0 and self.state is State.EMPTY:
            return ErrorCode.none
        if generation_or_epoch >= 0 or member_id or instance_id is not None:
            if error := self.check_member(member_id, instance_id):
                return error
            if generation_or_epoch != self.generation:
                return ErrorCode.illegal_generation
        elif not is_transactional:
            # Without member and generation only an empty group takes commits. Old transactional producers name neither.
            return ErrorCode.unknown_member_id
        if not is_transactional and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return ErrorCode.none

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.none

    def check_offset_delete(self) -> ErrorCode:
        if self.state is State.EMPTY or self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            return ErrorCode.none
        return ErrorCode.non_empty_group

    def check_delete(self) -> ErrorCode:
        return ErrorCode.none if self.state is State.EMPTY else ErrorCode.non_empty_group

    def is_subscribed_to(self, topic_name: str) -> bool:
        if self._subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic_name in self._subscribed_topics

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state is State.EMPTY:
            return commit_timestamp_ms if self.state_since_ms is None else self.state_since_ms
        if self.state is State.STABLE and self._subscribed_topics is not None:
            return commit_timestamp_ms
        return None

    # The record

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(GroupMetadataKey(group=self.group_id), None)]

    def record(self, assignments: Mapping[str, bytes], now_ms: int) -> CoordinatorRecord:
        """What is to survive: the current generation, with these assignments by member id."""
        members = tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols[self.protocol or ""],
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        )
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader_id,
            current_state_timestamp=now_ms,
            members=members,
        )
        return CoordinatorRecord(GroupMetadataKey(group=self.group_id), value)

    def apply(self, value: GroupMetadataValue) -> None:
        """Makes the group what the record says. Members that are known keep what only memory knows of them."""
        self.protocol_type = value.protocol_type or None
        self.generation = value.generation
        self.protocol = value.protocol
        named = {member.member_id for member in value.members}
        for member_id in [member_id for member_id in self.members if member_id not in named]:
            self.remove(member_id)
        for recorded in value.members:
            member = self.members.get(recorded.member_id)
            if member is None or not member.is_as_in(recorded, value.protocol):
                self.remove(recorded.member_id)
                self.add(ClassicMember.from_record(recorded, value.protocol))
            else:
                member.assignment = recorded.assignment
        self.leader_id = value.leader
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_since_ms = None if value.current_state_timestamp == -1 else value.current_state_timestamp
        self._subscribed_topics = self._compute_subscribed_topics()
