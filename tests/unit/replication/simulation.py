"""One partition with three replicas and the controller, driven by a seed: messages are lost, reordered and doubled,
brokers are killed, cut from power, paused, fenced by mistake and stopped cleanly. After every step the checker looks at
all of them; numbers in its messages are those of the invariants that every replicated log must keep:

1. what was acknowledged is there;
2. an offset holds one record, for ever;
3. replicas are equal below their high watermarks;
4. a leader's high watermark does not go back;
5. an epoch has one leader;
6. who is in the ISR or ELR has everything committed; the two are disjoint; nobody in the ISR is fenced;
7. who was not shut down cleanly is in neither when it registers;
8. no truncation removes what is committed.
"""

import random
from collections.abc import Callable
from typing import TypeVar

from penstock.base.errors import ErrorCode
from penstock.base.settings import NodeSettings
from penstock.cluster.metadata.alter_partition import AlteredPartition, IsrProposal
from penstock.cluster.metadata.brokers import Heartbeat, Registration
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.features import SUPPORTED_FEATURES
from penstock.cluster.metadata.image import MetadataImage, PartitionImage
from penstock.cluster.metadata.records import MetadataRecord
from penstock.cluster.metadata.topics import NewTopic
from penstock.cluster.partition.replication import ProposeIsr
from tests.unit.replication.replica_node import TOPIC, Entry, ReplicaNode

CLUSTER_ID = "simulated"

T = TypeVar("T")


class Violation(AssertionError):
    """An invariant does not hold."""


class SeededRandom:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class Simulation:
    node_class: type[ReplicaNode] = ReplicaNode
    controller_class: type[Controller] = Controller

    def __init__(self, seed: int, isr_min: int = 2) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.image = MetadataImage()
        self.records: list[MetadataRecord] = []
        self.controller = self.controller_class(self.image, NodeSettings({}), SeededRandom(seed), CLUSTER_ID)
        self.messages: list[Callable[[], None]] = []
        # Those that are held up somewhere for long.
        self.stragglers: list[Callable[[], None]] = []
        # While nothing is lost.
        self.is_calm = True
        # What leaders have committed, by offset; what clients were told.
        self.committed: list[Entry] = []
        self.acknowledged: dict[int, bytes] = {}
        self.trace: list[str] = []
        self._produced = 0
        self._tenures: dict[tuple[int, int, int], int] = {}
        self.nodes = {one: self.node_class(one, isr_min, self._check_truncation, self._commit) for one in (1, 2, 3)}
        for node in self.nodes.values():
            self._register(node)
        configs = [("min.insync.replicas", str(isr_min))]
        topic = NewTopic(TOPIC, assignments=[(0, (1, 2, 3))], configs=configs)
        for node in self.nodes.values():
            self._heartbeat(node, offset=len(self.records))
        self._decide(lambda: self.controller.create_topics([topic]))
        self.is_calm = False

    # Running

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.heal()

    def step(self) -> None:
        action = self.random.choices(list(_ACTIONS), list(_ACTIONS.values()))[0]
        self.now_ms += self.random.choice((0, 1, 2, 20))
        getattr(self, f"_do_{action}")()
        self.check()

    def heal(self) -> None:
        """Everybody runs, nothing is lost any more: all must come together."""
        self.is_calm = True
        self.messages += self.stragglers
        for node in self.nodes.values():
            if not node.is_running:
                node.start(clean=False, now_ms=self.now_ms)
        for _ in range(400):
            self.now_ms += 200
            for node in self.nodes.values():
                self._heartbeat(node)
                self._read_metadata(node, len(self.records))
                self._tick(node)
                self._time_out(node)
                self._fetch(node)
            while self.messages:
                self.messages.pop(0)()
            self.check()
            if self._is_whole():
                break
        leader = next((node for node in self.nodes.values() if node.leader.is_leading), None)
        if leader is None or not self._is_whole():
            raise Violation(f"liveness: the replicas do not come together: {self.describe()}")
        for offset, value in self.acknowledged.items():
            if offset >= leader.high_watermark or leader.log.entries[offset][1] != value:
                raise Violation(f"1: {value!r} was acknowledged at {offset}, and is not there: {self.describe()}")

    def _is_whole(self) -> bool:
        partition = self.partition
        if len(partition.isr) < 3 or partition.leader < 0:
            return False
        leader = self.nodes[partition.leader]
        end_offset = leader.log.log_end_offset
        return leader.leader.is_leading and all(
            node.log.log_end_offset == end_offset == node.high_watermark for node in self.nodes.values()
        )

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics[TOPIC].partitions[0]

    def describe(self) -> str:
        one = self.partition
        nodes = " ".join(
            f"{node.id}:{'up' if node.is_running else 'down'},end={node.log.log_end_offset},hw={node.high_watermark},"
            f"leads={node.leader.leader_epoch}"
            for node in self.nodes.values()
        )
        return f"leader={one.leader} epoch={one.leader_epoch} isr={one.isr} elr={one.eligible_leader_replicas} {nodes}"

    # Steps

    def _node(self) -> ReplicaNode:
        return self.nodes[self.random.choice((1, 2, 3))]

    def _do_produce(self) -> None:
        leading = [node for node in self.nodes.values() if node.is_running and node.leader.is_leading]
        if leading:
            node = self.random.choice(leading)
            self._produced += 1
            wait_for_all = self.random.random() < 0.8
            self._note(f"produce {self._produced} at {node.id} all={wait_for_all}")
            node.produce(b"%d" % self._produced, self.now_ms, wait_for_all=wait_for_all)
            self._after(node)

    def _do_fetch(self) -> None:
        self._fetch(self._node())

    def _do_deliver(self) -> None:
        if self.messages:
            place = self.random.randrange(len(self.messages)) if self.random.random() < 0.5 else 0
            message = self.messages[place]
            if self.random.random() < 0.95:
                self.messages.pop(place)
            message()

    def _do_straggle(self) -> None:
        if self.stragglers:
            self.stragglers.pop(self.random.randrange(len(self.stragglers)))()

    def _do_lose(self) -> None:
        if self.messages:
            self.messages.pop(self.random.randrange(len(self.messages)))

    def _do_time_out(self) -> None:
        self._time_out(self._node())

    def _time_out(self, node: ReplicaNode) -> None:
        """What was asked and not answered is asked again."""
        node.fetch_is_under_way = False
        if node.is_running and node.unanswered is not None:
            node.altered(node.unanswered, ErrorCode.request_timed_out, self.now_ms)
            self._after(node)

    def _do_metadata(self) -> None:
        self._read_metadata(self._node(), self.random.choice((1, 2, 100)))

    def _do_heartbeat(self) -> None:
        self._heartbeat(self._node())

    def _do_tick(self) -> None:
        self.now_ms += self.random.choice((0, 100, 200, 1200))
        self._tick(self._node())

    def _do_fence(self) -> None:
        """A dead broker most of the time; a living one now and then, for so it looks when heartbeats are lost."""
        node = self._node()
        broker = self.image.brokers[node.id]
        if not node.is_running or self.random.random() < 0.3:
            self._note(f"fence {node.id}")
            self._decide(lambda: self.controller.on_connection_lost(node.id, broker.epoch))

    def _do_kill(self) -> None:
        """What a killed process has written is still there."""
        node = self._node()
        if node.is_running and not self._lossy_nodes():
            self._note(f"kill {node.id}")
            node.stop(clean=False)

    def _do_power_cut(self) -> None:
        """Takes what was not synced, which is everything. Only when the others stay and have it all; and not where one
        replica is enough for an acknowledgement, for then nothing protects from this."""
        node = self._node()
        if node.isr_min < 2:
            return
        others = [other for other in self.nodes.values() if other is not node]
        safe = all(other.is_running and other.epoch is not None for other in others) and any(
            other.id in self.partition.isr for other in others
        )
        if node.is_running and safe and not self._lossy_nodes():
            self._note(f"power cut {node.id}")
            node.stop(clean=False)
            keep = self.random.random()
            node.disk.crash(lambda _, count: int(count * keep))
            node.is_lossy = True

    def _lossy_nodes(self) -> list[ReplicaNode]:
        """Those that have lost data, which the controller does not know yet."""
        return [node for node in self.nodes.values() if node.is_lossy]

    def _do_stop(self) -> None:
        node = self._node()
        if node.is_running and node.epoch is not None and not self._lossy_nodes():
            self._note(f"stop {node.id}")
            node.stop(clean=True)

    def _do_restart(self) -> None:
        node = self._node()
        if not node.is_running:
            self._note(f"start {node.id}")
            node.start(clean=node.previous_epoch >= 0, now_ms=self.now_ms)
            self._after(node)

    # What nodes do

    def _register(self, node: ReplicaNode) -> None:
        registration = Registration(
            broker_id=node.id,
            cluster_id=CLUSTER_ID,
            incarnation_id=node.incarnation_id,
            listeners=[("PLAINTEXT", "host", 9092, 0)],
            features=[(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            previous_broker_epoch=node.previous_epoch,
        )
        is_new = node.id not in self.image.brokers
        was_clean = not is_new and node.previous_epoch == self.image.brokers[node.id].epoch
        is_same = not is_new and self.image.brokers[node.id].incarnation == node.incarnation_id
        epoch = self._decide(lambda: self.controller.register_broker(registration, self.now_ms, previous_is_gone=True))
        node.is_lossy = False
        if TOPIC in self.image.topics and not is_same:
            held = self.partition.isr + (() if was_clean else self.partition.eligible_leader_replicas)
            if node.id in held:
                raise Violation(f"7: {node.id} came back and is in {held}: {self.describe()}")
        if self.is_calm or self.random.random() < 0.8:
            node.epoch = epoch

    def _heartbeat(self, node: ReplicaNode, offset: int | None = None) -> None:
        if not node.is_running:
            return
        if node.epoch is None:
            self._note(f"register {node.id}")
            self._register(node)
            return
        heartbeat = Heartbeat(node.id, node.epoch, node.applied - 1 if offset is None else offset)
        self._decide(lambda: self.controller.heartbeat(heartbeat, self.now_ms))

    def _read_metadata(self, node: ReplicaNode, count: int) -> None:
        if node.is_running:
            for record in self.records[node.applied : node.applied + count]:
                node.apply(record, self.now_ms)
            self._after(node)

    def _tick(self, node: ReplicaNode) -> None:
        deadline = node.leader.next_deadline_ms()
        if node.is_running and deadline is not None and deadline <= self.now_ms:
            node.perform(node.leader.on_tick(self.now_ms))
            self._after(node)

    def _fetch(self, node: ReplicaNode) -> None:
        if not node.is_running or node.leader.is_leading or node.fetch_is_under_way or node.epoch is None:
            return
        if node.follower.wants_offsets:
            self._ask_offsets(node)
            return
        asked = node.follower.position(self.now_ms)
        if asked is None:
            return
        node.fetch_is_under_way = True
        incarnation, epoch, leader = node.incarnation, node.epoch, self.nodes[node.follower.leader_id]

        def request() -> None:
            if not leader.is_running:
                return
            answer = leader.serve(node.id, epoch, asked, self.now_ms)
            self._after(leader)

            def deliver() -> None:
                if node.is_running and node.incarnation == incarnation:
                    node.fetched(asked, answer, self.now_ms)

            self._send(deliver)

        self._send(request)

    def _ask_offsets(self, node: ReplicaNode) -> None:
        leader = self.nodes[node.follower.leader_id]
        if leader.is_running and leader.leader.leader_epoch == node.follower.leader_epoch:
            end_offset = leader.log.log_end_offset
            node.follower.on_leader_offsets(node.follower.leader_epoch, 0, end_offset, self.now_ms, wall_ms=self.now_ms)
            node.high_watermark = node.follower.high_watermark

    def _after(self, node: ReplicaNode) -> None:
        """Sends what the node proposes, and takes note of what it has acknowledged."""
        incarnation = node.incarnation
        for proposal in node.outbox:
            node.unanswered = proposal
            self._send_proposal(node, proposal, incarnation)
        node.outbox.clear()
        for token, error in node.acknowledged:
            if error is ErrorCode.none:
                self.acknowledged[token[0]] = token[1]
        node.acknowledged.clear()

    def _send_proposal(self, node: ReplicaNode, proposal: ProposeIsr, incarnation: int) -> None:
        epoch = node.epoch
        assert epoch is not None

        def request() -> None:
            answer: AlteredPartition | ErrorCode = ErrorCode.stale_broker_epoch
            if epoch == self.image.brokers[node.id].epoch:
                (answer,) = self._decide(
                    lambda: self.controller.alter_partitions(
                        node.id,
                        epoch,
                        [IsrProposal(self.partition.topic_id, 0, *proposal)],
                    )
                )

            def deliver() -> None:
                if node.is_running and node.incarnation == incarnation:
                    node.altered(proposal, answer, self.now_ms)
                    self._after(node)

            if answer is not ErrorCode.stale_broker_epoch:
                self._send(deliver)

        self._send(request)

    def _send(self, message: Callable[[], None]) -> None:
        is_held_up = not self.is_calm and self.random.random() < 0.1
        (self.stragglers if is_held_up else self.messages).append(message)

    def _decide(self, decide: Callable[[], Decision[T]]) -> T:
        decision = decide()
        for record in decision.records:
            self.image.replay(record)
            self.records.append(record)
        return decision.answer

    def _note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms} {text} | {self.describe() if TOPIC in self.image.topics else ''}")

    # The checker

    def _commit(self, node: ReplicaNode) -> None:
        for offset in range(min(len(self.committed), node.high_watermark)):
            if self.committed[offset] != node.log.entries[offset]:
                raise Violation(
                    f"2: {node.id} has {node.log.entries[offset]} at {offset}, where {self.committed[offset]} was "
                    f"committed: {self.describe()}"
                )
        self.committed += node.log.entries[len(self.committed) : node.high_watermark]

    def _check_truncation(self, node: ReplicaNode, offset: int) -> None:
        doomed = node.log.entries[offset : len(self.committed)]
        if any(entry == self.committed[offset + step] for step, entry in enumerate(doomed)):
            raise Violation(f"8: {node.id} truncates to {offset}, below what is committed: {self.describe()}")

    def check(self) -> None:
        leaders: dict[int, int] = {}
        for node in self.nodes.values():
            if not node.is_running:
                continue
            if node.log.entries[: node.high_watermark] != self.committed[: node.high_watermark]:
                raise Violation(f"3: {node.id} differs below its high watermark: {self.describe()}")
            if node.leader.is_leading:
                epoch = node.leader.leader_epoch
                if leaders.setdefault(epoch, node.id) != node.id:
                    raise Violation(f"5: {node.id} and {leaders[epoch]} lead in epoch {epoch}")
                tenure = (node.id, node.incarnation, epoch)
                if node.high_watermark < self._tenures.get(tenure, 0):
                    raise Violation(f"4: the high watermark of {node.id} went back: {self.describe()}")
                self._tenures[tenure] = node.high_watermark
        self._check_members()
        for offset, value in self.acknowledged.items():
            if offset >= len(self.committed) or self.committed[offset][1] != value:
                raise Violation(f"1: {value!r} was acknowledged at {offset} but is not committed: {self.describe()}")

    def _check_members(self) -> None:
        partition = self.partition
        isr, elr = set(partition.isr), set(partition.eligible_leader_replicas)
        if isr & elr:
            raise Violation(f"6: ISR and ELR overlap: {self.describe()}")
        for member in isr | elr:
            node = self.nodes[member]
            if member in isr and self.image.brokers[member].fenced:
                raise Violation(f"6: {member} is fenced and in the ISR: {self.describe()}")
            is_current = node.is_running and self.image.brokers[member].incarnation == node.incarnation_id
            if is_current and node.log.log_end_offset < len(self.committed):
                raise Violation(f"6: {member} lacks committed records: {self.describe()}")


_ACTIONS = {
    "produce": 16,
    "fetch": 44,
    "deliver": 90,
    "straggle": 2,
    "lose": 3,
    "time_out": 5,
    "metadata": 24,
    "heartbeat": 16,
    "tick": 7,
    "fence": 4,
    "kill": 0.8,
    "power_cut": 0.5,
    "stop": 0.6,
    "restart": 4,
}
