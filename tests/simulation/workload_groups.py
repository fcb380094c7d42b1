"""Members of a group in the new protocol (KIP-848): they own partitions, commit offsets, come and go."""

import contextlib
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.protocol.messages import Struct
from tests.simulation.client import (
    CONSUMER_GROUP_HEARTBEAT,
    GROUP_KEY,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SimClient,
    Unavailable,
)
from tests.simulation.cluster import SimCluster
from tests.simulation.history import GroupCommits, History, Violation
from tests.simulation.workload_produce import Stop

_STALE = frozenset({ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.stale_member_epoch})


class Ownership:
    """Who was given which partition of the group, in which epoch."""

    def __init__(self) -> None:
        self._owners: dict[tuple[int, int], str] = {}

    def take(self, member_id: str, epoch: int, partitions: set[int]) -> None:
        for index in sorted(partitions):
            owner = self._owners.setdefault((index, epoch), member_id)
            if owner != member_id:
                raise Violation(16, "one owner", f"epoch {epoch}: partition {index} of {owner} and {member_id}")


class Member:
    def __init__(
        self, cluster: SimCluster, history: History, stop: Stop, name: str, topic: str, group: str, owned: Ownership
    ) -> None:
        self.client = SimClient(cluster, name)
        self.name = name
        self._history = history
        self._stop = stop
        self._topic = topic
        self._group = group
        self._ownership = owned
        self._incarnation = 0
        self._epoch = 0
        self._owned: set[int] = set()
        self._is_changed = True
        self._is_unsure = False
        self._positions: dict[int, int] = {}
        self.is_done = False
        self.client.run(self._run)

    @property
    def _member_id(self) -> str:
        return f"{self.name}-{self._incarnation}"

    @property
    def _reader(self) -> tuple[str | None, int]:
        """As whom it asks for committed offsets."""
        return self._member_id, self._epoch

    async def _run(self) -> None:
        while not self._stop.is_set:
            with contextlib.suppress(Unavailable):
                await self._heartbeat()
                if self._epoch > 0:
                    await self._work()
            await self.client.pause(1.0)
            if self.client.random.random() < 0.03:
                await self._leave()
        self.is_done = True

    async def _heartbeat(self) -> None:
        # Where an answer was lost, everything is said again, so that everything is answered again: as Kafka's client.
        tells_all = self._epoch == 0 or self._is_unsure
        self._is_unsure = True
        owned = [Struct(topic_id=self.client.topic_ids.get(self._topic), partitions=sorted(self._owned))]
        if self._topic not in self.client.topic_ids:
            await self.client.refresh([self._topic])
        body = Struct(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=10_000 if tells_all else -1,
            subscribed_topic_names=[self._topic] if tells_all else None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=(owned if self._owned else []) if tells_all or self._is_changed else None,
        )
        answer = await self.client.ask_coordinator(GROUP_KEY, self._group, CONSUMER_GROUP_HEARTBEAT, 1, body)
        code = ErrorCode(answer.error_code)
        if code in _STALE:
            self._forget()
            return
        if code:
            return
        if answer.member_epoch < self._epoch:
            raise Violation(
                16, "epochs grow", f"{self._member_id} went from epoch {self._epoch} to {answer.member_epoch}"
            )
        self._is_changed = self._is_unsure = False
        self._epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
            self._is_changed = assigned != self._owned
            self._positions = {index: at for index, at in self._positions.items() if index in assigned & self._owned}
            self._owned = assigned
        self._ownership.take(self._member_id, self._epoch, self._owned)

    def _forget(self) -> None:
        self._incarnation += 1
        self._epoch = 0
        self._owned = set()
        self._positions.clear()
        self._is_changed = True

    async def _leave(self) -> None:
        body = Struct(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=-1,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=-1,
            subscribed_topic_names=None,
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=None,
        )
        self._owned = set()
        with contextlib.suppress(Unavailable):
            await self.client.ask_coordinator(GROUP_KEY, self._group, CONSUMER_GROUP_HEARTBEAT, 1, body)
        self._forget()

    # Offsets

    async def _work(self) -> None:
        for index in sorted(self._owned):
            if index not in self._positions:
                self._positions[index] = await self._committed_offset(index)
            elif self.client.random.random() < 0.5:
                await self._commit(index, self._positions[index] + self.client.random.randint(1, 5))

    def _commits(self, index: int) -> GroupCommits:
        return self._history.group_commits.setdefault((self._group, (self._topic, index)), GroupCommits())

    async def _commit(self, index: int, offset: int) -> None:
        commits = self._commits(index)
        commits.attempts.append(offset)
        partition = Struct(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        body = Struct(
            group_id=self._group,
            generation_id_or_member_epoch=self._epoch,
            member_id=self._member_id,
            group_instance_id=None,
            topics=[Struct(name=self._topic, partitions=[partition])],
        )
        answer: Any = await self.client.ask_coordinator(GROUP_KEY, self._group, OFFSET_COMMIT, 9, body)
        if not answer.topics[0].partitions[0].error_code:
            commits.acknowledged = max(commits.acknowledged, offset)
            self._positions[index] = offset

    async def _committed_offset(self, index: int) -> int:
        """17: what was acknowledged is there, and nothing that nobody has committed. Raises Unavailable."""
        commits = self._commits(index)
        acknowledged = commits.acknowledged
        topics = [Struct(name=self._topic, partition_indexes=[index])]
        member_id, epoch = self._reader
        group = Struct(group_id=self._group, member_id=member_id, member_epoch=epoch, topics=topics)
        body = Struct(groups=[group], require_stable=True)
        answer = await self.client.ask_coordinator(GROUP_KEY, self._group, OFFSET_FETCH, 9, body)
        (found,) = answer.groups
        if found.error_code or found.topics[0].partitions[0].error_code:
            raise Unavailable("no offsets for now")
        offset = int(found.topics[0].partitions[0].committed_offset)
        if offset < acknowledged or (offset >= 0 and offset not in commits.attempts):
            raise Violation(17, "commits", f"{self._group} {index}: {offset}; {acknowledged} was acknowledged")
        return max(0, offset)
