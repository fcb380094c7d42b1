"""One of our quorum members on real sockets and a real disk, beside Apache Kafka's: the smallest shell that keeps its
duties. Everything happens in `run_until`, in the calling thread.
"""

import os
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct as Packer
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.ports import RealDisk
from penstock.cluster.raft import Quorum, QuorumConfig, VoteState, messages, peer_messages
from penstock.cluster.raft import effects as raft_effects
from penstock.cluster.raft.stored_log import DIRECTORY, QUORUM_STATE_FILE, StoredRaftLog, format_quorum_state
from penstock.cluster.raft.voters import Voter, VoterSet
from penstock.protocol.frames import body_position, is_flexible
from penstock.protocol.messages import Struct, decode_request, encode_response
from tests.conformance.wire import decode_answer, framed, request_payload

_SIZE = Packer(">i")
_HEADER = Packer(">hhih")
_UNSUPPORTED_API_VERSIONS = 5
VERSIONS = {
    messages.FETCH: (17, 18),
    messages.API_VERSIONS: (0, 4),
    messages.VOTE: (0, 2),
    messages.BEGIN_QUORUM_EPOCH: (0, 1),
    messages.END_QUORUM_EPOCH: (0, 1),
    messages.FETCH_SNAPSHOT: (0, 1),
    messages.UPDATE_RAFT_VOTER: (0, 0),
}


@dataclass
class Link:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    # For a link of ours: what was asked, by correlation id.
    asked: dict[int, tuple[raft_effects.Send, int]] = field(default_factory=dict)
    node: tuple[int, str, int] | None = None

    def frames(self) -> list[bytes]:
        frames = []
        while len(self.received) >= 4:
            (size,) = _SIZE.unpack_from(self.received)
            if len(self.received) < 4 + size:
                break
            frames.append(bytes(self.received[4 : 4 + size]))
            del self.received[: 4 + size]
        return frames


class SystemRandom:
    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


class QuorumNode:
    def __init__(self, directory: Path, own_voter: Voter, cluster_id: str, bootstrap_port: int) -> None:
        self.effects: list[raft_effects.Effect] = []
        self._selector = selectors.DefaultSelector()
        self._links: dict[tuple[int, str, int], Link] = {}
        self._tokens: dict[int, tuple[Link, int, int, int]] = {}
        self._token = 0
        (endpoint,) = own_voter.endpoints
        self._listener = socket.create_server((endpoint.host, endpoint.port))
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self._disk = RealDisk(str(directory))
        self._disk.make_directory(DIRECTORY)
        self.log = StoredRaftLog(self._disk, clean=False, now_ms=self.now_ms())
        config = QuorumConfig(
            cluster_id, endpoint.listener, sync_as_observer=True, bootstrap_servers=((endpoint.host, bootstrap_port),)
        )
        self.quorum = Quorum(config, own_voter, self.log, SystemRandom(), VoteState(), VoterSet(), kraft_version=1)
        self.quorum.start(self.now_ms())
        self._perform()

    @staticmethod
    def now_ms() -> int:
        return time.monotonic_ns() // 1_000_000

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            self._selector.unregister(key.fileobj)
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def run_until(self, condition: Callable[[], bool], seconds_max: float) -> bool:
        end_s = time.monotonic() + seconds_max
        while not condition():
            if time.monotonic() > end_s:
                return False
            deadline_ms = self.quorum.next_deadline_ms()
            wait_s = 0.1 if deadline_ms is None else max(0, min(0.1, (deadline_ms - self.now_ms()) / 1000))
            for key, _ in self._selector.select(wait_s):
                if key.data is None:
                    accepted, _ = self._listener.accept()
                    self._selector.register(accepted, selectors.EVENT_READ, Link(accepted))
                else:
                    self._receive(key.data)
            self.quorum.tick(self.now_ms())
            self._perform()
        return True

    def _receive(self, link: Link) -> None:
        try:
            data = link.socket.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._drop(link)
            return
        link.received += data
        for frame in link.frames():
            if link.node is None:
                self._take_request(link, frame)
            else:
                self._take_response(link, frame)
            self._perform()

    def _drop(self, link: Link) -> None:
        self._selector.unregister(link.socket)
        link.socket.close()
        if link.node is not None:
            del self._links[link.node]
        for send, _ in link.asked.values():
            self.quorum.failed(send.node.id, send.correlation_id, self.now_ms(), refused=True)

    def _take_request(self, link: Link, frame: bytes) -> None:
        api_key, version, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        if api_key == messages.API_VERSIONS:
            answer = Struct(
                error_code=ErrorCode.none,
                api_keys=[
                    Struct(api_key=key, min_version=low, max_version=high) for key, (low, high) in VERSIONS.items()
                ],
                supported_features=[Struct(name="kraft.version", min_version=0, max_version=1)],
            )
            if version >= _UNSUPPORTED_API_VERSIONS:
                answer.error_code = ErrorCode.unsupported_version
                version = 0
            link.socket.sendall(encode_response(api_key, version, correlation_id, answer))
            return
        position = body_position(frame, client_id_bytes, is_flexible(api_key, version))
        request = messages.read_request(api_key, decode_request(api_key, version, frame, position))
        self._token += 1
        self._tokens[self._token] = (link, api_key, version, correlation_id)
        self.quorum.request(self._token, request, self.now_ms())

    def _take_response(self, link: Link, frame: bytes) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        send, version = link.asked.pop(correlation_id)
        api_key, _ = peer_messages.write_request(send.request)
        response = peer_messages.read_response(api_key, decode_answer(api_key, version, frame))
        self.quorum.response(send.node.id, send.correlation_id, response, self.now_ms())

    def _perform(self) -> None:
        while effects := self.quorum.take_effects():
            for effect in effects:
                self.effects.append(effect)
                self._perform_one(effect)

    def _perform_one(self, effect: raft_effects.Effect) -> None:
        match effect:
            case raft_effects.Persist(state):
                self._disk.write_file(QUORUM_STATE_FILE, format_quorum_state(state))
            case raft_effects.Sync():
                flushed = self.log.flush()
                for file in flushed.flush.files:
                    file.sync()
                self.log.mark_flushed(flushed)
                self.quorum.synced(effect, self.now_ms())
            case raft_effects.StoreSnapshot(snapshot_id):
                self.log.received_file(snapshot_id).sync()
                self.quorum.snapshot_stored(snapshot_id, self.now_ms())
            case raft_effects.Send():
                self._send(effect)
            case raft_effects.Answer(token, response):
                link, api_key, version, correlation_id = self._tokens.pop(token)
                body: Any = messages.write_response(response)
                try:
                    link.socket.sendall(encode_response(api_key, version, correlation_id, body))
                except OSError:
                    # The peer has gone; the selector will tell.
                    return

    def _send(self, send: raft_effects.Send) -> None:
        node = (send.node.id, send.node.host, send.node.port)
        api_key, body = peer_messages.write_request(send.request)
        version = VERSIONS[api_key][1]
        try:
            link = self._links.get(node)
            if link is None:
                link = Link(socket.create_connection((send.node.host, send.node.port), 5), node=node)
                link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._links[node] = link
                self._selector.register(link.socket, selectors.EVENT_READ, link)
            link.asked[send.correlation_id] = (send, version)
            link.socket.sendall(framed(request_payload(api_key, version, body, send.correlation_id)))
        except OSError:
            self.quorum.failed(send.node.id, send.correlation_id, self.now_ms(), refused=True)
