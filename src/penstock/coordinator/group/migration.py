"""A group that goes over to the other protocol while its members consume (KIP-848, online migration).

Up: the first member that speaks the new protocol turns a classic group of consumers into a group of the new kind. The
classic members stay, with what they have, and are served by both sets of requests from then on.
Down: when the last member that speaks the new protocol goes, or is replaced by a static member that does not, what is
left becomes a classic group again.

Either way the records of the old group are taken away and those of the new one written in one batch.
"""

from collections.abc import Collection
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.effects import CoordinatorRecord, Effect
from penstock.coordinator.group import consumer_records
from penstock.coordinator.group.classic_answers import fail_waiting
from penstock.coordinator.group.classic_member import ClassicMember
from penstock.coordinator.group.classic_rebalance import Rebalances
from penstock.coordinator.group.classic_state import ClassicGroup
from penstock.coordinator.group.consumer_replay import replay_into
from penstock.coordinator.group.consumer_state import CONSUMER_PROTOCOL_TYPE, ConsumerGroup, ConsumerMember
from penstock.coordinator.group.embedded_protocol import (
    MalformedProtocol,
    by_topic_id,
    protocol_version,
    read_assignment,
    read_subscription,
    write_assignment,
)
from penstock.coordinator.group.records import ClassicMemberMetadata, ClassicProtocol
from penstock.coordinator.group.state import ShardState

# What these say to their members in an assignment's user data they can do without. Kafka turns such a group away too;
# librdkafka's cooperative-sticky writes some whenever a member has had partitions before.
_KNOWN_ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
_UPGRADING_POLICIES = ("upgrade", "bidirectional")
_DOWNGRADING_POLICIES = ("downgrade", "bidirectional")


class Migration:
    def __init__(self, state: ShardState) -> None:
        self._state = state
        self._rebalances = Rebalances(state)

    def _policy(self) -> str:
        policy: str = self._state.settings["group.consumer.migration.policy"]
        return policy

    def check_mixing(self, group_id: str) -> None:
        """Whether classic members may come into a group of the new kind. Raises Refused."""
        if self._policy() == "disabled":
            raise Refused(
                ErrorCode.inconsistent_group_protocol,
                f"Cannot join the consumer group {group_id} with the classic protocol: "
                "group.consumer.migration.policy is disabled.",
            )

    # Up

    def upgrade(self, classic: ClassicGroup) -> tuple[ConsumerGroup, list[CoordinatorRecord], list[Effect]]:
        """The new group as it will be, the records that make it, and answers to members who wait. Raises Refused."""
        self._check_upgrade(classic)
        records = classic.tombstones()
        try:
            members = self._converted(classic)
        except MalformedProtocol as error:
            raise _not_upgraded(classic, f"the embedded consumer protocol is malformed: {error}") from None
        group = ConsumerGroup(classic.group_id, self._state.topics)
        created = self._creation(classic, members)
        for record in created:
            replay_into(group, record)
        # They are asked to join again, and find themselves in the new group then.
        answers: list[Effect] = [
            answer
            for member in classic.members.values()
            for answer in fail_waiting(classic, member, member.member_id, ErrorCode.rebalance_in_progress)
        ]
        return group, records + created, answers

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        if self._policy() not in _UPGRADING_POLICIES:
            raise _not_upgraded(classic, "group.consumer.migration.policy does not allow it")
        if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise _not_upgraded(classic, "it does not use the consumer embedded protocol")
        if len(classic.members) > self._state.settings["group.consumer.max.size"]:
            raise _not_upgraded(classic, "it has more members than group.consumer.max.size")

    def _converted(self, classic: ClassicGroup) -> list[ConsumerMember]:
        members = []
        taken: set[tuple[UUID, int]] = set()
        for member in classic.members.values():
            # Before the first generation no protocol is chosen; all of a consumer's have the same topics in them.
            subscription_bytes = member.protocols.get(classic.protocol or "") or next(iter(member.protocols.values()))
            subscription = read_subscription(subscription_bytes)
            assignment = read_assignment(member.assignment)
            if assignment.has_user_data and classic.protocol not in _KNOWN_ASSIGNORS:
                raise _not_upgraded(classic, "its assignor is a custom one whose user data would be lost")
            assigned: dict[UUID, dict[int, int]] = {}
            for topic_id, numbers in by_topic_id(assignment.partitions, self._state.topics).items():
                for number in numbers:
                    # Nothing kept a client's assignor from giving a partition to two members. Here one has it.
                    if (topic_id, number) not in taken:
                        taken.add((topic_id, number))
                        assigned.setdefault(topic_id, {})[number] = classic.generation
            protocols = tuple(ClassicProtocol(name=name, metadata=data) for name, data in member.protocols.items())
            members.append(
                ConsumerMember(
                    member_id=member.member_id,
                    epoch=classic.generation,
                    previous_epoch=classic.generation,
                    instance_id=member.instance_id,
                    rack_id=subscription.rack_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    topic_names=subscription.topic_names,
                    classic=ClassicMemberMetadata(
                        session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols
                    ),
                    assigned=assigned,
                )
            )
        return members

    def _creation(self, classic: ClassicGroup, members: list[ConsumerMember]) -> list[CoordinatorRecord]:
        group_id, epoch = classic.group_id, classic.generation
        targets = [
            consumer_records.target_assignment(
                group_id, member.member_id, {topic: frozenset(numbers) for topic, numbers in member.assigned.items()}
            )
            for member in members
        ]
        return [
            *(consumer_records.member(group_id, member) for member in members),
            consumer_records.group_epoch(group_id, epoch, 0),
            *targets,
            consumer_records.target_epoch(group_id, epoch, 0),
            *(consumer_records.current_assignment(group_id, member) for member in members),
        ]

    # Down

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[ConsumerMember], joining: int = 0) -> bool:
        """Whether without those who leave, and with so many who join by the classic protocol, the group is classic."""
        staying_count = len(group.members) - len(leaving)
        classic_count = group.classic_member_count - sum(member.classic is not None for member in leaving)
        speak_new = any(member.classic is None for member in leaving)
        return (
            speak_new
            and 0 < staying_count + joining <= self._state.settings["group.max.size"]
            and classic_count == staying_count
            and self._policy() in _DOWNGRADING_POLICIES
        )

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Collection[ConsumerMember],
        joining: ConsumerMember | None,
        needs_rebalance: bool,
        now_ms: int,
    ) -> list[CoordinatorRecord]:
        """The records that make the group a classic one. What a classic group has besides records, timers, it gets
        in the next tick, when it is there."""
        group_id = group.group_id
        records = group.tombstones()
        leaving_ids = {member.member_id for member in leaving}
        staying = [member for member in group.members.values() if member.member_id not in leaving_ids]
        if joining is not None:
            records = consumer_records.member_tombstones(group_id, joining.member_id) + records
            staying.append(joining)
        classic = ClassicGroup(group_id)
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.generation = group.epoch
        for member in staying:
            classic.add(_classic_member(member))
        classic.protocol = classic.select_protocol()
        assignments = {
            member.member_id: write_assignment(
                group.target_of(member),
                protocol_version(classic.members[member.member_id].protocols[classic.protocol]),
                self._state.topics,
            )
            for member in staying
        }
        records.append(classic.record(assignments, now_ms))
        self._state.timers.schedule(
            ("downgraded", group_id), now_ms, lambda at_ms: self._take_up(group_id, needs_rebalance, at_ms)
        )
        return records

    def _take_up(self, group_id: str, needs_rebalance: bool, now_ms: int) -> list[Effect]:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return []
        for member in group.members.values():
            self._rebalances.keep_session(group, member, now_ms)
        return self._rebalances.prepare(group, now_ms) if needs_rebalance and group.can_rebalance() else []


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        {protocol.name: protocol.metadata for protocol in member.classic.supported_protocols},
    )


def _not_upgraded(classic: ClassicGroup, why: str) -> Refused:
    return Refused(
        ErrorCode.group_id_not_found, f"Cannot upgrade classic group {classic.group_id} to consumer group: {why}."
    )
