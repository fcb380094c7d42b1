"""Clients that do anything in any order, time that passes, coordinators that fail: what must hold all the same.

Invariants 16 (no partition is owned by two members of one generation, generations only grow, stale commits are
refused) and 17 (acknowledged commits survive a failover and never go back), and that no request waits for ever.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.unit.group.classic_members import ClassicClient
from tests.unit.group.coordinator import Coordinator

PARTITIONS = 4
NAMES = ["a", "b", "c", "static-1", "static-2"]
LONG_MS = 20 * 60 * 1000
names = st.sampled_from(NAMES)


class Client(ClassicClient):
    def __init__(self, coordinator: Coordinator, name: str) -> None:
        super().__init__(
            coordinator,
            name,
            instance_id=name if name.startswith("static") else None,
            protocols=("range", "sticky") if name in ("a", "static-1") else ("sticky", "range"),
            session_ms=6_000 if name == "b" else 10_000,
            # Shorter than a session, so that static members may miss a generation.
            rebalance_ms=5_000,
        )
        self.joins: list[int] = []
        self.syncs: list[tuple[int, int]] = []
        self.members: list[str] = []
        self.is_leader = False

    def forget(self) -> None:
        """The process is started anew."""
        self.member_id, self.generation, self.is_leader = "", -1, False
        self.joins, self.syncs = [], []


class Groups(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3000]))
    def start(self, delay_ms: int) -> None:
        self.coordinator = Coordinator(
            group_initial_rebalance_delay_ms=delay_ms,
            group_max_size=4,
            # An empty group without offsets would be forgotten, and a new one of its name begins from the beginning.
            offsets_retention_check_interval_ms=10**9,
        )
        self.coordinator.topics.set("t", PARTITIONS)
        self.clients = {name: Client(self.coordinator, name) for name in NAMES}
        self.owners: dict[tuple[int, int], str] = {}
        self.latest_generation = -1
        self.offsets: dict[int, int] = {}

    @rule(name=names, version=st.sampled_from([3, 8, 9]))
    def join(self, name: str, version: int) -> None:
        client = self.clients[name]
        client.joins.append(client.join(version))
        self.collect()

    @rule(name=names)
    def sync(self, name: str) -> None:
        client = self.clients[name]
        assignments: dict[str, bytes] = {}
        if client.is_leader:
            for partition in range(PARTITIONS):
                member_id = client.members[partition % len(client.members)]
                assignments[member_id] = assignments.get(member_id, b"") + bytes([partition])
        client.syncs.append((client.sync(assignments), client.generation))
        self.collect()

    @rule(who=st.sets(names, min_size=1), is_patient=st.booleans())
    def settle(self, who: set[str], is_patient: bool) -> None:
        """Some of them go about it as they should, which anything in any order seldom does."""
        for name in sorted(who):
            if not self.clients[name].joins:
                self.join(name, 9)
        if is_patient:
            self.advance(6_000)
        for name in sorted(who, key=lambda name: self.clients[name].is_leader):
            self.sync(name)

    @rule(name=names)
    def heartbeat(self, name: str) -> None:
        self.clients[name].heartbeat()
        self.collect()

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.clients[name].leave()
        self.collect()
        self.clients[name].forget()

    @rule(name=names)
    def restart_client(self, name: str) -> None:
        self.clients[name].forget()

    @rule(name=names, partition=st.integers(0, PARTITIONS - 1), offset=st.integers(0, 1000))
    def commit(self, name: str, partition: int, offset: int) -> None:
        client = self.clients[name]
        if client.commit("t", partition, offset) == "none":
            # One without a generation is not a member's, and is taken while the group has none.
            if client.generation >= 0:
                assert client.generation >= self.latest_generation, "a commit of the past was taken"
            self.offsets[partition] = offset
        self.collect()

    @rule(duration_ms=st.sampled_from([0, 1, 2_999, 5_000, 10_000, 300_000]))
    def advance(self, duration_ms: int) -> None:
        self.coordinator.advance(duration_ms)
        self.collect()

    @rule()
    def fail_over(self) -> None:
        self.coordinator.restart()
        for client in self.clients.values():
            client.joins, client.syncs = [], []

    def collect(self) -> None:
        """The clients read what they were answered."""
        answers = self.coordinator.answers
        for client in self.clients.values():
            for token in [token for token in client.joins if token in answers]:
                client.joins.remove(token)
                self._joined(client, client.take(token))
            for token, generation in [sync for sync in client.syncs if sync[0] in answers]:
                client.syncs.remove((token, generation))
                answer = answers.pop(token)
                if not answer.error_code:
                    self._synced(client, generation, answer.assignment)

    def _joined(self, client: Client, answer: Any) -> None:
        if answer.error_code:
            client.is_leader = False
            return
        client.is_leader = answer.leader == answer.member_id and not getattr(answer, "skip_assignment", False)
        client.members = [member.member_id for member in answer.members]
        assert not client.is_leader or client.member_id in client.members

    def _synced(self, client: Client, generation: int, assignment: bytes) -> None:
        assert generation >= self.latest_generation, "a generation came back"
        self.latest_generation = generation
        for partition in assignment:
            owner = self.owners.setdefault((generation, partition), client.name)
            assert owner == client.name, "two members own a partition"

    @invariant()
    def acknowledged_commits_are_there(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        answer = self.coordinator.ask("offset_fetch", 7, group_id="g", topics=None)
        found = {one.partition_index: one.committed_offset for topic in answer.topics for one in topic.partitions}
        assert found == self.offsets

    def teardown(self) -> None:
        if not hasattr(self, "coordinator"):
            return
        self.coordinator.advance(LONG_MS)
        self.collect()
        for client in self.clients.values():
            assert not client.joins, "a JoinGroup waits for ever"
            assert not client.syncs, "a SyncGroup waits for ever"
        state = self.coordinator.ask("describe_groups", groups=["g"]).groups[0].group_state
        assert state in ("Empty", "Dead"), "a member outlives its session"


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
