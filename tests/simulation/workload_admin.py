"""Administrators: partitions are moved and their leaders elected anew, settings are changed, while others work."""

import contextlib
from collections.abc import Awaitable, Callable

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.image import MetadataImage
from penstock.protocol.messages import Struct
from tests.simulation.client import INCREMENTAL_ALTER_CONFIGS, REASSIGN, SimClient, TopicPartition, Unavailable
from tests.simulation.cluster import SimCluster
from tests.simulation.history import Violation
from tests.simulation.workload_produce import Stop

_ELECT_LEADERS = 43
_PREFERRED = 0
_SET, _DELETE = 0, 1
_TOPIC, _BROKER = 2, 4
_REPLICAS = 3
_ANYTHING = "anything"
# Settings that break no promise, whenever they change. None: it is deleted.
_TOPIC_SETTINGS: dict[str, tuple[str | None, ...]] = {
    "max.message.bytes": ("100000", "200000", None),
    "message.timestamp.type": ("LogAppendTime", "CreateTime"),
    "compression.type": ("gzip", "producer"),
    "index.interval.bytes": ("100", None),
}
_CLUSTER_SETTINGS: dict[str, tuple[str | None, ...]] = {"num.replica.fetchers": ("1", "2", "3")}


class Wishes:
    """What must be in force: what was confirmed last, or something that was asked for and never answered, since that
    may have been held up for any time."""

    def __init__(self, before: object) -> None:
        self._confirmed = before
        self._unanswered: list[object] = []

    def asked(self, value: object) -> None:
        self._unanswered.append(value)

    def confirmed(self, value: object) -> None:
        self._unanswered.remove(value)
        self._confirmed = value

    def refused(self, value: object) -> None:
        self._unanswered.remove(value)

    def check(self, what: str, value: object) -> None:
        allowed = [self._confirmed, *self._unanswered]
        if value not in allowed and _ANYTHING not in allowed:
            raise Violation(15, "as decided", f"{what} is {value}; it can be {allowed}")


class Administrator:
    """Does one thing after the other, so that the last one that was confirmed counts."""

    def __init__(
        self,
        cluster: SimCluster,
        stop: Stop,
        name: str,
        partitions: list[TopicPartition],
        works: list[str],
        isr_mins: tuple[str, ...],
    ) -> None:
        """`isr_mins`: what min.insync.replicas may become; none if it stays as it is."""
        self.client = SimClient(cluster, name)
        self._cluster = cluster
        self._stop = stop
        self._partitions = partitions
        self._acts: list[Callable[[], Awaitable[None]]] = []
        if "reassign" in works:
            self._acts += [self._move, self._elect]
        if "configs" in works:
            self._acts += [self._set]
        self._isr_mins = isr_mins
        if isr_mins:
            self._acts += [self._set_isr_min]
        self._settings: dict[tuple[int, str, str], Wishes] = {}
        self._moves: dict[TopicPartition, Wishes] = {}
        self.is_done = False
        self.client.run(self._run)

    async def _run(self) -> None:
        while not self._stop.is_set:
            with contextlib.suppress(Unavailable):
                await self.client.random.choice(self._acts)()
            await self.client.pause(2.0)
        self.is_done = True

    # Moving

    async def _move(self) -> None:
        chance = self.client.random
        key = chance.choice(self._partitions)
        target = tuple(chance.sample(self._cluster.node_ids, _REPLICAS))
        # The one that is under way may be called off too; then it is as it was before that, whatever that was.
        replicas = None if chance.random() < 0.1 else target
        partition = Struct(partition_index=key[1], replicas=replicas)
        body = Struct(timeout=3000, topics=[Struct(name=key[0], partitions=[partition])])
        wishes = self._moves.setdefault(key, Wishes(_ANYTHING))
        wish = _ANYTHING if replicas is None else target
        wishes.asked(wish)
        answer = await self.client.ask_any(REASSIGN, body, 0)
        if answer.error_code:
            return
        code = answer.responses[0].partitions[0].error_code
        if code == ErrorCode.no_reassignment_in_progress:
            wishes.refused(wish)
        elif not code:
            wishes.confirmed(wish)

    async def _elect(self) -> None:
        topic, index = self.client.random.choice(self._partitions)
        body = Struct(
            election_type=_PREFERRED, topic_partitions=[Struct(topic=topic, partitions=[index])], timeout=3000
        )
        await self.client.ask_any(_ELECT_LEADERS, body, 2)

    # Settings

    async def _set(self) -> None:
        chance = self.client.random
        if chance.random() < 0.3:
            kind, resource, choices = _BROKER, "", _CLUSTER_SETTINGS
        else:
            kind, resource, choices = _TOPIC, chance.choice(self._partitions)[0], _TOPIC_SETTINGS
        name = chance.choice(list(choices))
        await self._alter(kind, resource, name, chance.choice(choices[name]))

    async def _set_isr_min(self) -> None:
        chance = self.client.random
        topic, _ = chance.choice(self._partitions)
        await self._alter(_TOPIC, topic, "min.insync.replicas", chance.choice((*self._isr_mins, None)))

    async def _alter(self, kind: int, resource: str, name: str, value: str | None) -> None:
        config = Struct(name=name, config_operation=_DELETE if value is None else _SET, value=value)
        body = Struct(
            resources=[Struct(resource_type=kind, resource_name=resource, configs=[config])], validate_only=False
        )
        wishes = self._settings.setdefault((kind, resource, name), Wishes(None))
        wishes.asked(value)
        answer = await self.client.ask_any(INCREMENTAL_ALTER_CONFIGS, body, 1)
        if not answer.responses[0].error_code:
            wishes.confirmed(value)

    # The end

    def check(self, image: MetadataImage) -> None:
        """What the controller confirmed is so; what it did not answer may be."""
        for (kind, resource, name), wishes in self._settings.items():
            wishes.check(f"{name} of {resource or 'all'}", image.configs.get((kind, resource), {}).get(name))
        for (topic, index), wishes in self._moves.items():
            wishes.check(f"the place of {topic}-{index}", image.topics[topic].partitions[index].replicas)
