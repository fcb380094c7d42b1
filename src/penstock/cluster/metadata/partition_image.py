"""One partition in the metadata: who holds it, who is in sync, who leads.

The in-sync replicas (ISR) hold everything acknowledged. The eligible leader replicas (ELR, KIP-966) left the ISR
when it was smaller than `min.insync.replicas`, and hold everything too: while the ISR is that small the high watermark
stands still. The two are disjoint.
"""

import uuid
from collections.abc import Callable
from typing import Any

from penstock.cluster.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERY_UNCHANGED,
    PartitionChangeRecord,
    PartitionRecord,
)

# Gives back an equal tuple that is there already: equal tuples are shared between partitions.
Share = Callable[[tuple[Any, ...] | None], tuple[Any, ...]]


class PartitionImage:
    """Small, for there are many."""

    __slots__ = (
        "adding_replicas",
        "directories",
        "eligible_leader_replicas",
        "index",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "topic_id",
    )

    def __init__(self, topic_id: uuid.UUID, record: PartitionRecord, share: Share) -> None:
        self.topic_id = topic_id
        self.index = record.partition_id
        self.replicas: tuple[int, ...] = share(record.replicas)
        self.isr: tuple[int, ...] = share(record.isr)
        self.removing_replicas: tuple[int, ...] = share(record.removing_replicas)
        self.adding_replicas: tuple[int, ...] = share(record.adding_replicas)
        self.eligible_leader_replicas: tuple[int, ...] = share(record.eligible_leader_replicas)
        # Of KIP-966's two uses of the field, this is the leader that was there when the ISR became empty.
        self.last_known_elr: tuple[int, ...] = share(record.last_known_elr)
        self.directories: tuple[uuid.UUID | None, ...] = share(record.directories)
        self.leader = record.leader
        self.leader_epoch = record.leader_epoch
        self.leader_recovery_state = record.leader_recovery_state
        self.partition_epoch = record.partition_epoch

    def apply(self, record: PartitionChangeRecord, share: Share) -> None:
        if record.isr is not None:
            self.isr = share(record.isr)
        if record.eligible_leader_replicas is not None:
            self.eligible_leader_replicas = share(record.eligible_leader_replicas)
        if record.last_known_elr is not None:
            self.last_known_elr = share(record.last_known_elr)
        if record.replicas is not None:
            self.replicas = share(record.replicas)
        if record.removing_replicas is not None:
            self.removing_replicas = share(record.removing_replicas)
        if record.adding_replicas is not None:
            self.adding_replicas = share(record.adding_replicas)
        if record.directories is not None:
            self.directories = share(record.directories)
        if record.leader != LEADER_UNCHANGED:
            self.leader = record.leader
            self.leader_epoch += 1
        if record.leader_recovery_state != RECOVERY_UNCHANGED:
            self.leader_recovery_state = record.leader_recovery_state
        self.partition_epoch += 1

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, broker_id: int) -> uuid.UUID | None:
        return self.directories[self.replicas.index(broker_id)] if broker_id in self.replicas else None
