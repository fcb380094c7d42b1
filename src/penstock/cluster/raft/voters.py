"""Who votes: replicas, their addresses, and which set of voters held from which offset on (KIP-853).

A set of voters takes effect when its record is written, not when it is committed; so a truncation may bring the set
before it back, and the sets are kept as a history by offset.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

# Before any offset: what the configuration or the bootstrap snapshot says.
STATIC_OFFSET = -1
KRAFT_VERSION_STATIC = 0
KRAFT_VERSION_RECONFIGURABLE = 1


class ReplicaKey(NamedTuple):
    """A node and the directory that its metadata log is in: a node with a new disk is another replica."""

    id: int
    directory_id: UUID | None = None


class Endpoint(NamedTuple):
    listener: str
    host: str
    port: int


class Node(NamedTuple):
    """Where to send something. Bootstrap servers, whose ids nobody knows yet, have ids below -1."""

    id: int
    host: str
    port: int


class Voter(NamedTuple):
    id: int
    directory_id: UUID | None
    endpoints: tuple[Endpoint, ...] = ()
    # The range of kraft.version that the node supports.
    version_min: int = KRAFT_VERSION_STATIC
    version_max: int = KRAFT_VERSION_RECONFIGURABLE

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    def matches(self, key: ReplicaKey) -> bool:
        """A voter whose directory is not known is known by its id alone."""
        return self.id == key.id and self.directory_id in (None, key.directory_id)

    def node(self, listener: str) -> Node | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return Node(self.id, endpoint.host, endpoint.port)
        return None


class VoterSet:
    """The voters by id; never changed once made."""

    __slots__ = ("_voters",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._voters = {voter.id: voter for voter in sorted(voters, key=lambda voter: voter.id)}

    def __len__(self) -> int:
        return len(self._voters)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._voters == other._voters

    def __hash__(self) -> int:
        return hash(tuple(self._voters.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._voters)})"

    @property
    def ids(self) -> list[int]:
        return list(self._voters)

    @property
    def majority(self) -> int:
        return len(self._voters) // 2 + 1

    def get(self, voter_id: int) -> Voter | None:
        return self._voters.get(voter_id)

    def has(self, key: ReplicaKey) -> bool:
        voter = self._voters.get(key.id)
        return voter is not None and voter.matches(key)

    def is_only(self, key: ReplicaKey) -> bool:
        return len(self._voters) == 1 and self.has(key)

    def with_voter(self, voter: Voter) -> "VoterSet | None":
        """None when the id votes already."""
        return None if voter.id in self._voters else VoterSet([*self, voter])

    def without(self, key: ReplicaKey) -> "VoterSet | None":
        """None when it does not vote, or is the last one."""
        if not self.has(key) or len(self) == 1:
            return None
        return VoterSet(voter for voter in self if voter.id != key.id)

    def updated(self, voter: Voter) -> "VoterSet | None":
        """None when that replica does not vote."""
        if not self.has(voter.key):
            return None
        return VoterSet([*(other for other in self if other.id != voter.id), voter])


class VoterHistory:
    """The voter sets and kraft.versions in the log, by the offset of their records."""

    def __init__(self, static_voters: VoterSet, static_version: int) -> None:
        self._static = (static_voters, static_version)
        self._voters: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1] if self._voters else self._static[0]

    @property
    def voters_offset(self) -> int:
        return self._voters[-1][0] if self._voters else STATIC_OFFSET

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else self._static[1]

    def voters_before(self, end_offset: int) -> VoterSet:
        """As of a snapshot of everything below `end_offset`."""
        slot = bisect_right([offset for offset, _ in self._voters], end_offset - 1)
        return self._voters[slot - 1][1] if slot else self._static[0]

    def kraft_version_before(self, end_offset: int) -> int:
        slot = bisect_right([offset for offset, _ in self._versions], end_offset - 1)
        return self._versions[slot - 1][1] if slot else self._static[1]

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        self._voters.append((offset, voters))

    def add_kraft_version(self, offset: int, version: int) -> None:
        self._versions.append((offset, version))

    def truncate(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        self._voters = [entry for entry in self._voters if entry[0] < end_offset]
        self._versions = [entry for entry in self._versions if entry[0] < end_offset]

    def restart_at(self, end_offset: int, voters: VoterSet | None, kraft_version: int | None) -> None:
        """A snapshot took the log's place: what it says holds from before its end."""
        self._voters = [] if voters is None else [(end_offset - 1, voters)]
        self._versions = [] if kraft_version is None else [(end_offset - 1, kraft_version)]
