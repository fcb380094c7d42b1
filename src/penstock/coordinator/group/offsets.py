"""Offsets of a shard: fetched, deleted, and expired. `offset_commits` takes them, `offset_store` keeps them.

When an offset expires (KIP-211): `offsets.retention.minutes` after the group became empty; for topics that no member
of a stable group wants, and for groups that only commit, so long after the commit. Groups without members and offsets
go with their last offset. The look for them goes over a few groups at a time, so that nothing else waits for it.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Answer, Append, CoordinatorRecord, Effect
from penstock.coordinator.group.offset_store import OffsetStore, Partitions, tombstone
from penstock.coordinator.group.state import Group, ShardState
from penstock.coordinator.requests import RequestContext
from penstock.protocol.messages import Struct

_NO_OFFSET = -1
_EXPIRATION_TIMER = ("expiration",)
_OFFSETS_LOOKED_AT_PER_TICK = 2000


class Offsets:
    def __init__(self, state: ShardState, store: OffsetStore) -> None:
        self._state = state
        self._store = store
        # Topics with offsets that this shard has seen to exist, so that one missing from a view that lags behind is not
        # taken for a deleted one.
        self.seen_topics: dict[str, UUID] = {}

    # OffsetFetch

    def offset_fetch(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        is_stable_required = getattr(request, "require_stable", False)
        asked = request.groups if hasattr(request, "groups") else (request,)
        groups = [self._fetch_group(one, is_stable_required, context) for one in asked]
        body = Struct(groups=groups)
        if not hasattr(request, "groups"):
            body.error_code = groups[0].error_code
            body.topics = groups[0].topics
        return [Answer(token, body)]

    def _fetch_group(self, asked: Any, is_stable_required: bool, context: RequestContext) -> Struct:
        group = self._state.groups.get(asked.group_id)
        error = ErrorCode.none
        if group is not None:
            error = group.check_offset_fetch(getattr(asked, "member_id", None), getattr(asked, "member_epoch", -1))
        unstable_in = asked.group_id if is_stable_required else None
        topics: list[Struct] = []
        if not error and asked.topics is None:
            for name, partitions in self._store.of_group(asked.group_id).items():
                topic_id = self._state.topics.topic_id(name)
                # By ids only topics that have one can be told of.
                if topic_id is not None or context.version < 10:
                    topics.append(self._fetch_topic(name, topic_id, partitions, partitions, None, unstable_in))
        elif not error:
            topics = [self._fetch_asked(asked.group_id, topic, unstable_in) for topic in asked.topics]
        return Struct(group_id=asked.group_id, error_code=error, topics=topics)

    def _fetch_asked(self, group_id: str, topic: Any, unstable_in: str | None) -> Struct:
        if hasattr(topic, "name"):
            partitions = self._store.of_topic(group_id, topic.name)
            return self._fetch_topic(topic.name, None, topic.partition_indexes, partitions, None, unstable_in)
        name = None if topic.topic_id is None else self._state.topics.topic_name(topic.topic_id)
        if name is None:
            error = ErrorCode.unknown_topic_id
            answers = [_fetched(index, None, error) for index in topic.partition_indexes]
            return Struct(name="", topic_id=topic.topic_id, partitions=answers)
        partitions = self._store.of_topic(group_id, name)
        return self._fetch_topic(name, topic.topic_id, topic.partition_indexes, partitions, topic.topic_id, unstable_in)

    def _fetch_topic(
        self,
        name: str,
        topic_id: UUID | None,
        indexes: Iterable[int],
        partitions: Partitions,
        wanted_id: UUID | None,
        unstable_in: str | None,
    ) -> Struct:
        answers = []
        for index in indexes:
            if unstable_in is not None and self._store.is_unstable(unstable_in, name, index):
                answers.append(_fetched(index, None, ErrorCode.unstable_offset_commit))
                continue
            committed = partitions.get(index)
            value = None if committed is None else committed.value
            if value is not None and wanted_id is not None and value.topic_id not in (None, wanted_id):
                # The offset is of an earlier topic of that name.
                value = None
            answers.append(_fetched(index, value, ErrorCode.none))
        return Struct(name=name, topic_id=topic_id, partitions=answers)

    # OffsetDelete

    def offset_delete(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        group = self._state.groups.get(request.group_id)
        if not request.group_id:
            return [_delete_failed(token, ErrorCode.invalid_group_id)]
        if group is None:
            return [_delete_failed(token, ErrorCode.group_id_not_found)]
        if error := group.check_offset_delete():
            return [_delete_failed(token, error)]
        records: list[CoordinatorRecord] = []
        topics = [
            Struct(
                name=topic.name,
                partitions=[
                    Struct(
                        partition_index=partition.partition_index,
                        error_code=self._delete(group, topic.name, partition.partition_index, records),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        answer = Answer(token, Struct(error_code=ErrorCode.none, topics=topics))
        return [Append(records), answer] if records else [answer]

    def _delete(self, group: Group, topic: str, partition: int, records: list[CoordinatorRecord]) -> ErrorCode:
        partition_count = self._state.topics.partition_count(topic)
        if partition_count is None or not 0 <= partition < partition_count:
            return ErrorCode.unknown_topic_or_partition
        if group.is_subscribed_to(topic):
            return ErrorCode.group_subscribed_to_topic
        is_pending = self._store.is_unstable(group.group_id, topic, partition)
        if is_pending or self._store.get(group.group_id, topic, partition) is not None:
            records.append(tombstone(group.group_id, topic, partition))
        return ErrorCode.none

    # Expiration

    def schedule_expiration(self, now_ms: int) -> None:
        at_ms = now_ms + self._state.settings["offsets.retention.check.interval.ms"]
        self._state.timers.schedule(_EXPIRATION_TIMER, at_ms, lambda at: self._expire(list(self._state.groups), at))

    def _expire(self, group_ids: list[str], now_ms: int) -> list[Effect]:
        records: list[CoordinatorRecord] = []
        looked_at = 0
        while group_ids and looked_at < _OFFSETS_LOOKED_AT_PER_TICK:
            group = self._state.groups.get(group_ids.pop())
            if group is not None:
                looked_at += 1 + sum(map(len, self._store.of_group(group.group_id).values()))
                records += self._expire_group(group, now_ms)
        if group_ids:
            self._state.timers.schedule(_EXPIRATION_TIMER, now_ms, lambda at: self._expire(group_ids, at))
        else:
            self.schedule_expiration(now_ms)
        return [Append(records)] if records else []

    def _expire_group(self, group: Group, now_ms: int) -> list[CoordinatorRecord]:
        retention_ms = self._state.settings["offsets.retention.minutes"] * 60_000
        records = []
        is_anything_kept = self._store.has_open_transaction(group.group_id)
        for topic, partitions in self._store.of_group(group.group_id).items():
            is_subscribed = group.is_subscribed_to(topic)
            for partition, committed in partitions.items():
                ages_from_ms = group.offsets_age_from(committed.value.commit_timestamp)
                if ages_from_ms is None or is_subscribed:
                    is_anything_kept = True
                    continue
                expires_ms = committed.value.expire_timestamp
                if expires_ms == -1:
                    expires_ms = ages_from_ms + retention_ms
                if now_ms >= expires_ms and not self._store.is_unstable(group.group_id, topic, partition):
                    records.append(tombstone(group.group_id, topic, partition))
                else:
                    is_anything_kept = True
        if not is_anything_kept and group.is_empty():
            records += group.tombstones()
        return records

    # Topics that go

    def on_topics_changed(self) -> list[Effect]:
        """Offsets of topics that were deleted go too, or a new topic of that name would begin with them."""
        records: list[CoordinatorRecord] = []
        still_seen = {}
        for topic in self._store.topics():
            topic_id = self._state.topics.topic_id(topic)
            seen_id = self.seen_topics.get(topic)
            if seen_id is not None and topic_id != seen_id:
                records += self._store.tombstones_of_topic(topic)
            if topic_id is not None:
                still_seen[topic] = topic_id
        self.seen_topics = still_seen
        return [Append(records)] if records else []

    def note_topic(self, name: str) -> None:
        """Offsets of this topic, which is none of `seen_topics`, were replayed."""
        topic_id = self._state.topics.topic_id(name)
        if topic_id is not None:
            self.seen_topics[name] = topic_id


def _fetched(partition: int, value: Any | None, error: ErrorCode) -> Struct:
    if value is None:
        return Struct(
            partition_index=partition,
            committed_offset=_NO_OFFSET,
            committed_leader_epoch=-1,
            metadata="",
            error_code=error,
        )
    return Struct(
        partition_index=partition,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        error_code=error,
    )


def _delete_failed(token: int, error: ErrorCode) -> Answer:
    return Answer(token, Struct(error_code=error, topics=()))
