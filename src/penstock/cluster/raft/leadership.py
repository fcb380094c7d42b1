"""What a leader knows: how far each replica has come, who waits for what, and what that means for the high watermark
and for its own right to lead.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.cluster.raft.rpc import NO_OFFSET, AddVoterRequest, FetchRequest
from penstock.cluster.raft.voters import ReplicaKey, VoterSet

# As in Kafka: an observer that has not fetched for so long is forgotten.
OBSERVER_SESSION_MS = 300_000
# Kafka takes a replica for caught up enough to vote when it has been so within the hour.
CAUGHT_UP_WITHIN_MS = 3_600_000


@dataclass(slots=True)
class Replica:
    key: ReplicaKey
    end_offset: int = NO_OFFSET
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    # The leader's end at the fetch before: reaching it means having been caught up then.
    leader_end_offset: int = NO_OFFSET


class ParkedFetch(NamedTuple):
    token: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class PendingChange:
    """A change of voters that has not been answered. One at a time."""

    token: int
    deadline_ms: int
    # For an addition: what was asked, until the new voter has told its versions.
    addition: AddVoterRequest | None = None
    # The offset behind the record with the new voters; None until it is written.
    end_offset: int | None = None


@dataclass(slots=True)
class Leadership:
    own_key: ReplicaKey
    epoch: int
    # Of the record that opens the epoch: only when it is committed, all before it is.
    start_offset: int
    started_ms: int
    voters: dict[int, Replica] = field(default_factory=dict)
    observers: dict[ReplicaKey, Replica] = field(default_factory=dict)
    parked: list[ParkedFetch] = field(default_factory=list)
    pending: PendingChange | None = None
    begin_epoch_at_ms: int = 0
    is_established: bool = False
    is_resigning: bool = False

    def set_voters(self, voters: VoterSet) -> None:
        """Progress already known is kept, also of those who change sides."""
        known = {replica.key: replica for replica in [*self.voters.values(), *self.observers.values()]}
        by_id = {replica.key.id: replica for replica in self.voters.values()}
        self.voters = {}
        for voter in voters:
            replica = known.pop(voter.key, None)
            if replica is None and voter.id in by_id and by_id[voter.id].key.directory_id is None:
                # The directory was not known until now.
                replica = by_id[voter.id]
                known.pop(replica.key, None)
            self.voters[voter.id] = replica or Replica(voter.key)
            self.voters[voter.id].key = voter.key
        self.observers = {key: replica for key, replica in known.items() if key != self.own_key}

    def voter(self, key: ReplicaKey) -> Replica | None:
        replica = self.voters.get(key.id)
        if replica is not None and replica.key.directory_id in (None, key.directory_id):
            return replica
        return None

    @property
    def is_voter(self) -> bool:
        return self.voter(self.own_key) is not None

    def record_fetch(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """The replica has everything below `offset`, on its disk if it votes."""
        replica = self._replica(key)
        if offset >= leader_end_offset:
            replica.last_caught_up_ms = now_ms
        elif 0 <= replica.leader_end_offset <= offset:
            replica.last_caught_up_ms = replica.last_fetch_ms
        replica.leader_end_offset = leader_end_offset
        replica.last_fetch_ms = now_ms
        replica.end_offset = offset

    def record_contact(self, key: ReplicaKey, now_ms: int) -> None:
        self._replica(key).last_fetch_ms = now_ms

    def _replica(self, key: ReplicaKey) -> Replica:
        return self.voter(key) or self.observers.setdefault(key, Replica(key))

    def forget_observers(self, now_ms: int) -> None:
        self.observers = {
            key: replica
            for key, replica in self.observers.items()
            if replica.last_fetch_ms is not None and now_ms - replica.last_fetch_ms < OBSERVER_SESSION_MS
        }

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        replica = self.observers.get(key)
        return (
            replica is not None
            and replica.last_caught_up_ms is not None
            and replica.last_fetch_ms is not None
            and now_ms - replica.last_fetch_ms < CAUGHT_UP_WITHIN_MS
        )

    def majority_offset(self, own_synced_offset: int) -> int:
        """Below it, everything is on the disks of a majority of the voters."""
        offsets = sorted(
            (own_synced_offset if id == self.own_key.id else replica.end_offset for id, replica in self.voters.items()),
            reverse=True,
        )
        return offsets[len(offsets) // 2]

    def contact_deadline_ms(self, timeout_ms: int) -> int | None:
        """When a majority will not have been heard of for `timeout_ms`: then somebody else may lead by now. None when
        nobody else is needed."""
        needed = len(self.voters) // 2 + 1 - int(self.is_voter)
        if needed == 0:
            return None
        own_id = self.own_key.id
        heard = [replica.last_fetch_ms or 0 for id, replica in self.voters.items() if id != own_id]
        heard.sort(reverse=True)
        return max(heard[needed - 1], self.started_ms) + timeout_ms

    def silent_voters(self, now_ms: int, interval_ms: int) -> list[int]:
        return [
            id
            for id, replica in self.voters.items()
            if id != self.own_key.id
            and (replica.last_fetch_ms is None or now_ms - replica.last_fetch_ms >= interval_ms)
        ]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, who has most of the log first."""
        others: Iterable[Replica] = (replica for id, replica in self.voters.items() if id != self.own_key.id)
        return tuple(replica.key for replica in sorted(others, key=lambda replica: -replica.end_offset))
