"""A quorum in bad weather, from one seed: what befalls it, apart from what must hold (checkers.py)."""

from penstock.cluster.raft import Quorum, QuorumConfig
from penstock.cluster.raft.rpc import AddVoterRequest, RemoveVoterRequest
from tests.unit.raft.checkers import Checkers, Violation
from tests.unit.raft.cluster import CLUSTER_ID, LISTENER, Cluster, Weather, key, voter

CONVERGENCE_MS = 30_000
_VOTERS_MIN = 2


class Simulation:
    def __init__(self, seed: int, quorum_class: type[Quorum] = Quorum, *, over_the_wire: bool = False) -> None:
        self.seed = seed
        voter_count = 3 + seed % 3
        config = QuorumConfig(
            CLUSTER_ID,
            LISTENER,
            sync_as_observer=True,
            # Half of the clusters get one batch at a time, the others all there is.
            fetch_bytes_max=100 if seed % 2 else 1 << 20,
        )
        self.cluster = Cluster(
            seed,
            list(range(1, voter_count + 1)),
            [voter_count + 1],
            quorum_class=quorum_class,
            config=config,
            over_the_wire=over_the_wire,
        )
        self.checkers = Checkers(self.cluster)
        self._random = self.cluster.random
        self._value = 0
        self._is_over = False

    def run(self, steps: int) -> None:
        """Raises Violation."""
        random = self._random
        cluster = self.cluster
        cluster.weather = Weather(
            delay_ms_max=random.choice([5, 20, 100]),
            long_delay_chance=random.choice([0, 0.01, 0.05]),
            loss_chance=random.choice([0, 0.02, 0.1]),
            double_chance=random.choice([0, 0.02, 0.1]),
            crash_chance=random.choice([0, 0.0005, 0.003]),
            sync_ms_max=random.choice([2, 8, 50]),
            refusal_chance=random.choice([0, 0.7, 1]),
        )
        cluster.start()
        self._again(self._propose, 20, 60)
        self._again(self._mishap, 100, 1500)
        self._again(self._restart_some, 50, 1000)
        for _ in range(steps):
            self._step()
        self._is_over = True
        self._converge()

    def _step(self) -> None:
        if not self.cluster.step():
            raise Violation("liveness: nothing is going to happen any more")
        self.checkers.check()

    def _again(self, act, pause_ms_min: int, pause_ms_max: int) -> None:  # type: ignore[no-untyped-def]
        def happen() -> None:
            if not self._is_over:
                act()
                self._again(act, pause_ms_min, pause_ms_max)

        self.cluster.at(self.cluster.now_ms + self._random.randint(pause_ms_min, pause_ms_max), happen)

    def _propose(self) -> None:
        for member in self.cluster.members.values():
            if member.quorum is not None and member.quorum.is_leading:
                self._value += 1
                self.cluster.propose(member.id, f"value {self._value}".encode())

    def _restart_some(self) -> None:
        for member in self.cluster.members.values():
            if member.quorum is None and self._random.random() < 0.5:
                self.cluster.start(member.id)

    def _mishap(self) -> None:
        random, cluster = self._random, self.cluster
        anybody = random.choice(list(cluster.members))
        leader = cluster.leader()
        victim = leader.id if leader is not None and random.random() < 0.5 else anybody
        match random.choice(
            ["crash", "crash", "isolate", "one way", "heal", "heal", "pause", "snapshot", "voters", "resign"]
        ):
            case "crash":
                cluster.crash(victim)
            case "isolate":
                cluster.isolate(victim)
            case "one way":
                cluster.block(victim, random.choice([other for other in cluster.members if other != victim]))
            case "heal":
                cluster.heal()
            case "pause":
                member = cluster.members[victim]
                member.paused_until_ms = max(member.paused_until_ms, cluster.now_ms + random.randint(10, 4000))
            case "snapshot":
                cluster.take_snapshot(victim)
            case "voters":
                self._change_voters()
            case "resign":
                cluster.call(victim, lambda quorum: quorum.resign(quorum.epoch, cluster.now_ms))

    def _change_voters(self) -> None:
        leader = self.cluster.leader()
        if leader is None or leader.quorum is None:
            return
        voters = leader.quorum.voters
        others = [node_id for node_id in self.cluster.members if voters.get(node_id) is None]
        if others and (len(voters) <= _VOTERS_MIN or self._random.random() < 0.6):
            added = self._random.choice(others)
            self.cluster.ask(leader.id, AddVoterRequest(CLUSTER_ID, key(added), voter(added).endpoints))
        elif len(voters) > _VOTERS_MIN:
            self.cluster.ask(leader.id, RemoveVoterRequest(CLUSTER_ID, key(self._random.choice(voters.ids))))

    def _converge(self) -> None:
        """Once all is well, a leader is found and everybody gets everything."""
        cluster = self.cluster
        cluster.weather = Weather()
        cluster.heal()
        for member in cluster.members.values():
            if member.quorum is None:
                cluster.start(member.id)
        deadline_ms = cluster.now_ms + CONVERGENCE_MS
        proposal: tuple[int, int | None] = (-1, None)
        while proposal[1] is None or any(one.applied_offset < proposal[1] for one in cluster.members.values()):
            if cluster.now_ms > deadline_ms:
                state = {
                    one.id: one.quorum and (one.quorum.role.name, one.quorum.epoch, one.applied_offset)
                    for one in cluster.members.values()
                }
                raise Violation(f"liveness: no convergence in {CONVERGENCE_MS} ms: {state}")
            self._step()
            leader = cluster.leader()
            if (
                leader is not None
                and leader.quorum is not None
                and leader.quorum.is_leading
                and proposal[0] != leader.quorum.epoch
            ):
                # What an earlier leader proposed may have been lost with it.
                proposal = leader.quorum.epoch, cluster.propose(leader.id, b"the end")
        if cluster.faults:
            raise Violation(f"peers contradicted each other: {cluster.faults}")
