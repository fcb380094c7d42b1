"""One member of a quorum, whose peers are played by the test."""

from random import Random
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cluster.raft import Quorum, QuorumConfig, Role, VoteState, rpc
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.rpc import LeaderHint
from penstock.cluster.raft.voters import VoterSet
from tests.unit.raft.cluster import CLUSTER_ID, LISTENER, SeededRandom, batch_of, key, voter
from tests.unit.raft.memory_log import MemoryLog

NONE = ErrorCode.none


class Alone:
    """A member whose peers are played by the test. Syncs are done when asked for."""

    def __init__(
        self,
        voters: tuple[int, ...] = (1, 2, 3),
        state: VoteState | None = None,
        epochs: tuple[int, ...] = (),
        node_id: int = 1,
        **config: Any,
    ) -> None:
        self.log = MemoryLog()
        for epoch in epochs:
            self.log.append(batch_of(b"value"), epoch, 0)
        self.log.sync(len(epochs))
        self.quorum = Quorum(
            QuorumConfig(CLUSTER_ID, LISTENER, **config),
            voter(node_id),
            self.log,
            SeededRandom(Random(1)),
            state or VoteState(),
            VoterSet(map(voter, voters)),
            kraft_version=1,
        )
        self.now_ms = 0
        self.effects: list[raft_effects.Effect] = []
        self.quorum.start(0)
        self.perform()

    def perform(self) -> None:
        while effects := self.quorum.take_effects():
            self.effects += effects
            for effect in effects:
                if isinstance(effect, raft_effects.Sync):
                    self.log.sync(effect.end_offset)
                    self.quorum.synced(effect, self.now_ms)

    def ask(self, request: rpc.Request) -> Any:
        """The answer, or None while it waits."""
        self.quorum.request(len(self.effects), request, self.now_ms)
        token = len(self.effects)
        self.perform()
        answers = [one for one in self.effects[token:] if isinstance(one, raft_effects.Answer) and one.token == token]
        return answers[0].response if answers else None

    def sent(self, kind: type) -> list[raft_effects.Send]:
        return [one for one in self.effects if isinstance(one, raft_effects.Send) and isinstance(one.request, kind)]

    def respond(self, send: raft_effects.Send, response: rpc.Response) -> None:
        self.quorum.response(send.node.id, send.correlation_id, response, self.now_ms)
        self.perform()

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.quorum.tick(self.now_ms)
        self.perform()

    def lead(self) -> "Alone":
        """Gets itself elected, and its first record committed by 2."""
        self.wait(2000)
        for _ in range(2):
            asked = self.sent(rpc.VoteRequest)[-2:]
            for send in asked:
                self.respond(send, rpc.VoteResponse(NONE, LeaderHint(-1, self.quorum.epoch), True))
        assert self.quorum.role is Role.LEADER
        self.fetch(2, self.log.end_offset)
        return self

    def fetch(self, node_id: int, offset: int, epoch: int | None = None, **fields: Any) -> Any:
        last = self.log.last_epoch if epoch is None else epoch
        request = rpc.FetchRequest(CLUSTER_ID, key(node_id), 0, 1 << 20, self.quorum.epoch, offset, last)
        return self.ask(request._replace(**fields))
