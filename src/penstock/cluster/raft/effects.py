"""What the quorum wants done, in order.

The shell's duties
- Perform the effects of one input in the order given, before the next input. `Persist` is on the disk before any
  effect after it is performed: that is what makes a vote or an epoch binding.
- `Sync` may take its time and be done off the loop; the quorum goes on meanwhile. Give it back with `synced` when the
  log below its offset is on the disk. There is one at a time. If it fails, stop the quorum: what could not be written
  may be gone.
- `StoreSnapshot`: make the snapshot that was received durable, then call `snapshot_stored`.
- `Committed` is what may be applied and acted on. A controller serves from `Leading` to `StoppedLeading`; `Leading`
  comes after an entry of its own epoch was committed, so that what is applied by then is all there was.
- A proposal whose offset is not committed when `StoppedLeading` comes is undecided: it may yet be.
"""

from typing import NamedTuple
from uuid import UUID

from penstock.cluster.raft.rpc import OffsetAndEpoch, Request, Response
from penstock.cluster.raft.voters import Node, ReplicaKey

NO_NODE = -1


class VoteState(NamedTuple):
    """What must survive a crash: Kafka's quorum-state file. All of it is of `epoch`."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: UUID | None = None

    @property
    def voted_key(self) -> ReplicaKey | None:
        return None if self.voted_id == NO_NODE else ReplicaKey(self.voted_id, self.voted_directory_id)


class Persist(NamedTuple):
    state: VoteState


class Sync(NamedTuple):
    end_offset: int
    # How often the log had been cut when this was asked for: a sync from before a cut says nothing of what came after.
    truncations: int


class Send(NamedTuple):
    """A request to a peer. Its answer comes back by `response`, its failure by `failed`, or neither comes."""

    node: Node
    correlation_id: int
    request: Request


class Answer(NamedTuple):
    """The answer to the request that came with this token."""

    token: int
    response: Response


class Committed(NamedTuple):
    """Everything below is decided for good."""

    high_watermark: int


class LeaderChanged(NamedTuple):
    """The leader of a new epoch, or that there is none known (-1) yet."""

    leader_id: int
    epoch: int


class Leading(NamedTuple):
    """This node leads, and has applied everything from before its epoch once it has applied what is committed."""

    epoch: int


class StoppedLeading(NamedTuple):
    epoch: int


class StoreSnapshot(NamedTuple):
    snapshot_id: OffsetAndEpoch


class SnapshotInstalled(NamedTuple):
    """The log now begins behind this snapshot: load it in place of what was applied before."""

    snapshot_id: OffsetAndEpoch


class Fault(NamedTuple):
    """A peer said what cannot be; it was not followed. For the operator's eyes."""

    message: str


Effect = (
    Persist
    | Sync
    | Send
    | Answer
    | Committed
    | LeaderChanged
    | Leading
    | StoppedLeading
    | StoreSnapshot
    | SnapshotInstalled
    | Fault
)
