"""One client connection: bytes in, frames to the router, answers out in the order of their requests.

It works on the bare socket instead of an asyncio transport: received bytes land in one reused buffer that record
batches are appended to the log from, answers of one wake-up leave in one system call, and file slices go out with
`sendfile`. That is most of why the broker is fast.

Kafka's rule is that answers leave in the order of the requests. Requests are handled as they come, so that several
Produce requests can wait for one fsync; `_pending` holds the answers back until it is their turn.

Back-pressure: while more than `_OUT_BYTES_MAX` wait to be sent, or `_PENDING_MAX` requests to be answered, nothing more
is read from this client, and TCP makes it wait.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import Any

from penstock.base.ports import DiskError, Slice
from penstock.broker.deferred import Deferred
from penstock.broker.hearing import Hearing
from penstock.protocol.fetch import Part
from penstock.protocol.messages import Malformed

log = logging.getLogger("penstock.connection")

_SIZE = Struct(">i")
# Between them are the API and its version.
_SIZE_AND_ID = Struct(">i4xi")
_BUFFER_BYTES_MIN = 64 * 1024
_BUFFER_BYTES_BUSY = 1024 * 1024
_OUT_BYTES_MAX = 8 * 1024 * 1024
_PENDING_MAX = 256
# Up to here, copying file bytes next to the headers around them beats a sendfile call of their own.
COPY_BYTES_MAX = 32 * 1024
_GATHER_MAX = 64
# What is taken together is small: of large requests there is little to save.
_ALIKE_MAX = 64
_ALIKE_BYTES_MAX = 64 * 1024
# Linux has them.
_TCP_CONGESTION: int | None = getattr(socket, "TCP_CONGESTION", None)
_TCP_CORK: int | None = getattr(socket, "TCP_CORK", None)

Dispatch = Callable[["Connection", memoryview], "Deferred | Iterable[Part] | None"]

# Correlation id and frame of a request.
Alike = tuple[int, memoryview]


class Connection:
    __slots__ = (
        "_buffer",
        "_copy_bytes_max",
        "_descriptor",
        "_dispatch",
        "_end",
        "_frame_bytes_max",
        "_in_dispatch",
        "_is_corked",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_on_close",
        "_on_end",
        "_out",
        "_out_bytes",
        "_pending",
        "_socket",
        "_start",
        "hearing",
        "is_closed",
        "last_active",
        "local_address",
        "on_closed",
        "peer",
        "settle",
        "take_usual",
    )

    def __init__(
        self,
        connected: socket.socket,
        loop: asyncio.AbstractEventLoop,
        hearing: Hearing,
        dispatch: Dispatch,
        frame_bytes_max: int,
        on_close: Callable[["Connection"], None],
        copy_bytes_max: int = COPY_BYTES_MAX,
        on_end: Callable[["Connection"], None] | None = None,
    ) -> None:
        """`on_end` is called when the client has ended it, and closes it, now or later."""
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        # The loop is told the number: of a socket that it does not know it would make a text first, at length.
        self._descriptor = connected.fileno()
        self._loop = loop
        self.hearing = hearing
        self._dispatch = dispatch
        self._frame_bytes_max = frame_bytes_max
        self._on_close = on_close
        self._on_end = on_end or Connection.close
        self._copy_bytes_max = copy_bytes_max
        self._buffer = bytearray(_BUFFER_BYTES_MIN)
        self._start = 0
        self._end = 0
        self._pending: deque[Deferred] = deque()
        self._out: deque[Part] = deque()
        self._out_bytes = 0
        self._is_corked = False
        self._is_reading = True
        self._is_writing = False
        self._in_dispatch = False
        self.is_closed = False
        self.last_active = loop.time()
        self.local_address: tuple[str, int] = connected.getsockname()[:2]
        peer_host, peer_port = connected.getpeername()[:2]
        self.peer = f"{peer_host}:{peer_port}"
        if peer_host.startswith("127.") or peer_host == "::1":
            _leave_unpaced(connected)
        # Where something was put off that this client has asked for, and that is still in the buffer: has it done.
        self.settle: Callable[[], None] | None = None
        # Knows the requests that this client sends most: accepts those that stand in a buffer between two positions,
        # one after the other, and returns where the first other one begins.
        self.take_usual: Callable[[Connection, bytearray, int, int], int] | None = None
        # Called once when the connection ends: what waits on its behalf gives up.
        self.on_closed: list[Callable[[], None]] = []
        hearing.listen(self._descriptor, self._read_ready)

    @property
    def is_idle(self) -> bool:
        return not self._pending and not self._out

    def close(self, why: str | None = None) -> None:
        """`why` becomes the one log line; None for the ordinary end."""
        if self.is_closed:
            return
        self.is_closed = True
        if why is not None:
            log.warning("closed %s: %s", self.peer, why)
        if self._is_reading:
            self.hearing.ignore(self._descriptor)
        if self._is_writing:
            self._loop.remove_writer(self._descriptor)
        self._socket.close()
        self._pending.clear()
        self._out.clear()
        # An answer that is long in coming, as of a group's member, may keep what is left of us until then.
        self._buffer = bytearray()
        self._start = self._end = 0
        for give_up in self.on_closed:
            give_up()
        self.on_closed.clear()
        self._on_close(self)

    @property
    def has_more(self) -> bool:
        """For the handler of a frame: whether others have come with it, or something waits for the end of this turn."""
        return self._end > self._start or self.settle is not None

    def stop_reading(self) -> None:
        if self._is_reading and not self.is_closed:
            self._is_reading = False
            self.hearing.ignore(self._descriptor)

    # Reading

    def _read_ready(self) -> None:
        if self.settle is not None:
            self.settle()
        if self._end == len(self._buffer):
            # Whole frames fill it, left from a pause: they make the room.
            self._handle_frames()
            return
        try:
            count = self._socket.recv_into(memoryview(self._buffer)[self._end :])
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if not count:
            self._on_end(self)
            return
        self.last_active = self._loop.time()
        self._end += count
        self._handle_frames()

    def _handle_frames(self) -> None:
        """Hands every whole frame in the buffer to the router, then sends what can be sent, in one go."""
        self._in_dispatch = True
        try:
            self._dispatch_buffered()
        except Malformed as problem:
            # Answers that were owed before the bad frame still go out.
            self._in_dispatch = False
            if self.settle is not None:
                self.settle()
            self._flush()
            self.close(f"{problem}")
            return
        except Exception:
            log.exception("a request from %s met a defect in the broker", self.peer)
            self.close("see the error above")
            return
        self._in_dispatch = False
        if self._out:
            self._flush()

    def _dispatch_buffered(self) -> None:
        start, end = self._start, self._end
        view = memoryview(self._buffer)
        size = -1
        while end - start >= 4 and self._is_reading and not self.is_closed:
            first = start
            if self.take_usual is not None:
                start = self.take_usual(self, self._buffer, start, min(end, start + 4 + self._frame_bytes_max))
            if start == first:
                (size,) = _SIZE.unpack_from(view, start)
                if not 0 <= size <= self._frame_bytes_max:
                    raise Malformed(f"a frame of {size} bytes (0 to {self._frame_bytes_max} are allowed)")
                frame_end = start + 4 + size
                if frame_end > end:
                    break
                # A handler may take frames that follow.
                self._start = frame_end
                result = self._dispatch(self, view[start + 4 : frame_end])
                start = self._start
                size = -1
                if result is not None:
                    self.accept(result)
            if self._out_bytes > _OUT_BYTES_MAX or len(self._pending) > _PENDING_MAX:
                if self.settle is not None:
                    self.settle()
                self._flush()
                self._pause_if_loaded()
        self._start = start
        if not self.is_closed:
            self._make_room(size)

    def skip_to(self, position: int) -> None:
        """The frames before it are the handler's to answer."""
        self._start = position

    def take_alike(self, frame: memoryview, common_bytes: int) -> list[Alike]:
        """For the handler of `frame`: the frames right after it that begin with the same bytes, so many, but for the
        correlation id, as far as they are here in whole. They are its to answer, or to give back."""
        start, end, buffer = self._start, self._end, self._buffer
        view = memoryview(buffer)
        api, rest = bytes(frame[:4]), bytes(frame[8:common_bytes])
        bytes_end = start + _ALIKE_BYTES_MAX
        taken: list[Alike] = []
        while buffer.startswith(api, start + 4) and buffer.startswith(rest, start + 12):
            size, correlation_id = _SIZE_AND_ID.unpack_from(buffer, start)
            frame_end = start + 4 + size
            if size < common_bytes or frame_end > end or frame_end > bytes_end or len(taken) == _ALIKE_MAX:
                break
            taken.append((correlation_id, view[start + 4 : frame_end]))
            start = frame_end
        self._start = start
        return taken

    def give_back(self, alike: list[Alike]) -> None:
        """The last of those that were taken."""
        self._start -= sum(4 + len(frame) for _, frame in alike)

    def _make_room(self, size: int) -> None:
        """Gets the buffer ready for the next read; `size` is of the frame that is still incomplete, or -1.

        The buffer grows as bytes arrive, never to what a frame merely claims to be."""
        left = self._end - self._start
        if not left:
            self._start = self._end = 0
            return
        capacity = len(self._buffer)
        if self._end < capacity and self._start + 4 + size <= capacity:
            return
        if self.settle is not None:
            self.settle()
        # It was filled: a busy connection gets more room, so that fewer frames have to be moved to the front.
        remaining = self._buffer[self._start : self._end]
        if self._end * 2 > capacity and (capacity < _BUFFER_BYTES_BUSY or left * 2 > capacity):
            self._buffer = bytearray(min(capacity * 2, self._frame_bytes_max + 4))
        self._buffer[:left] = remaining
        self._start, self._end = 0, left

    def shrink(self) -> None:
        """Gives back what a busy time has left, when nothing is under way."""
        if self._start == self._end and len(self._buffer) > _BUFFER_BYTES_MIN:
            self._buffer = bytearray(_BUFFER_BYTES_MIN)

    def accept(self, result: "Deferred | Iterable[Part]") -> None:
        if isinstance(result, Deferred):
            result._connection = self
            self._pending.append(result)
            if result._parts is not None:
                self.release()
        elif self._pending:
            done = Deferred()
            done._parts = result
            done._connection = self
            self._pending.append(done)
        else:
            self._enqueue(result)

    # Writing

    def release(self) -> None:
        """Moves the answers whose turn it is to the socket."""
        if self.is_closed:
            return
        pending = self._pending
        while pending and (parts := pending[0]._parts) is not None:
            pending.popleft()
            self._enqueue(parts)
        if self._out and not self._in_dispatch:
            self._flush()

    def _enqueue(self, parts: Iterable[Part]) -> None:
        for part in parts:
            length = part.length if type(part) is Slice else len(part)
            if length:
                self._out.append(part)
                self._out_bytes += length

    def _flush(self) -> None:
        """Sends until all is sent or the socket takes no more."""
        out = self._out
        try:
            while out:
                part = out[0]
                if type(part) is Slice and part.length > self._copy_bytes_max:
                    self._send_slice(part)
                elif len(out) == 1 and type(part) is not Slice:
                    # Hot: most answers are one piece, and taken whole.
                    sent = self._socket.send(part)  # type: ignore[arg-type]
                    if sent == self._out_bytes:
                        out.clear()
                        self._out_bytes = 0
                    else:
                        self._sent(sent)
                else:
                    self._send_gathered()
            if self._is_corked:
                self._uncork()
        except (BlockingIOError, InterruptedError):
            if not self._is_writing:
                self._is_writing = True
                self._loop.add_writer(self._descriptor, self._flush)
            self._pause_if_loaded()
            return
        except DiskError as problem:
            self.close(f"a segment could not be read: {problem}")
            return
        except OSError:
            self.close()
            return
        if self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._descriptor)
        if not self._is_reading:
            self._resume_if_light()

    def _send_gathered(self) -> None:
        """Sends a run of memory parts and small slices with one call."""
        out = self._out
        run: list[Any] = []
        for position, part in enumerate(out):
            if type(part) is Slice:
                if part.length > self._copy_bytes_max:
                    self._cork()
                    break
                part = _read_slice(part)
                out[position] = part
            run.append(part)
            if len(run) == _GATHER_MAX:
                break
        self._sent(self._socket.sendmsg(run))

    def _sent(self, sent: int) -> None:
        out = self._out
        self._out_bytes -= sent
        while sent:
            part = out[0]
            length = len(part)
            if sent < length:
                out[0] = memoryview(part)[sent:]  # type: ignore[arg-type]
                return
            out.popleft()
            sent -= length

    def _cork(self) -> None:
        """A file's bytes, and what stands before and after them, travel together: only whole packets leave until all
        is sent."""
        if not self._is_corked and _TCP_CORK is not None:
            self._is_corked = True
            self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, 1)

    def _uncork(self) -> None:
        self._is_corked = False
        assert _TCP_CORK is not None
        self._socket.setsockopt(socket.IPPROTO_TCP, _TCP_CORK, 0)

    def _send_slice(self, part: Slice) -> None:
        file: Any = part.file
        sent = os.sendfile(self._descriptor, file.fileno(), part.position, part.length)
        if sent == 0:
            raise DiskError(f"{part.file.path} ends before byte {part.position + part.length}")
        self._out_bytes -= sent
        if sent < part.length:
            self._out[0] = Slice(part.file, part.position + sent, part.length - sent)
        else:
            self._out.popleft()

    def _pause_if_loaded(self) -> None:
        if self._out_bytes > _OUT_BYTES_MAX or len(self._pending) > _PENDING_MAX:
            self.stop_reading()

    def _resume_if_light(self) -> None:
        if self.is_closed:
            return
        if self._out_bytes <= _OUT_BYTES_MAX // 2 and len(self._pending) <= _PENDING_MAX // 2:
            self._is_reading = True
            self.hearing.listen(self._descriptor, self._read_ready)
            # What had arrived before the pause is still in the buffer, and no further byte may come to announce it.
            if not self._in_dispatch:
                self._loop.call_soon(self._handle_buffered)

    def _handle_buffered(self) -> None:
        if not self.is_closed and self._is_reading:
            self._handle_frames()


def _leave_unpaced(connected: socket.socket) -> None:
    """Within a machine there is no network to spare. BBR, where a system has it for all connections, paces them all
    the same: on a busy machine readers of old records got about half of what they get without."""
    if _TCP_CONGESTION is not None:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, b"reno")


def _read_slice(part: Slice) -> bytes:
    data = part.file.read(part.position, part.length)
    if len(data) != part.length:
        raise DiskError(f"{part.file.path} ends before byte {part.position + part.length}")
    return data
