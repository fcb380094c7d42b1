"""OffsetCommit and TxnOffsetCommit.

Topics and partitions that are not there are refused one by one. For the others the group says whether it takes commits
of this member and generation (by KIP-1251 perhaps of some partitions only), and each becomes a record.
"""

from typing import Any, NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.coordinator.effects import Answer, Append, CoordinatorRecord, Effect
from penstock.coordinator.group.records import OffsetCommitKey, OffsetCommitValue
from penstock.coordinator.group.requests import fits_record, instance_id_of
from penstock.coordinator.group.state import PartitionCheck, ShardState
from penstock.coordinator.requests import RequestContext, milliseconds
from penstock.protocol.messages import Struct

# Up to here a client may say how long its offsets are to be kept.
_COMMIT_HAS_RETENTION_UNTIL = 4
# From here on a client may be a static member.
_COMMIT_HAS_INSTANCE_FROM = 7
# From here on a commit to a group that is not there is told so, rather than that its generation is wrong.
_COMMIT_TELLS_NOT_FOUND = 9
_new_tuple = tuple.__new__


class PartitionOutcome(NamedTuple):
    """What becomes of one offset, in the answer."""

    partition_index: int
    error_code: ErrorCode


class TopicOutcome(NamedTuple):
    name: str
    topic_id: UUID | None
    partitions: list[PartitionOutcome]


class OffsetCommits:
    def __init__(self, state: ShardState) -> None:
        self._state = state

    def offset_commit(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        expire_ms = -1
        if context.version <= _COMMIT_HAS_RETENTION_UNTIL:
            retention_ms = milliseconds(request.retention_time)
            expire_ms = -1 if retention_ms == -1 else now_ms + retention_ms
        return self._commit(token, request, self.check(request, context), now_ms, expire_ms)

    def txn_offset_commit(self, token: int, request: Any, context: RequestContext, now_ms: int) -> list[Effect]:
        """The records are part of the transaction of the request's producer; whether that is open, the shell knows."""
        return [
            effect._replace(producer_id=request.producer_id, producer_epoch=request.producer_epoch)
            if isinstance(effect, Append)
            else effect
            for effect in self._commit(token, request, self._check_in_transaction(request, context), now_ms, -1)
        ]

    def check(self, request: Any, context: RequestContext) -> ErrorCode | PartitionCheck:
        """What the group says to a commit of this member and generation."""
        generation = request.generation_id_or_member_epoch
        group = self._state.groups.get(request.group_id)
        if group is None:
            if not fits_record(request.group_id):
                return ErrorCode.invalid_group_id
            # Without a generation it is a consumer that only keeps offsets here: replaying them makes its group.
            if generation < 0:
                return ErrorCode.none
            is_told = context.version >= _COMMIT_TELLS_NOT_FOUND
            return ErrorCode.group_id_not_found if is_told else ErrorCode.illegal_generation
        instance_id = request.group_instance_id if context.version >= _COMMIT_HAS_INSTANCE_FROM else None
        return group.check_offset_commit(request.member_id, instance_id, generation, False, context.version)

    def _check_in_transaction(self, request: Any, context: RequestContext) -> ErrorCode | PartitionCheck:
        if not fits_record(request.group_id):
            return ErrorCode.invalid_group_id
        generation = getattr(request, "generation_id", -1)
        group = self._state.groups.get(request.group_id)
        if group is None:
            return ErrorCode.none if generation < 0 else ErrorCode.illegal_generation
        verdict = group.check_offset_commit(
            getattr(request, "member_id", ""), instance_id_of(request), generation, True, context.version
        )
        # Producers know generations only.
        return ErrorCode.illegal_generation if verdict == ErrorCode.stale_member_epoch else verdict

    def _commit(
        self, token: int, request: Any, verdict: ErrorCode | PartitionCheck, now_ms: int, expire_ms: int
    ) -> list[Effect]:
        # Hot: groups commit all the time, and the inner loop runs for every offset.
        group_id = request.group_id
        records: list[CoordinatorRecord] = []
        topics: list[TopicOutcome] = []
        for topic in request.topics:
            name, topic_id, error = self._resolve(topic)
            partition_count = self._state.topics.partition_count(name) or 0
            # The one version of the record that keeps an expiration has no room for the id.
            topic_id_kept = topic_id if expire_ms == -1 else None
            outcomes: list[PartitionOutcome] = []
            for partition in topic.partitions:
                index = partition.partition_index
                metadata = partition.committed_metadata or ""
                code = error
                if not code and not 0 <= index < partition_count:
                    code = ErrorCode.unknown_topic_or_partition
                if verdict and not code:
                    code = verdict if isinstance(verdict, ErrorCode) else verdict(name, index)
                if metadata and not code and len(metadata) > self._state.settings["offset.metadata.max.bytes"]:
                    code = ErrorCode.offset_metadata_too_large
                if not code:
                    value = OffsetCommitValue(
                        offset=partition.committed_offset,
                        leader_epoch=getattr(partition, "committed_leader_epoch", -1),
                        metadata=metadata,
                        commit_timestamp=now_ms,
                        expire_timestamp=expire_ms,
                        topic_id=topic_id_kept,
                    )
                    key = OffsetCommitKey(group=group_id, topic=name, partition=index)
                    records.append(_new_tuple(CoordinatorRecord, (key, value)))
                outcomes.append(_new_tuple(PartitionOutcome, (index, code)))
            if outcomes:
                # As in Kafka, a topic that was named without partitions is not mentioned in the answer.
                topics.append(TopicOutcome(name, topic_id, outcomes))
        answer = Answer(token, Struct(topics=topics))
        return [Append(records), answer] if records else [answer]

    def _resolve(self, topic: Any) -> tuple[str, UUID | None, ErrorCode]:
        """(name, id, error) of a topic that the request names one way or the other."""
        if not hasattr(topic, "name"):
            name = None if topic.topic_id is None else self._state.topics.topic_name(topic.topic_id)
            return name or "", topic.topic_id, ErrorCode.none if name is not None else ErrorCode.unknown_topic_id
        topic_id = self._state.topics.topic_id(topic.name)
        return topic.name, topic_id, ErrorCode.none if topic_id else ErrorCode.unknown_topic_or_partition
