"""How one partition changes: from what somebody wants of it (another ISR, other replicas, an election) to the record.

Every change goes the same way, as in Kafka: a reassignment whose new replicas are in sync is completed; who leaves an
ISR below `min.insync.replicas` joins the eligible leaders (KIP-966); then a leader is elected, if the present one will
not do. Whoever is elected cleanly holds everything that was acknowledged:

1. a member of the ISR; where that is empty, one of the ELR, who then is the ISR;
2. where both are empty, because everybody was lost and came back without a clean shutdown: the last known leader, since
   a process that was killed has mostly lost nothing;
3. any live replica, where the topic asks for that (`unclean.leader.election.enable`) or a person does.

The second and third are unclean: the new leader is marked as recovering, and is the whole ISR.
"""

import enum
from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    RECOVERING,
    RECOVERY_UNCHANGED,
    PartitionChangeRecord,
)

Ids = tuple[int, ...]


class Election(enum.Enum):
    """Which leader is wanted."""

    # The present one, if it will do.
    ONLINE = enum.auto()
    # The first replica, if it will do.
    PREFERRED = enum.auto()
    # As ONLINE; anybody who lives, rather than nobody.
    UNCLEAN = enum.auto()


class PartitionChange:
    """What a partition shall become. Set what is wanted, then ask for the `record`."""

    __slots__ = (
        "_is_unclean",
        "_partition",
        "adding",
        "election",
        "elr",
        "has_elr",
        "is_acceptable_leader",
        "isr",
        "isr_min",
        "recovery_state",
        "removing",
        "replicas",
        "unclean_shutdown",
    )

    def __init__(
        self,
        partition: PartitionImage,
        is_acceptable_leader: Callable[[int], bool],
        isr_min: int,
        *,
        has_elr: bool,
        election: Election = Election.ONLINE,
    ) -> None:
        """`isr_min` is `min.insync.replicas`, but no more than there are replicas; `has_elr` whether the cluster keeps
        eligible leaders (the feature eligible.leader.replicas.version)."""
        self._partition = partition
        self._is_unclean = False
        self.is_acceptable_leader = is_acceptable_leader
        self.isr_min = isr_min
        self.has_elr = has_elr
        self.election = election
        self.isr: Ids = partition.isr
        self.elr: Ids = partition.eligible_leader_replicas
        self.replicas: Ids = partition.replicas
        self.removing: Ids = partition.removing_replicas
        self.adding: Ids = partition.adding_replicas
        self.recovery_state = partition.leader_recovery_state
        # Who may have lost acknowledged records, and so is in neither ISR nor ELR.
        self.unclean_shutdown: Collection[int] = ()

    def record(self, directory_of: Callable[[int], UUID | None]) -> PartitionChangeRecord | None:
        """None where nothing changes. `directory_of` tells in which directory a broker puts a new replica."""
        partition = self._partition
        self._complete_reassignment()
        self._move_to_elr()
        leader = self._elect()
        if leader == LEADER_UNCHANGED and not set(partition.replicas) <= set(self.replicas):
            # A new leader epoch makes sure that nobody takes a replica that was removed for one that counts.
            leader = partition.leader
        if not self.isr and not self.has_elr and not self._is_unclean:
            # Without an ELR the last member stays, to be waited for.
            self.isr = partition.isr
        last_known = self._last_known_leader(leader)
        recovery_state = self.recovery_state
        if self._is_unclean and partition.leader_recovery_state != RECOVERING:
            recovery_state = RECOVERING
        directories = partition.directories
        if self.replicas != partition.replicas:
            present = dict(zip(partition.replicas, partition.directories, strict=False))
            directories = tuple(
                present[replica] if replica in present else directory_of(replica) for replica in self.replicas
            )
        if (
            leader == LEADER_UNCHANGED
            and last_known is None
            and self.isr == partition.isr
            and self.elr == partition.eligible_leader_replicas
            and self.replicas == partition.replicas
            and self.removing == partition.removing_replicas
            and self.adding == partition.adding_replicas
            and recovery_state == partition.leader_recovery_state
        ):
            return None
        return PartitionChangeRecord(
            partition_id=partition.index,
            topic_id=partition.topic_id,
            isr=_if_changed(self.isr, partition.isr),
            leader=leader,
            replicas=_if_changed(self.replicas, partition.replicas),
            removing_replicas=_if_changed(self.removing, partition.removing_replicas),
            adding_replicas=_if_changed(self.adding, partition.adding_replicas),
            leader_recovery_state=(
                RECOVERY_UNCHANGED if recovery_state == partition.leader_recovery_state else recovery_state
            ),
            eligible_leader_replicas=_if_changed(self.elr, partition.eligible_leader_replicas),
            last_known_elr=last_known,
            directories=None if directories == partition.directories else directories,
        )

    def _complete_reassignment(self) -> None:
        """Done when all that are to stay are in sync."""
        if not self.adding and not self.removing:
            return
        replicas = _without(self.replicas, self.removing)
        isr = _without(self.isr, self.removing)
        if not isr or not replicas or not set(replicas) <= set(isr):
            return
        self.replicas, self.isr, self.removing, self.adding = replicas, isr, (), ()

    def _move_to_elr(self) -> None:
        if not self.has_elr or len(self.isr) >= self.isr_min:
            self.elr = ()
            return
        candidates = {*self.elr, *self._partition.isr}
        candidates.difference_update(self.isr, self.unclean_shutdown)
        candidates.intersection_update(self.replicas)
        self.elr = tuple(sorted(candidates))

    def _elect(self) -> int:
        """The new leader, NO_LEADER or LEADER_UNCHANGED; ISR and ELR become as it makes them."""
        present = self._partition.leader
        leader = self._choose(present)
        if leader == present:
            return LEADER_UNCHANGED
        if leader in self.elr:
            self.isr = (leader,)
            # A leader that needs no other in sync leaves them behind.
            self.elr = () if self.isr_min <= 1 else _without(self.elr, (leader,))
        elif self._is_unclean:
            self.isr = (leader,)
            self.elr = ()
        return leader

    def _choose(self, present: int) -> int:
        first: Sequence[int] = (present,)
        if self.election is Election.PREFERRED and self.replicas:
            first = (self.replicas[0], present)
        for candidates in (first, self.replicas):
            for replica in candidates:
                if self._is_clean_leader(replica):
                    return replica
        if self._can_elect_last_known():
            self._is_unclean = True
            return self._partition.last_known_elr[0]
        if self.election is Election.UNCLEAN:
            for replica in self.replicas:
                if self.is_acceptable_leader(replica):
                    self._is_unclean = True
                    return replica
        return NO_LEADER

    def _is_clean_leader(self, replica: int) -> bool:
        return (replica in self.isr or (not self.isr and replica in self.elr)) and self.is_acceptable_leader(replica)

    def _can_elect_last_known(self) -> bool:
        last_known = self._partition.last_known_elr
        return (
            self.has_elr
            and not self.isr
            and not self.elr
            and len(last_known) == 1
            and last_known[0] in self.replicas
            and self.is_acceptable_leader(last_known[0])
        )

    def _last_known_leader(self, leader: int) -> Ids | None:
        """Who led when the ISR became empty is remembered until somebody leads again. None: as before."""
        partition = self._partition
        if not self.has_elr:
            return () if partition.last_known_elr else None
        if not self.isr:
            if partition.leader == NO_LEADER or partition.last_known_elr == (partition.leader,):
                return None
            return (partition.leader,)
        leads = leader if leader != LEADER_UNCHANGED else partition.leader
        return () if leads != NO_LEADER and partition.last_known_elr else None


def _without(ids: Ids, removed: Collection[int]) -> Ids:
    return tuple(one for one in ids if one not in removed)


def _if_changed(wanted: Ids, present: Ids) -> Ids | None:
    return None if wanted == present else wanted
