"""Committed offsets by group, topic and partition, and those of transactions that are not decided yet.

Changed by replaying records only. A transaction's offsets wait under its producer id until its marker is replayed; of
a transactional and a plain commit for one partition the one that came later in the log counts, whichever way the
marker fell, since compaction may take away the record in between.
"""

from collections.abc import Iterator
from typing import NamedTuple

from penstock.coordinator.effects import NO_PRODUCER_ID, CoordinatorRecord
from penstock.coordinator.group.records import OffsetCommitKey, OffsetCommitValue


class Committed(NamedTuple):
    value: OffsetCommitValue
    # The how-manieth record replayed it was: orders commits as the log does.
    sequence: int


Partitions = dict[int, Committed]
_Offsets = dict[str, dict[str, Partitions]]
_new_tuple = tuple.__new__


class OffsetStore:
    __slots__ = ("_by_group", "_groups_by_topic", "_open_transactions", "_pending", "_sequence")

    def __init__(self) -> None:
        self._by_group: _Offsets = {}
        self._groups_by_topic: dict[str, set[str]] = {}
        self._pending: dict[int, _Offsets] = {}
        self._open_transactions: dict[str, set[int]] = {}
        self._sequence = 0

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        committed = self.of_topic(group_id, topic).get(partition)
        return None if committed is None else committed.value

    def of_group(self, group_id: str) -> dict[str, Partitions]:
        return self._by_group.get(group_id, {})

    def of_topic(self, group_id: str, topic: str) -> Partitions:
        return self._by_group.get(group_id, {}).get(topic, {})

    def topics(self) -> list[str]:
        """Topics that some group has committed offsets of."""
        return list(self._groups_by_topic)

    def has_open_transaction(self, group_id: str) -> bool:
        return group_id in self._open_transactions

    def is_unstable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change the offset yet."""
        return any(
            partition in self._pending[producer_id].get(group_id, {}).get(topic, {})
            for producer_id in self._open_transactions.get(group_id, ())
        )

    def tombstones_of_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Takes away all offsets of a group, the undecided ones too."""
        keys = {(topic, partition) for topic, partitions in self.of_group(group_id).items() for partition in partitions}
        for producer_id in self._open_transactions.get(group_id, ()):
            for topic, partitions in self._pending[producer_id].get(group_id, {}).items():
                keys.update((topic, partition) for partition in partitions)
        return [tombstone(group_id, topic, partition) for topic, partition in sorted(keys)]

    def tombstones_of_topic(self, topic: str) -> list[CoordinatorRecord]:
        """Takes away all groups' offsets of a topic that is gone."""
        return [
            tombstone(group_id, topic, partition)
            for group_id in sorted(self._groups_by_topic.get(topic, ()))
            for partition in self._by_group[group_id][topic]
        ]

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int) -> None:
        self._sequence += 1
        if value is None:
            self._remove(key)
        elif producer_id == NO_PRODUCER_ID:
            # Hot: groups commit all the time.
            committed = _new_tuple(Committed, (value, self._sequence))
            try:
                self._by_group[key.group][key.topic][key.partition] = committed
            except KeyError:
                self._put(key.group, key.topic, key.partition, committed)
        else:
            pending = self._pending.setdefault(producer_id, {}).setdefault(key.group, {}).setdefault(key.topic, {})
            pending[key.partition] = Committed(value, self._sequence)
            self._open_transactions.setdefault(key.group, set()).add(producer_id)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            open_transactions = self._open_transactions[group_id]
            open_transactions.discard(producer_id)
            if not open_transactions:
                del self._open_transactions[group_id]
            if is_committed:
                for topic, partition, committed in _walk(topics):
                    known = self.of_topic(group_id, topic).get(partition)
                    if known is None or known.sequence < committed.sequence:
                        self._put(group_id, topic, partition, committed)

    def _put(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
        self._groups_by_topic.setdefault(topic, set()).add(group_id)

    def _remove(self, key: OffsetCommitKey) -> None:
        topics = self._by_group.get(key.group, {})
        partitions = topics.get(key.topic)
        if partitions is not None:
            partitions.pop(key.partition, None)
            if not partitions:
                self._remove_topic(key.group, key.topic)
        for producer_id in self._open_transactions.get(key.group, ()):
            self._pending[producer_id].get(key.group, {}).get(key.topic, {}).pop(key.partition, None)

    def _remove_topic(self, group_id: str, topic: str) -> None:
        topics = self._by_group[group_id]
        del topics[topic]
        if not topics:
            del self._by_group[group_id]
        groups = self._groups_by_topic[topic]
        groups.discard(group_id)
        if not groups:
            del self._groups_by_topic[topic]


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def _walk(topics: dict[str, Partitions]) -> Iterator[tuple[str, int, Committed]]:
    for topic, partitions in topics.items():
        for partition, committed in partitions.items():
            yield topic, partition, committed
