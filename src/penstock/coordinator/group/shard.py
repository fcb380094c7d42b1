"""The door of the group coordinator: one object per partition of `__consumer_offsets`, one method per kind of request.

Every method takes the token its answer will carry, kio's decoded request of whatever version, who asks, and the time;
it returns effects for the shell to perform in order (`penstock.coordinator.effects` has the shell's duties). A request
with several groups may be split over shards: give each a `Struct` with its share of the request's fields and merge the
lists of the answers. ListGroups goes to every shard.

Loading: `replay` for every record of the partition, then `on_loaded`, then requests. Afterwards `tick` whenever
`next_deadline_ms` has come (a time in the past means at once), `on_topics_changed` when topics come, go or grow.
"""

from collections.abc import Sequence
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.base.ports import Random
from penstock.coordinator.effects import NO_PRODUCER_ID, Answer, Append, CoordinatorRecord, Effect
from penstock.coordinator.group.classic import ClassicGroups
from penstock.coordinator.group.classic_state import ClassicGroup
from penstock.coordinator.group.consumer import ConsumerGroups
from penstock.coordinator.group.offset_commits import OffsetCommits
from penstock.coordinator.group.offset_store import OffsetStore
from penstock.coordinator.group.offsets import Offsets
from penstock.coordinator.group.records import GroupMetadataKey, OffsetCommitKey
from penstock.coordinator.group.requests import Eviction, TopicsView
from penstock.coordinator.group.state import GroupOverrides, ShardState
from penstock.coordinator.requests import RequestContext, Settings
from penstock.protocol.messages import Struct


class GroupShard:
    def __init__(
        self, settings: Settings, topics: TopicsView, random: Random, overrides_of: GroupOverrides = lambda _: {}
    ) -> None:
        self._state = ShardState(settings, topics, random, overrides_of)
        self._classic = ClassicGroups(self._state)
        self._consumer = ConsumerGroups(self._state)
        self._store = OffsetStore()
        self._commits = OffsetCommits(self._state)
        self._offsets = Offsets(self._state, self._store)

    # Membership

    def join_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        group = self._state.groups.get(request.group_id)
        if group is None or group.kind == "classic":
            return self._classic.join_group(token, request, context, now_ms)
        if not group.is_empty():
            return self._consumer.join_group(token, request, context, now_ms)
        # An empty group takes the protocol of whoever comes next. It makes room at once; its tombstones follow.
        del self._state.groups[request.group_id]
        effects = self._classic.join_group(token, request, context, now_ms)
        if request.group_id in self._state.groups:
            return [Append(group.tombstones()), *effects]
        self._state.groups[request.group_id] = group
        return effects

    def sync_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._side_of(request.group_id).sync_group(token, request, context, now_ms)

    def heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._side_of(request.group_id).heartbeat(token, request, context, now_ms)

    def leave_group(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._side_of(request.group_id).leave_group(token, request, context, now_ms)

    def consumer_group_heartbeat(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._consumer.consumer_group_heartbeat(token, request, context, now_ms)

    # Offsets

    def offset_commit(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        effects = self._commits.offset_commit(token, request, context, now_ms)
        if request.member_id and isinstance(effects[0], Append):
            group = self._state.groups.get(request.group_id)
            if isinstance(group, ClassicGroup):
                self._classic.note_alive(group, request.member_id, now_ms)
        return effects

    def txn_offset_commit(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        """The shell has made sure that the transaction of the request's producer is open, and that nothing that was
        decided earlier is still to be appended."""
        return self._commits.txn_offset_commit(token, request, context, now_ms)

    def offset_fetch(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._offsets.offset_fetch(token, request, context, now_ms)

    def offset_delete(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        return self._offsets.offset_delete(token, request, context, now_ms)

    # Administration

    def delete_groups(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        records: list[CoordinatorRecord] = []
        results = []
        for group_id in request.groups_names:
            group = self._state.groups.get(group_id)
            error = ErrorCode.group_id_not_found if group is None else group.check_delete()
            if group is not None and not error:
                records += self._store.tombstones_of_group(group_id) + group.tombstones()
            results.append(Struct(group_id=group_id, error_code=error))
        answer = Answer(token, Struct(results=results))
        return [Append(records), answer] if records else [answer]

    def describe_groups(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        groups = [self._classic.describe(group_id, context) for group_id in request.groups]
        return [Answer(token, Struct(groups=groups))]

    def consumer_group_describe(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        groups = [self._describe_consumer_group(group_id) for group_id in request.group_ids]
        return [Answer(token, Struct(groups=groups))]

    def _describe_consumer_group(self, group_id: str) -> Struct:
        group = self._state.groups.get(group_id)
        if group is not None and group.kind == "consumer":
            return self._consumer.describe(group_id)
        if not group_id:
            return Struct(group_id="", error_code=ErrorCode.invalid_group_id, members=())
        message = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a consumer group."
        return Struct(group_id=group_id, error_code=ErrorCode.group_id_not_found, error_message=message, members=())

    def list_groups(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        states = _filter(getattr(request, "states_filter", ()))
        types = _filter(getattr(request, "types_filter", ()))
        groups = [
            Struct(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name(),
                group_state=group.state_name(),
                group_type=group.kind,
            )
            for group in self._state.groups.values()
            if (not states or group.state_name().lower() in states) and (not types or group.kind in types)
        ]
        return [Answer(token, Struct(error_code=ErrorCode.none, groups=groups))]

    def evictions(self, group_id: str) -> list[Eviction]:
        """The last members that the coordinator put out of the group, and why; the latest last."""
        return list(self._state.evictions.get(group_id, ()))

    # The life of the shard

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Brings the state in line with a record of the log: while loading, and right after each append. `producer_id`
        is that of the record's batch where it is transactional."""
        key = record.key
        if type(key) is OffsetCommitKey:
            # Hot: groups commit all the time.
            self._store.replay(key, record.value, producer_id)
            if record.value is not None:
                if key.topic not in self._offsets.seen_topics:
                    self._offsets.note_topic(key.topic)
                if key.group not in self._state.groups:
                    # Somebody only keeps offsets here; or the record of the group comes later.
                    self._state.groups[key.group] = ClassicGroup(key.group)
        elif isinstance(key, GroupMetadataKey):
            self._classic.replay(key.group, record.value)
        else:
            self._consumer.replay(record)

    def replay_transaction_end(self, producer_id: int, is_committed: bool) -> None:
        """A transaction's marker came up in the log."""
        self._store.end_transaction(producer_id, is_committed)

    def on_loaded(self, now_ms: int) -> list[Effect]:
        self._offsets.schedule_expiration(now_ms)
        return [
            *self._classic.on_loaded(now_ms),
            *self._consumer.on_loaded(now_ms),
        ]

    def on_topics_changed(self, now_ms: int) -> list[Effect]:
        # Groups of the new kind need not be told: each of their heartbeats looks at the topics.
        return self._offsets.on_topics_changed()

    def tick(self, now_ms: int) -> list[Effect]:
        """Does what is due. It stops at the first records, since what comes after them must see them replayed; the rest
        is due at once then."""
        effects: list[Effect] = []
        while (action := self._state.timers.pop_due(now_ms)) is not None:
            effects += action(now_ms)
            if any(isinstance(effect, Append) for effect in effects):
                break
        return effects

    def next_deadline_ms(self) -> int | None:
        return self._state.timers.next_deadline_ms()

    def _side_of(self, group_id: str) -> ClassicGroups | ConsumerGroups:
        group = self._state.groups.get(group_id)
        return self._classic if group is None or group.kind == "classic" else self._consumer


def _filter(names: Sequence[str]) -> set[str]:
    return {name.strip().lower() for name in names}
