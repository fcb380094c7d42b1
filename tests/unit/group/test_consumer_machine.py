"""Whatever happens to a group of the new kind, in whatever order: invariant 16, and that it settles.

Members by both protocols join, report, lose answers, crash, restart and change their minds, topics come, grow and go,
coordinators fail over. One member stays throughout, so that the group stays of the new kind.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.base.errors import ErrorCode
from penstock.coordinator.group.consumer_state import ConsumerGroup
from tests.unit.group.consumers import ClassicConsumer, Consumer, Partition, commit_error
from tests.unit.group.coordinator import Coordinator

GROUP = "group"
TOPICS = ("foo", "bar", "baz-1", "baz-2")
Member = Consumer | ClassicConsumer

subscribed: st.SearchStrategy[list[str]] = st.lists(
    st.sampled_from(TOPICS), min_size=1, max_size=4, unique=True
) | st.just([])
regexes = st.sampled_from([None, None, "baz-.*", "foo|baz-1"])


class Belief:
    """What a member thinks it is and has; a crashed one that comes back still thinks so."""

    def __init__(self, member: Member) -> None:
        self.member_id = member.member_id
        self.epoch = _epoch(member)
        self.owned = set(_may_commit(member))


def _may_commit(member: Member) -> set[Partition]:
    """A classic client commits nothing between JoinGroup and SyncGroup: it does not know yet what it may keep."""
    return set() if isinstance(member, ClassicConsumer) and member.must_join else member.owned


def _epoch(member: Member) -> int:
    return member.epoch if isinstance(member, Consumer) else member.generation


def _subscribes(member: Member, topic: str) -> bool:
    if topic in member.topics:
        return True
    regex = member.regex if isinstance(member, Consumer) else None
    return {"baz-.*": topic.startswith("baz-"), "foo|baz-1": topic in ("foo", "baz-1")}.get(regex or "", False)


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Coordinator()
        self.members: list[Member] = []
        self.zombies: list[Belief] = []
        self.made = 0
        self.epochs: dict[str, int] = {}
        self.group_epochs = (0, 0)

    @initialize(topics=subscribed)
    def first_member_joins(self, topics: list[str]) -> None:
        for place, name in enumerate(TOPICS[:3]):
            self.coordinator.topics.set(name, place + 1)
        self.join_by_the_new_protocol(topics or ["foo"], None, is_static=False)

    # Members

    def _name(self) -> str:
        self.made += 1
        return f"member-{self.made}"

    @rule(topics=subscribed, regex=regexes, is_static=st.booleans())
    def join_by_the_new_protocol(self, topics: list[str], regex: str | None, is_static: bool) -> None:
        name = self._name()
        instance_id = f"static-{name}" if is_static else None
        member = Consumer(self.coordinator, GROUP, name, topics, regex=regex, instance_id=instance_id)
        self.members.append(member)
        assert member.heartbeat().error_code == ErrorCode.none

    @rule(topics=subscribed, is_static=st.booleans())
    def join_by_the_classic_protocol(self, topics: list[str], is_static: bool) -> None:
        name = self._name()
        instance_id = f"static-{name}" if is_static else None
        member = ClassicConsumer(self.coordinator, GROUP, name, topics, instance_id=instance_id)
        self.members.append(member)
        member.poll()

    @rule(data=st.data(), loses_answer=st.booleans())
    def report(self, data: st.DataObject, loses_answer: bool) -> None:
        member = data.draw(st.sampled_from(self.members))
        if isinstance(member, Consumer):
            member.heartbeat(loses_answer=loses_answer)
        else:
            member.poll()

    @rule(losing=st.integers(0, 255))
    def everybody_reports(self, losing: int) -> None:
        """Some of them get no answer."""
        self.coordinator.advance(1000)
        for place, member in enumerate(self.members):
            if isinstance(member, Consumer):
                member.heartbeat(loses_answer=place > 0 and bool(losing >> place & 1))
            else:
                member.poll()

    @rule(data=st.data(), topics=subscribed, regex=regexes)
    def change_subscription(self, data: st.DataObject, topics: list[str], regex: str | None) -> None:
        member = data.draw(st.sampled_from(self.members))
        if isinstance(member, Consumer):
            member.subscribe(topics, regex)
        else:
            member.topics, member.must_join = topics, True

    @precondition(lambda self: len(self.members) > 1)
    @rule(data=st.data(), is_crash=st.booleans())
    def go(self, data: st.DataObject, is_crash: bool) -> None:
        member = data.draw(st.sampled_from(self.members[1:]))
        self.members.remove(member)
        if is_crash:
            self.zombies.append(Belief(member))
        elif _epoch(member) > 0:
            member.leave()

    @precondition(lambda self: any(member.instance_id is not None for member in self.members[1:]))
    @rule(data=st.data(), to_classic=st.booleans())
    def restart_static_member(self, data: st.DataObject, to_classic: bool) -> None:
        member = data.draw(st.sampled_from([member for member in self.members[1:] if member.instance_id is not None]))
        if isinstance(member, Consumer) and member.epoch > 0:
            member.leave(-2)
        place = self.members.index(member)
        back: Member
        if to_classic:
            topics = member.topics
            back = ClassicConsumer(self.coordinator, GROUP, self._name(), topics, instance_id=member.instance_id)
            back.poll()
        else:
            back = Consumer(self.coordinator, GROUP, self._name(), member.topics, instance_id=member.instance_id)
            back.heartbeat()
        self.members[place] = back

    # The world

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 5))
    def make_topic_or_grow_it(self, name: str, count: int) -> None:
        self.coordinator.topics.set(name, max(count, self.coordinator.topics.partition_count(name) or 0))
        self.coordinator.topics_changed()

    @rule(name=st.sampled_from(TOPICS))
    def remove_topic(self, name: str) -> None:
        if self.coordinator.topics.topic_id(name) is not None:
            self.coordinator.topics.remove(name)
            self.coordinator.topics_changed()
            for each in (*self.members, *self.zombies):
                each.owned = {partition for partition in each.owned if partition[0] != name}

    @rule(seconds=st.sampled_from([1, 1, 5, 50]))
    def let_time_pass(self, seconds: int) -> None:
        for _ in range(0, seconds, 5):
            self.coordinator.advance(min(seconds, 5) * 1000)
            # The first member stays in the group whatever the others do.
            self.members[0].heartbeat()

    @rule()
    def fail_over(self) -> None:
        before = self._state()
        self.coordinator.restart()
        assert self._state() == before

    # What must hold

    def _group(self) -> ConsumerGroup:
        group = self.coordinator.shard._state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def _state(self) -> Any:
        group = self._group()
        soft = ("topics", "checked_topics_version")
        return {name: getattr(group, name) for name in group.__slots__ if name not in soft}

    @invariant()
    def no_partition_is_with_two_members(self) -> None:
        if not self.members:
            return
        group = self._group()
        owners: dict[tuple[Any, int], str] = {}
        for member in group.members.values():
            for partitions in (member.assigned, member.revoking):
                for topic_id, numbers in partitions.items():
                    for number in numbers:
                        assert owners.setdefault((topic_id, number), member.member_id) == member.member_id
        flat = {(topic, number): owner for topic, numbers in group.owners.items() for number, owner in numbers.items()}
        assert flat == owners

    @invariant()
    def what_a_member_has_not_given_up_is_nobody_elses(self) -> None:
        """Also when it lost the answer that told it to; until the coordinator gives the member itself up."""
        for member in self.members:
            known = self._group().members.get(member.member_id)
            if known is None or _epoch(member) not in (known.epoch, known.previous_epoch):
                continue
            for topic, number in _may_commit(member):
                topic_id = self.coordinator.topics.topic_id(topic)
                assert topic_id is not None
                assert known.assignment_epoch(topic_id, number) is not None, (member.member_id, topic, number)

    @invariant()
    def of_several_who_think_they_have_a_partition_only_one_may_commit(self) -> None:
        holders: dict[Partition, list[tuple[str, int]]] = {}
        for each in (*map(Belief, self.members), *self.zombies):
            for partition in each.owned:
                holders.setdefault(partition, []).append((each.member_id, each.epoch))
        for partition, several in holders.items():
            if len(several) > 1:
                errors = [commit_error(self.coordinator, GROUP, *holder, partition) for holder in several]
                assert errors.count(ErrorCode.none) <= 1, (partition, several, errors)

    @invariant()
    def epochs_only_grow(self) -> None:
        if not self.members:
            return
        group = self._group()
        assert (group.epoch, group.assignment_epoch) >= self.group_epochs
        assert group.epoch >= group.assignment_epoch
        self.group_epochs = (group.epoch, group.assignment_epoch)
        for member_id, member in group.members.items():
            if member.epoch > 0:
                assert member.epoch >= self.epochs.get(member_id, 0)
                assert member.epoch <= group.epoch
                self.epochs[member_id] = member.epoch

    def teardown(self) -> None:
        """Left alone, the group settles: everything that is wanted is with one who wants it."""
        if not self.members:
            return
        for _ in range(90):
            self.coordinator.advance(1000)
            for member in self.members:
                if isinstance(member, Consumer):
                    member.heartbeat()
                else:
                    member.poll()
        described = self.coordinator.ask("consumer_group_describe", group_ids=[GROUP]).groups[0]
        assert described.group_state == "Stable"
        owned = [(partition, member) for member in self.members for partition in member.owned]
        wanted = [
            (name, number)
            for name in self.coordinator.topics.names()
            if any(_subscribes(member, name) for member in self.members)
            for number in range(self.coordinator.topics.partition_count(name) or 0)
        ]
        assert sorted(partition for partition, _ in owned) == sorted(wanted)
        assert all(_subscribes(member, topic) for (topic, _), member in owned)


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
