"""Answers to ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.effects import Answer
from penstock.coordinator.group.consumer_change import Change
from penstock.coordinator.group.consumer_state import ConsumerGroup, ConsumerMember
from penstock.coordinator.group.requests import TopicsView
from penstock.protocol.messages import Struct

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


def heartbeat_failed(token: int, refused: Refused) -> Answer:
    return Answer(token, Struct(error_code=refused.code, error_message=refused.message))


def heartbeat_answer(token: int, member: ConsumerMember, interval_ms: int, tells_assignment: bool) -> Answer:
    assignment = None
    if tells_assignment:
        assignment = Struct(
            topic_partitions=[
                Struct(topic_id=topic_id, partitions=sorted(numbers)) for topic_id, numbers in member.assigned.items()
            ]
        )
    body = Struct(
        error_code=ErrorCode.none,
        member_id=member.member_id,
        member_epoch=member.epoch,
        heartbeat_interval=interval_ms,
        assignment=assignment,
    )
    return Answer(token, body)


def described(group: ConsumerGroup, assignors: Sequence[str]) -> Struct:
    return Struct(
        error_code=ErrorCode.none,
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=Change(group).preferred_assignor(assignors),
        members=[_described_member(group, member) for member in group.members.values()],
    )


def _described_member(group: ConsumerGroup, member: ConsumerMember) -> Struct:
    target = group.target.get(member.member_id, {})
    return Struct(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex or "",
        # What it must give up it has until it says that it has given it up.
        assignment=_partitions((*member.assigned.items(), *member.revoking.items()), group.topics),
        target_assignment=_partitions(target.items(), group.topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _partitions(items: Iterable[tuple[UUID, Collection[int]]], topics: TopicsView) -> Struct:
    """Without topics that are gone."""
    merged: dict[UUID, set[int]] = {}
    for topic_id, numbers in items:
        merged.setdefault(topic_id, set()).update(numbers)
    named: Mapping[UUID, str] = {topic_id: name for topic_id in merged if (name := topics.topic_name(topic_id))}
    return Struct(
        topic_partitions=[
            Struct(topic_id=topic_id, topic_name=name, partitions=sorted(merged[topic_id]))
            for topic_id, name in named.items()
        ]
    )
