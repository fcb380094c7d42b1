"""Quorum members on a network that delays, reorders, loses and doubles, with disks that lose what was not synced.

Everything follows from one seed. Time jumps from event to event.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from random import Random
from typing import Any
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.cluster.raft import Quorum, QuorumConfig, Role, VoteState, messages, peer_messages
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.control_records import snapshot_closing, snapshot_opening
from penstock.cluster.raft.rpc import ApiVersionsRequest, ApiVersionsResponse, OffsetAndEpoch, Request, Response
from penstock.cluster.raft.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet
from penstock.protocol.messages import decode, decode_request, encode, request_entity, response_entity
from penstock.protocol.records import Record, build_batch
from tests.unit.raft.memory_log import MemoryLog

CLUSTER_ID = "a-cluster"
WIRE_VERSIONS = {
    messages.FETCH: 18,
    messages.VOTE: 2,
    messages.BEGIN_QUORUM_EPOCH: 1,
    messages.END_QUORUM_EPOCH: 1,
    messages.FETCH_SNAPSHOT: 1,
    messages.UPDATE_RAFT_VOTER: 0,
}
LISTENER = "CONTROLLER"


class SeededRandom:
    def __init__(self, random: Random) -> None:
        self._random = random

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


def voter(node_id: int, port: int = 9093) -> Voter:
    return Voter(node_id, UUID(int=node_id), (Endpoint(LISTENER, f"host-{node_id}", port),))


def batch_of(*values: bytes) -> bytearray:
    return build_batch([Record(place, 1, None, value) for place, value in enumerate(values)])


@dataclass
class Asked:
    """A request that a member has not answered yet, and where the answer goes."""

    source: int
    source_incarnation: int
    send: raft_effects.Send


@dataclass
class Member:
    """What survives a crash, and the quorum member that does not."""

    id: int
    log: MemoryLog
    vote_state: VoteState = field(default_factory=VoteState)
    quorum: Quorum | None = None
    incarnation: int = 0
    asked: dict[int, Asked] = field(default_factory=dict)
    tick_at_ms: int | None = None
    paused_until_ms: int = 0
    # What the state machine has taken in: how far, and a hash of it all.
    applied_offset: int = 0
    applied_hash: int = 0


@dataclass
class Weather:
    """How bad the network is. Chances are per message."""

    delay_ms_max: int = 20
    long_delay_chance: float = 0.0
    loss_chance: float = 0.0
    double_chance: float = 0.0
    crash_chance: float = 0.0
    sync_ms_max: int = 8
    # Whether a peer that is down refuses connections and breaks those it had, or is silent as in a power cut.
    refusal_chance: float = 1.0


Observer = Callable[[Member, raft_effects.Effect], None]


class Cluster:
    def __init__(
        self,
        seed: int,
        voter_ids: list[int],
        observer_ids: list[int] | None = None,
        *,
        quorum_class: type[Quorum] = Quorum,
        config: QuorumConfig | None = None,
        kraft_version: int = 1,
        over_the_wire: bool = False,
    ) -> None:
        """`over_the_wire`: messages pass through the bytes that real ones have."""
        self._over_the_wire = over_the_wire
        self.random = Random(seed)
        self.now_ms = 0
        self.weather = Weather()
        self.blocked: set[tuple[int, int]] = set()
        self.observers: list[Observer] = []
        # Told who receives what from whom.
        self.on_delivery: Callable[[int, int, Request], None] = lambda receiver, source, request: None
        self.answers: dict[int, Response] = {}
        self.faults: list[str] = []
        self.ports: dict[int, int] = {}
        self._quorum_class = quorum_class
        self.config = config or QuorumConfig(CLUSTER_ID, LISTENER, sync_as_observer=True)
        self._kraft_version = kraft_version
        self._static_voters = VoterSet(map(voter, voter_ids))
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        self._token = 0
        self.members = {node_id: Member(node_id, MemoryLog()) for node_id in [*voter_ids, *(observer_ids or [])]}

    # Time

    def at(self, time_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heappush(self._events, (time_ms, self._sequence, action))

    def step(self) -> bool:
        if not self._events:
            return False
        time_ms, _, action = heappop(self._events)
        self.now_ms = max(self.now_ms, time_ms)
        action()
        return True

    def next_ms(self) -> float:
        return self._events[0][0] if self._events else inf

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self.step()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], patience_ms: int) -> bool:
        end_ms = self.now_ms + patience_ms
        while not condition():
            if not self._events or self._events[0][0] > end_ms:
                self.now_ms = end_ms
                return False
            self.step()
        return True

    # Members

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids or self.members:
            member = self.members[node_id]
            member.incarnation += 1
            member.applied_offset, member.applied_hash = 0, 0
            member.tick_at_ms = None
            member.asked = {}
            member.quorum = self._quorum_class(
                self.config,
                voter(node_id, self.ports.get(node_id, 9093)),
                member.log,
                SeededRandom(self.random),
                member.vote_state,
                self._static_voters,
                kraft_version=self._kraft_version,
            )
            snapshot_id = member.log.latest_snapshot()
            if snapshot_id is not None:
                self.load_snapshot(member, snapshot_id)
            self._with(member, lambda quorum: quorum.start(self.now_ms))

    def crash(self, node_id: int, survivors: Callable[[int], int] | None = None) -> None:
        member = self.members[node_id]
        if member.quorum is None:
            return
        member.quorum = None
        member.log.crash(survivors or (lambda count: self.random.randrange(count + 1)))
        for asked in member.asked.values():
            self._refuse(node_id, asked)
        member.asked = {}

    def move(self, node_id: int) -> None:
        """Comes back at another port, which its peers do not know yet."""
        self.ports[node_id] = self.ports.get(node_id, 9093) + 1
        self.crash(node_id)
        self.start(node_id)

    def leader(self) -> Member | None:
        """The one of the latest epoch."""
        leading = [one for one in self.members.values() if one.quorum is not None and one.quorum.role is Role.LEADER]
        return max(leading, key=lambda one: one.quorum.epoch if one.quorum else 0, default=None)

    def propose(self, node_id: int, *values: bytes) -> int | None:
        offsets: list[int | None] = []
        self._with(self.members[node_id], lambda quorum: offsets.append(quorum.propose(batch_of(*values), self.now_ms)))
        return offsets[0] if offsets else None

    def ask(self, node_id: int, request: Request) -> int:
        """A request from a client; the answer will be in `answers`."""
        self._token += 1
        token = self._token
        self._with(self.members[node_id], lambda quorum: quorum.request(token, request, self.now_ms))
        return token

    def call(self, node_id: int, action: Callable[[Quorum], Any]) -> None:
        self._with(self.members[node_id], action)

    def take_snapshot(self, node_id: int) -> OffsetAndEpoch | None:
        """Of what the member has applied; its log then begins behind it."""
        member = self.members[node_id]
        if member.quorum is None or member.applied_offset <= member.log.start_offset:
            return None
        offset = member.applied_offset
        snapshot_id = OffsetAndEpoch(offset, member.log.epoch_for_offset(offset - 1))
        voters, version = member.quorum.voters_before(offset)
        opening = snapshot_opening(0, voters, version, snapshot_id.epoch, 0)
        content = build_batch([Record(3, 1, b"hash", str(member.applied_hash).encode())])
        data = opening + content + snapshot_closing(4, snapshot_id.epoch, 0)
        member.log.write_snapshot(snapshot_id, bytes(data))
        member.log.trim_to(snapshot_id)
        return snapshot_id

    def load_snapshot(self, member: Member, snapshot_id: OffsetAndEpoch) -> None:
        data = member.log.snapshots[snapshot_id]
        start = data.index(b"hash") + 5
        digits = data[start : start + 24].split(b"\x00")[0]
        member.applied_offset, member.applied_hash = snapshot_id.offset, int(digits)

    def _with(self, member: Member, action: Callable[[Quorum], Any]) -> None:
        """One input, and everything that comes of it."""
        if member.quorum is None:
            return
        quorum, incarnation = member.quorum, member.incarnation
        action(quorum)
        for effect in quorum.take_effects():
            if self.weather.crash_chance and self.random.random() < self.weather.crash_chance:
                self.crash(member.id)
            if member.incarnation != incarnation or member.quorum is None:
                return
            for observer in self.observers:
                observer(member, effect)
            self._perform(member, effect)
        deadline_ms = quorum.next_deadline_ms()
        if deadline_ms is not None and (member.tick_at_ms is None or deadline_ms < member.tick_at_ms):
            self._tick_at(member, max(deadline_ms, self.now_ms))

    def _tick_at(self, member: Member, time_ms: int) -> None:
        incarnation = member.incarnation
        member.tick_at_ms = time_ms

        def tick() -> None:
            if member.incarnation == incarnation and member.tick_at_ms == time_ms:
                if member.paused_until_ms > self.now_ms:
                    self._tick_at(member, member.paused_until_ms)
                    return
                member.tick_at_ms = None
                self._with(member, lambda quorum: quorum.tick(self.now_ms))

        self.at(time_ms, tick)

    def _perform(self, member: Member, effect: raft_effects.Effect) -> None:
        match effect:
            case raft_effects.Persist(state):
                member.vote_state = state
            case raft_effects.Sync():
                self._sync(member, effect)
            case raft_effects.StoreSnapshot(snapshot_id):
                self._later(member, 5, lambda: self._stored(member, snapshot_id))
            case raft_effects.SnapshotInstalled(snapshot_id):
                self.load_snapshot(member, snapshot_id)
            case raft_effects.Send():
                self._transmit_request(member, effect)
            case raft_effects.Answer(token, response):
                asked = member.asked.pop(token, None)
                if asked is None:
                    self.answers[token] = response
                else:
                    self._transmit_response(member, asked, response)
            case raft_effects.Fault(message):
                self.faults.append(f"{member.id} at {self.now_ms}: {message}")

    def _later(self, member: Member, delay_ms: int, act: Callable[[], None]) -> None:
        incarnation = member.incarnation

        def happen() -> None:
            if member.incarnation == incarnation and member.quorum is not None:
                act()

        self.at(self.now_ms + delay_ms, self._unless_paused(member.id, happen))

    def _sync(self, member: Member, sync: raft_effects.Sync) -> None:
        truncations = member.log.truncations

        def finish() -> None:
            # Of what was written after a cut, this sync says nothing.
            if member.log.truncations == truncations:
                member.log.sync(sync.end_offset)
            self._with(member, lambda quorum: quorum.synced(sync, self.now_ms))

        self._later(member, 1 + self.random.randrange(self.weather.sync_ms_max), finish)

    def _stored(self, member: Member, snapshot_id: OffsetAndEpoch) -> None:
        self._with(member, lambda quorum: quorum.snapshot_stored(snapshot_id, self.now_ms))

    # The network

    def block(self, source: int, target: int) -> None:
        self.blocked.add((source, target))

    def isolate(self, node_id: int) -> None:
        for other in self.members:
            if other != node_id:
                self.blocked |= {(node_id, other), (other, node_id)}

    def break_connections(self, source: int, target: int) -> None:
        """What `source` has asked and not been answered fails; the next connection is as good as new."""
        member = self.members[target]
        broken = {token: asked for token, asked in member.asked.items() if asked.source == source}
        for token, asked in broken.items():
            del member.asked[token]
            self._refuse(target, asked)

    def heal(self) -> None:
        self.blocked.clear()

    def _transmit(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        weather, random = self.weather, self.random
        if (source, target) in self.blocked or random.random() < weather.loss_chance:
            return
        for _ in range(2 if random.random() < weather.double_chance else 1):
            delay_ms = 1 + random.randrange(weather.delay_ms_max)
            if random.random() < weather.long_delay_chance:
                delay_ms += random.randrange(1500)
            self.at(self.now_ms + delay_ms, self._unless_paused(target, deliver))

    def _unless_paused(self, target: int, deliver: Callable[[], None]) -> Callable[[], None]:
        def arrive() -> None:
            until_ms = self.members[target].paused_until_ms
            if until_ms > self.now_ms:
                self.at(until_ms, arrive)
            else:
                deliver()

        return arrive

    def _transmit_request(self, member: Member, send: raft_effects.Send) -> None:
        source, incarnation, target = member.id, member.incarnation, self._target(send.node)

        def deliver() -> None:
            receiver = self.members[target]
            if receiver.quorum is None:
                self._refuse(target, Asked(source, incarnation, send))
                return
            if isinstance(send.request, ApiVersionsRequest):
                answer = ApiVersionsResponse(ErrorCode.none, 0, 1)
                self._transmit_response(receiver, Asked(source, incarnation, send), answer)
                return
            self._token += 1
            token = self._token
            receiver.asked[token] = Asked(source, incarnation, send)
            self.on_delivery(target, source, send.request)
            request = request_over_the_wire(send.request) if self._over_the_wire else send.request
            self._with(receiver, lambda quorum: quorum.request(token, request, self.now_ms))

        self._transmit(source, target, deliver)

    def _refuse(self, target: int, asked: Asked) -> None:
        member, send = self.members[asked.source], asked.send

        def deliver() -> None:
            if member.incarnation == asked.source_incarnation:
                self._with(
                    member,
                    lambda quorum: quorum.failed(send.node.id, send.correlation_id, self.now_ms, refused=True),
                )

        if self.random.random() < self.weather.refusal_chance:
            self._transmit(target, asked.source, deliver)

    def _transmit_response(self, member: Member, asked: Asked, response: Response) -> None:
        send = asked.send
        if self._over_the_wire and not isinstance(response, ApiVersionsResponse):
            response = response_over_the_wire(send.request, response)

        def deliver() -> None:
            receiver = self.members[asked.source]
            if receiver.incarnation == asked.source_incarnation:
                self._with(
                    receiver,
                    lambda quorum: quorum.response(send.node.id, send.correlation_id, response, self.now_ms),
                )

        self._transmit(member.id, asked.source, deliver)

    @staticmethod
    def _target(node: Node) -> int:
        return int(node.host.removeprefix("host-"))


def request_over_the_wire(request: Request) -> Request:
    api_key, body = peer_messages.write_request(request)
    version = WIRE_VERSIONS[api_key]
    data = encode(request_entity(api_key, version), body)
    return messages.read_request(api_key, decode_request(api_key, version, data))


def response_over_the_wire(request: Request, response: Response) -> Response:
    api_key, _ = peer_messages.write_request(request)
    entity = response_entity(api_key, WIRE_VERSIONS[api_key])
    data = encode(entity, messages.write_response(response))
    return peer_messages.read_response(api_key, decode(entity, data))


def key(node_id: int) -> ReplicaKey:
    return voter(node_id).key
