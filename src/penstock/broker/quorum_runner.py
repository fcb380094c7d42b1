"""The shell around this node's part in the metadata quorum.

It performs what `cluster/raft` asks for, in order: persists votes before anything else is sent, syncs the log off the
loop, talks to peers, and hands on what is committed. Who proposes waits for his records to be committed and applied.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import count

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Clock, Disk, DiskError, DiskFull, MissingFile, Random
from penstock.broker.group_commit import GroupCommit
from penstock.broker.metadata_following import MetadataListener, committed_batches, hand_on
from penstock.broker.metadata_snapshots import SnapshotRules, SnapshotWriter, snapshot_records
from penstock.broker.peers import Peer, PeerGone
from penstock.cluster.raft.effects import (
    Answer,
    Committed,
    Effect,
    Fault,
    LeaderChanged,
    Leading,
    Persist,
    Send,
    SnapshotInstalled,
    StoppedLeading,
    StoreSnapshot,
    Sync,
    VoteState,
)
from penstock.cluster.raft.peer_messages import read_response, write_request
from penstock.cluster.raft.quorum import Quorum
from penstock.cluster.raft.roles import QuorumConfig
from penstock.cluster.raft.rpc import OffsetAndEpoch, Request, Response
from penstock.cluster.raft.stored_log import (
    DIRECTORY,
    QUORUM_STATE_FILE,
    StoredRaftLog,
    format_quorum_state,
    parse_quorum_state,
)
from penstock.cluster.raft.voters import Node, Voter, VoterSet
from penstock.log.config import LogConfig
from penstock.protocol.messages import Malformed, decode_response

log = logging.getLogger("penstock.quorum")

# Of this node's requests. From Fetch 18 on a leader answers as soon as more is committed than is known (KIP-1166).
_VERSIONS = {1: 18, 18: 4, 52: 2, 53: 1, 54: 1, 59: 1, 82: 0}
_FAULT_PAUSE_MS = 10_000
_STOP_LOOKS_MAX = 200
_STOP_LOOK_SECONDS = 0.01
_SPACE_LOOK_SECONDS = 0.5
_SEGMENT_BYTES_MIN = 1 << 20


class QuorumRunner:
    def __init__(
        self,
        config: QuorumConfig,
        own_voter: Voter,
        voters: VoterSet,
        *,
        kraft_version: int,
        disk: Disk,
        clock: Clock,
        random: Random,
        group_commit: GroupCommit,
        listener: MetadataListener,
        is_clean: bool,
        snapshot_rules: SnapshotRules,
        segment_bytes: int,
    ) -> None:
        """Raises DiskError."""
        disk.make_directory(DIRECTORY)
        self._disk = disk
        self._clock = clock
        self._group_commit = group_commit
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        # Segments go as a whole, so a larger one would outlive its snapshot.
        log_config = LogConfig(segment_bytes=min(segment_bytes, max(snapshot_rules.bytes_between, _SEGMENT_BYTES_MIN)))
        self._log = StoredRaftLog(disk, clean=is_clean, now_ms=clock.now_ms(), config=log_config)
        now_ms = clock.monotonic_ms()
        self._quorum = Quorum(
            config,
            own_voter,
            self._log,
            random,
            _read_vote(disk),
            voters,
            kraft_version=kraft_version,
            wall_clock_ahead_ms=clock.now_ms() - now_ms,
        )
        self._snapshots = SnapshotWriter(
            snapshot_rules, self._log, group_commit, clock, listener.gather, self._quorum.voters_before
        )
        self._client_id = f"node-{own_voter.id}"
        self._peers: dict[tuple[str, int], Peer] = {}
        # The last request to each node.
        self._under_way: dict[int, asyncio.Future[memoryview]] = {}
        self._tokens = count()
        self._asked: dict[int, asyncio.Future[Response]] = {}
        # Up to where the listener has been told, and who waits for how far.
        self._applied_offset = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        # Nodes that say that they belong to another cluster.
        self._foreign: set[int] = set()
        self._is_performing = False
        # The rest of a commit that is being applied.
        self._applying: Iterator[None] | None = None
        # What was asked for and is not done: all waits where there is no space for a vote.
        self._effects: deque[Effect] = deque()
        self._lacks_space = False
        self._has_failed = False
        # When each of them was last told.
        self._faults: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    # Life

    def start(self) -> None:
        """A quorum of one leads before this returns, but for the sync that its first record needs."""
        for note in self._log.log.recovery_notes:
            log.warning("metadata log: %s", note)
        snapshot_id = self._log.latest_snapshot()
        if snapshot_id is not None:
            self._load_snapshot(snapshot_id)
        self._quorum.start(self._clock.monotonic_ms())
        self._perform()

    async def stop(self) -> None:
        """Hands the lead over, if it has it; waits a moment until the others know."""
        self._quorum.shut_down(self._clock.monotonic_ms())
        self._perform()
        for _ in range(_STOP_LOOKS_MAX):
            if self._quorum.may_stop or self._has_failed:
                return
            await asyncio.sleep(_STOP_LOOK_SECONDS)

    def close(self) -> None:
        """Raises DiskError."""
        self._has_failed = True
        if self._timer is not None:
            self._timer.cancel()
        for peer in self._peers.values():
            peer.close()
        self._snapshots.stop()
        self._log.close()

    # What others ask

    @property
    def leader_id(self) -> int:
        return self._quorum.leader_id

    @property
    def epoch(self) -> int:
        return self._quorum.epoch

    @property
    def kraft_version(self) -> int:
        return self._quorum.kraft_version

    @property
    def is_stranded(self) -> bool:
        """Whether by its log the only voter is this node with another directory: nobody would ever lead."""
        return self._quorum.is_observer and self._quorum.voters.ids == [self._quorum.key.id]

    @property
    def voter_count(self) -> int:
        return len(self._quorum.voters)

    def locate(self, node_id: int) -> tuple[str, int] | None:
        """Host and port of a controller, None while they are not known."""
        node = self._quorum.locate(node_id)
        return None if node is None else (node.host, node.port)

    @property
    def is_outcast(self) -> bool:
        """Whether so many nodes belong to another cluster that this one has no majority to hope for. While it does not
        know who votes, one of those that it was told to ask will do."""
        voters = self._quorum.voters.ids
        if not voters:
            return bool(self._foreign)
        return len(self._foreign.intersection(voters)) > (len(voters) - 1) // 2

    @property
    def leaders_heard_ms(self) -> Mapping[int, int]:
        """When this node last heard of the leader that it followed last, by the id of that."""
        return self._quorum.leaders_heard_ms

    @property
    def applied_offset(self) -> int:
        return self._applied_offset

    @property
    def next_offset(self) -> int:
        """Where the next proposal will stand."""
        return self._log.end_offset

    async def ask(self, request: Request) -> Response:
        """A peer's or a client's request. Raises Refused when this node has left the quorum."""
        if self._has_failed:
            raise Refused(ErrorCode.kafka_storage_error, "the metadata log of this node has failed")
        if self._lacks_space:
            raise Refused(ErrorCode.kafka_storage_error, "this node has no space for its vote")
        token = next(self._tokens)
        future: asyncio.Future[Response] = self._loop.create_future()
        self._asked[token] = future
        self._step(lambda: self._quorum.request(token, request, self._clock.monotonic_ms()))
        return await future

    def propose(self, batch: bytearray) -> "asyncio.Future[None]":
        """Appends one batch as the leader; the future is done when it is committed and applied, and raises Refused if
        the lead was lost first: then it may or may not come. Raises Refused when this node does not lead."""
        try:
            end_offset = None if self._has_failed else self._quorum.propose(batch, self._clock.monotonic_ms())
        except DiskFull as problem:
            # Nothing of it was written: when there is space again, or another node leads, all is well.
            self._step(lambda: self._quorum.tick(self._clock.monotonic_ms()))
            raise Refused(ErrorCode.kafka_storage_error, f"the change could not be kept: {problem}") from problem
        except DiskError as problem:
            self._fail(problem)
            end_offset = None
        if end_offset is None:
            raise Refused(ErrorCode.not_controller, "this node is not the active controller")
        future = self.applied(end_offset)
        self._perform()
        return future

    def applied(self, offset: int) -> "asyncio.Future[None]":
        """Done when everything below `offset` has been applied here."""
        future: asyncio.Future[None] = self._loop.create_future()
        if offset <= self._applied_offset:
            future.set_result(None)
        else:
            self._waiting.append((offset, future))
        return future

    def resign(self) -> None:
        self._quorum.resign(self._quorum.epoch, self._clock.monotonic_ms())
        self._perform()

    # Effects

    def _step(self, act: Callable[[], object]) -> None:
        """Lets the core go on by one step, and performs what comes of it."""
        try:
            act()
        except DiskError as problem:
            self._fail(problem)
            return
        self._perform()

    def _perform(self) -> None:
        """Performs effects until there are none: what one leads to, comes in here again and waits its turn."""
        if self._is_performing or self._has_failed:
            return
        self._is_performing = True
        self._lacks_space = False
        try:
            while self._effects or self._take_effects():
                if not self._perform_one(self._effects[0]):
                    self._loop.call_soon(self._perform)
                    return
                self._effects.popleft()
        except DiskFull as problem:
            if isinstance(self._effects[0], Persist):
                # A vote that is told must be kept. Until it can be, this node is as good as asleep.
                self._lacks_space = True
                self._tell_fault(f"this node takes no part in the quorum until there is space: {problem}")
            else:
                self._fail(problem)
        except DiskError as problem:
            self._fail(problem)
        finally:
            self._is_performing = False
        self._schedule()

    def _take_effects(self) -> bool:
        self._effects += self._quorum.take_effects()
        return bool(self._effects)

    def _perform_one(self, effect: Effect) -> bool:
        """Whether it is done; otherwise it goes on when others have had a turn."""
        match effect:
            case Persist():
                self._disk.write_file(QUORUM_STATE_FILE, format_quorum_state(effect.state))
            case Sync():
                self._sync(effect)
            case Send():
                self._send(effect)
            case Answer():
                future = self._asked.pop(effect.token, None)
                if future is not None and not future.done():
                    future.set_result(effect.response)
            case Committed():
                return self._apply_some(effect.high_watermark)
            case LeaderChanged():
                self._listener.on_leader_changed(effect.leader_id, effect.epoch)
            case Leading():
                self._listener.on_leading(effect.epoch)
            case StoppedLeading():
                self._forget_proposals()
                self._listener.on_stopped_leading(effect.epoch)
            case StoreSnapshot():
                self._store_snapshot(effect.snapshot_id)
            case SnapshotInstalled():
                self._load_snapshot(effect.snapshot_id)
            case Fault():
                self._tell_fault(effect.message)
        return True

    def _tell_fault(self, message: str) -> None:
        """A peer that is wrong is wrong again with every answer: one line in a while will do."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._faults.get(message, -_FAULT_PAUSE_MS) >= _FAULT_PAUSE_MS:
            self._faults[message] = now_ms
            log.error("%s", message)

    def _sync(self, sync: Sync) -> None:
        flush = self._log.flush()

        def done(problem: DiskError | None) -> None:
            if problem is not None:
                self._fail(problem)
                return
            self._log.mark_flushed(flush)
            self._step(lambda: self._quorum.synced(sync, self._clock.monotonic_ms()))

        self._group_commit.submit(flush.flush.files, done)

    def _store_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        def done(problem: DiskError | None) -> None:
            if problem is not None:
                self._fail(problem)
                return
            self._step(lambda: self._quorum.snapshot_stored(snapshot_id, self._clock.monotonic_ms()))

        self._group_commit.submit([self._log.received_file(snapshot_id)], done)

    def _send(self, send: Send) -> None:
        node = send.node
        peer = self._peer_of(node)
        before = self._under_way.get(node.id)
        if before is not None and not before.done():
            # There is one request to a node at a time, so the core has given that one up. What a connection holds back
            # after an outage may take as long again: a new one goes through at once.
            peer.close()
        api_key, body = write_request(send.request)
        answer = self._under_way[node.id] = peer.exchange(api_key, _VERSIONS[api_key], body)
        answer.add_done_callback(lambda done: self._answered(node, send, api_key, done))

    def _peer_of(self, node: Node) -> Peer:
        address = (node.host, node.port)
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(node.host, node.port, self._client_id)
        return peer

    def _answered(self, node: Node, send: Send, api_key: int, answer: "asyncio.Future[memoryview]") -> None:
        if self._has_failed or self._lacks_space:
            return
        now_ms = self._clock.monotonic_ms()
        try:
            body = decode_response(api_key, _VERSIONS[api_key], answer.result())
            response = read_response(api_key, body)
        except PeerGone:
            self._step(lambda: self._quorum.failed(node.id, send.correlation_id, now_ms, refused=True))
        except Malformed as problem:
            log.error("node %d at %s:%d answered what cannot be read: %s", node.id, node.host, node.port, problem)
            self._step(lambda: self._quorum.failed(node.id, send.correlation_id, now_ms, refused=False))
        else:
            if response.error is ErrorCode.inconsistent_cluster_id:
                self._foreign.add(node.id)
            else:
                self._foreign.discard(node.id)
            self._step(lambda: self._quorum.response(node.id, send.correlation_id, response, now_ms))

    def _fail(self, problem: DiskError) -> None:
        """What could not be written may be gone: this node takes no more part, until it is restarted and has looked."""
        if self._has_failed:
            return
        log.critical("the metadata log has failed, this node leaves the quorum: %s", problem)
        self._has_failed = True
        self._forget_proposals()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Refused(ErrorCode.kafka_storage_error, str(problem)))
        self._asked.clear()
        self._listener.on_stopped_leading(self._quorum.epoch)

    def _forget_proposals(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, future in waiting:
            if not future.done():
                future.set_exception(Refused(ErrorCode.not_controller, "another node has become the controller"))

    # Applying

    def _apply_some(self, high_watermark: int) -> bool:
        """Whether that was all: who makes thousands of partitions at once must not keep everybody else waiting."""
        if self._applying is None:
            self._applying = self._apply_up_to(high_watermark)
        for _ in self._applying:
            return False
        self._applying = None
        return True

    def _apply_up_to(self, high_watermark: int) -> Iterator[None]:
        for header, batch in committed_batches(self._log, self._applied_offset, high_watermark):
            if not header.is_control:
                yield from hand_on(header, batch, self._listener)
            self._snapshots.count(header)
        self._applied_offset = max(self._applied_offset, high_watermark)
        self._release_waiting()
        self._snapshots.begin_if_due()

    def _release_waiting(self) -> None:
        still = []
        for offset, future in self._waiting:
            if offset > self._applied_offset:
                still.append((offset, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still

    def _load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        size = self._log.snapshot_size(snapshot_id) or 0
        data = memoryview(self._log.read_snapshot(snapshot_id, 0, size))
        self._listener.on_snapshot(snapshot_id, snapshot_records(data))
        self._snapshots.restart()
        self._applied_offset = snapshot_id.offset
        self._release_waiting()

    # Time

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lacks_space:
            self._timer = self._loop.call_later(_SPACE_LOOK_SECONDS, self._look_for_space)
            return
        deadline_ms = None if self._has_failed else self._quorum.next_deadline_ms()
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._tick)

    def _look_for_space(self) -> None:
        self._timer = None
        self._perform()
        if not self._lacks_space:
            self._tick()

    def _tick(self) -> None:
        self._timer = None
        self._step(lambda: self._quorum.tick(self._clock.monotonic_ms()))


def _read_vote(disk: Disk) -> VoteState:
    try:
        return parse_quorum_state(disk.read_file(QUORUM_STATE_FILE))
    except MissingFile:
        return VoteState()
