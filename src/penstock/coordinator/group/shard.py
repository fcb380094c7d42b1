"""The door of the group coordinator: one object per partition of `__consumer_offsets`, one method per kind of request.

Every method takes the token its answer will carry, kio's decoded request of whatever version, who asks, and the time;
it returns effects for the shell to perform in order (`penstock.coordinator.effects` has the shell's duties). A request
with several groups may be split over shards: give each a `Struct` with its share of the request's fields and merge the
lists of the answers.

Loading: `replay` for every record of the partition, then `on_loaded`, then requests. Afterwards `tick` whenever
`next_deadline_ms` has come (a time in the past means at once), `on_topics_changed` when topics come, go or grow.
"""

from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import Random
from penstock.coordinator.effects import Answer, CoordinatorRecord, Effect
from penstock.coordinator.group.classic import ClassicGroups
from penstock.coordinator.group.consumer import ConsumerGroups
from penstock.coordinator.group.offsets import Offsets
from penstock.coordinator.group.requests import Eviction, RequestContext, Settings, TopicsView
from penstock.coordinator.group.state import ShardState
from penstock.protocol.messages import Struct


class GroupShard:
    def __init__(self, settings: Settings, topics: TopicsView, random: Random) -> None:
        self.state = ShardState(settings, topics, random)
        self._classic = ClassicGroups(self.state)
        self._consumer = ConsumerGroups(self.state, self._classic)
        self._offsets = Offsets(self.state)

    def join_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        if self._is_consumer_group(request.group_id):
            return self._consumer.join_group(token, request, context, now_ms)
        return self._classic.join_group(token, request, context, now_ms)

    def sync_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        if self._is_consumer_group(request.group_id):
            return self._consumer.sync_group(token, request, context, now_ms)
        return self._classic.sync_group(token, request, context, now_ms)

    def consumer_group_heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._consumer.consumer_group_heartbeat(token, request, context, now_ms)

    def replay(self, record: CoordinatorRecord) -> None:
        """Brings the state in line with a record of the log: while loading, and right after each append."""

    def tick(self, now_ms: int) -> list[Effect]:
        return [effect for action in self.state.timers.due(now_ms) for effect in action(now_ms)]

    def next_deadline_ms(self) -> int | None:
        return self.state.timers.next_deadline_ms()

    def on_loaded(self, now_ms: int) -> list[Effect]:
        return self._classic.on_loaded(now_ms) + self._consumer.on_loaded(now_ms)

    def on_topics_changed(self, now_ms: int) -> list[Effect]:
        return self._consumer.on_topics_changed(now_ms)

    def evictions(self, group_id: str) -> list[Eviction]:
        return list(self.state.evictions.get(group_id, ()))

    def _is_consumer_group(self, group_id: str) -> bool:
        group = self.state.groups.get(group_id)
        return group is not None and group.kind == "consumer"
