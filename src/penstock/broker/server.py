"""The listening socket: accepts connections, keeps their number within limits, and closes idle ones."""

import asyncio
import errno
import logging
import socket
from collections import Counter, deque
from collections.abc import Callable

from penstock.broker.connection import COPY_BYTES_MAX, Connection, Dispatch
from penstock.broker.hearing import Hearing, LoopHearing

log = logging.getLogger("penstock.server")

_BACKLOG = 1024
_ACCEPTS_PER_WAKEUP = 16
_CLOSED_PER_TURN = 32
_IDLE_SWEEP_SECONDS = 15
_PAUSE_WHEN_EXHAUSTED_SECONDS = 0.5

# Takes host and port; raises OSError.
Listen = Callable[[str, int], socket.socket]


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Listening makes the address ours alone; SO_REUSEADDR lets several sockets bind until one does.
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class Server:
    def __init__(
        self,
        dispatch: Dispatch,
        *,
        frame_bytes_max: int,
        idle_ms_max: int,
        connections_max: int,
        connections_per_ip_max: int,
        listen: "Listen | None" = None,
        hearing: Hearing | None = None,
        copy_bytes_max: int = COPY_BYTES_MAX,
    ) -> None:
        """`listen` makes the listening socket, a real one unless told otherwise; `hearing` knows which of the clients'
        sockets are ready. What is longer than `copy_bytes_max` goes out by `sendfile`, which takes files and sockets of
        the system."""
        self._dispatch = dispatch
        self._frame_bytes_max = frame_bytes_max
        self._idle_seconds_max = idle_ms_max / 1000
        self._connections_max = connections_max
        self._connections_per_ip_max = connections_per_ip_max
        self._listen = listen or _listen
        self._copy_bytes_max = copy_bytes_max
        self._loop = asyncio.get_running_loop()
        self._hearing = hearing or LoopHearing(self._loop)
        # In the order of their coming.
        self._connections: dict[Connection, None] = {}
        # By their clients, and not closed yet.
        self._ended: deque[Connection] = deque()
        self._per_ip: Counter[str] = Counter()
        self._socket: socket.socket | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def bind(self, host: str, port: int) -> int:
        """Takes the address, so that nobody else can; connections wait for `start`. The port that it got. Raises
        OSError."""
        self._socket = self._listen(host, port)
        self._socket.setblocking(False)
        bound_port: int = self._socket.getsockname()[1]
        return bound_port

    def start(self) -> None:
        """Accepts from now on."""
        assert self._socket is not None
        self._loop.add_reader(self._socket, self._accept_ready)
        self._sweeper = self._loop.call_later(_IDLE_SWEEP_SECONDS, self._close_idle)

    def stop(self) -> None:
        """Takes no more connections and ends those there are."""
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close()
        self._hearing.stop()

    def _accept_ready(self) -> None:
        assert self._socket is not None
        for _ in range(_ACCEPTS_PER_WAKEUP):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as problem:
                if problem.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                self._pause_accepting(problem)
                return
            self._admit(accepted, address[0])

    def _admit(self, accepted: socket.socket, ip: str) -> None:
        if len(self._connections) >= self._connections_max or self._per_ip[ip] >= self._connections_per_ip_max:
            log.warning("refused a connection from %s: the limit of connections is reached", ip)
            accepted.close()
            return
        try:
            connection = Connection(
                accepted,
                self._loop,
                self._hearing,
                self._dispatch,
                self._frame_bytes_max,
                lambda closed: self._forget(closed, ip),
                self._copy_bytes_max,
                self._end,
            )
        except OSError:
            # The peer was gone before it was greeted.
            accepted.close()
            return
        self._connections[connection] = None
        self._per_ip[ip] += 1

    def _end(self, connection: Connection) -> None:
        connection.stop_reading()
        self._ended.append(connection)
        if len(self._ended) == 1:
            self._loop.call_soon(self._close_ended)

    def _close_ended(self) -> None:
        """A process that had thousands of connections ends them all at once: a few in a turn, others wait for us."""
        for _ in range(min(_CLOSED_PER_TURN, len(self._ended))):
            self._ended.popleft().close()
        if self._ended:
            self._loop.call_soon(self._close_ended)

    def _forget(self, connection: Connection, ip: str) -> None:
        self._connections.pop(connection, None)
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    def _pause_accepting(self, problem: OSError) -> None:
        """Out of descriptors: those who are connected are served on, the others wait in the backlog."""
        log.error("cannot accept connections for a moment: %s (raise `ulimit -n`)", problem.strerror)
        assert self._socket is not None
        self._loop.remove_reader(self._socket)
        self._loop.call_later(_PAUSE_WHEN_EXHAUSTED_SECONDS, self._resume_accepting)

    def _resume_accepting(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket, self._accept_ready)

    def _close_idle(self) -> None:
        now = self._loop.time()
        for connection in list(self._connections):
            quiet_seconds = now - connection.last_active
            if quiet_seconds > self._idle_seconds_max and connection.is_idle:
                connection.close()
            elif quiet_seconds > _IDLE_SWEEP_SECONDS:
                connection.shrink()
        self._sweeper = self._loop.call_later(_IDLE_SWEEP_SECONDS, self._close_idle)
