"""Who votes in the metadata quorum is changed while others work (KIP-853)."""

import contextlib

from penstock.base.errors import ErrorCode
from penstock.broker.broker import Broker
from penstock.protocol.messages import Struct
from tests.simulation.client import SimClient, Unavailable
from tests.simulation.cluster import CLUSTER_ID, PORT, SimCluster, directory_id_of
from tests.simulation.history import Violation
from tests.simulation.workload_admin import Wishes
from tests.simulation.workload_produce import Stop

_ADD_RAFT_VOTER, _REMOVE_RAFT_VOTER = 80, 81
_FIRST_VOTERS = (1, 2, 3)
_VOTERS_MIN = 2


class VoterChanger:
    """Does one thing after the other, so that the last one that was confirmed counts."""

    def __init__(self, cluster: SimCluster, stop: Stop, name: str) -> None:
        self.client = SimClient(cluster, name)
        self._stop = stop
        # Of each node: whether it votes. The first one is the quorum that the others join.
        self._wishes = {node_id: Wishes(node_id == 1) for node_id in cluster.node_ids}
        self._voters = {1}
        self.is_done = False
        self.client.run(self._run)

    @property
    def is_formed(self) -> bool:
        return self._voters.issuperset(_FIRST_VOTERS)

    async def _run(self) -> None:
        while not self.is_formed:
            with contextlib.suppress(Unavailable):
                for node_id in _FIRST_VOTERS[1:]:
                    await self._add(node_id)
            await self.client.pause(0.1)
        while not self._stop.is_set:
            await self.client.pause(2.0)
            with contextlib.suppress(Unavailable):
                node_id = self.client.random.choice(list(self._wishes))
                if node_id not in self._voters:
                    await self._add(node_id)
                elif len(self._voters) > _VOTERS_MIN:
                    await self._remove(node_id)
        self.is_done = True

    async def _add(self, node_id: int) -> None:
        body = Struct(
            cluster_id=CLUSTER_ID,
            timeout=3000,
            voter_id=node_id,
            voter_directory_id=directory_id_of(node_id),
            listeners=[Struct(name="CONTROLLER", host=f"node{node_id}", port=PORT)],
            ack_when_committed=True,
        )
        wishes = self._wishes[node_id]
        wishes.asked(True)
        code = (await self.client.ask_any(_ADD_RAFT_VOTER, body, 1)).error_code
        if code in (ErrorCode.none, ErrorCode.duplicate_voter):
            wishes.confirmed(True)
            self._voters.add(node_id)
            self.client.cluster.note(f"node {node_id} votes")

    async def _remove(self, node_id: int) -> None:
        body = Struct(cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory_id_of(node_id))
        wishes = self._wishes[node_id]
        wishes.asked(False)
        code = (await self.client.ask_any(_REMOVE_RAFT_VOTER, body, 0)).error_code
        if code in (ErrorCode.none, ErrorCode.voter_not_found):
            wishes.confirmed(False)
            self._voters.discard(node_id)
            self.client.cluster.note(f"node {node_id} votes no more")

    # The end

    def check(self, brokers: list[Broker]) -> None:
        """Nodes agree on who votes, and it is what was confirmed; what was not answered may be."""
        (voters, *others) = (tuple(sorted(broker.quorum._quorum.voters.ids)) for broker in brokers)
        if any(other != voters for other in others):
            raise Violation(15, "as decided", f"nodes do not agree on the voters: {voters}, {others}")
        for node_id, wishes in self._wishes.items():
            wishes.check(f"whether node {node_id} votes", node_id in voters)
