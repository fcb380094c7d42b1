"""fdatasync by the kernel's own threads, by Linux' asynchronous I/O (`io_submit`, since 4.18 for syncs).

A thread of ours would have to be woken, take its turn with the event loop before and after, and wake the loop: with the
syncs of one turn in several files that is more work than everything else an `acks=all` needs. So the loop hands all of
them over with one system call, and hears of them by a descriptor that it waits for as for any connection.

Where the system has none of this, `KernelSyncs.make` returns None.
"""

import asyncio
import ctypes
import os
import platform
import sys
from collections.abc import Callable, Sequence
from itertools import count
from struct import Struct
from typing import Any

# io_setup, io_destroy, io_getevents, io_submit: libc has no names for them.
_SYSTEM_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
# struct iocb: token, key, flags, opcode, priority, descriptor, buffer, length, offset, reserved, flags, eventfd.
_REQUEST = Struct("<QIIHhIQQqQII")
_FDATASYNC = 3
_TELL_EVENTFD = 1
# struct io_event: token, address of the request, result, second result.
_EVENT = Struct("<QQqq")
# Under way at the same time; what comes on top is for the caller's own threads.
_IN_FLIGHT_MAX = 128

# Called from the loop with the error number, 0 if the bytes are durable.
Done = Callable[[int], None]


class KernelSyncs:
    def __init__(self, loop: asyncio.AbstractEventLoop, call: Any, context: ctypes.c_ulong) -> None:
        self._loop = loop
        self._call = call
        self._context = context
        _, self._destroy, self._get_events, self._submit = _SYSTEM_CALLS[platform.machine()]
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._events = ctypes.create_string_buffer(_EVENT.size * _IN_FLIGHT_MAX)
        self._no_time = (ctypes.c_long * 2)(0, 0)
        self._tokens = count()
        self._done: dict[int, Done] = {}
        loop.add_reader(self._eventfd, self._look)

    @classmethod
    def make(cls, loop: asyncio.AbstractEventLoop) -> "KernelSyncs | None":
        calls = _SYSTEM_CALLS.get(platform.machine())
        if sys.platform != "linux" or sys.byteorder != "little" or calls is None:
            return None
        call = ctypes.CDLL(None, use_errno=True).syscall
        call.restype = ctypes.c_long
        context = ctypes.c_ulong(0)
        if call(calls[0], _IN_FLIGHT_MAX, ctypes.byref(context)) != 0:
            return None
        return cls(loop, call, context)

    def submit(self, syncs: Sequence[tuple[int, Done]]) -> int:
        """Starts the syncs of descriptors, which may be closed then, and says how many, from the first on, it could."""
        syncs = syncs[: _IN_FLIGHT_MAX - len(self._done)]
        if not syncs:
            return 0
        size = _REQUEST.size
        requests = ctypes.create_string_buffer(size * len(syncs))
        tokens = []
        for position, (descriptor, done) in enumerate(syncs):
            token = next(self._tokens)
            tokens.append(token)
            self._done[token] = done
            fields = (token, 0, 0, _FDATASYNC, 0, descriptor, 0, 0, 0, 0, _TELL_EVENTFD, self._eventfd)
            _REQUEST.pack_into(requests, position * size, *fields)
        start = ctypes.addressof(requests)
        pointers = (ctypes.c_void_p * len(syncs))(*range(start, start + size * len(syncs), size))
        started: int = max(0, self._call(self._submit, self._context, ctypes.c_long(len(syncs)), pointers))
        for token in tokens[started:]:
            del self._done[token]
        return started

    def stop(self) -> None:
        """Blocks until the syncs under way are done; who waits for them is told by the loop, if that goes on."""
        self._loop.remove_reader(self._eventfd)
        while self._done and (finished := self._finished(len(self._done), None)):
            for done, error_number in finished:
                self._loop.call_soon(done, error_number)
        self._call(self._destroy, self._context)
        os.close(self._eventfd)

    def _look(self) -> None:
        os.eventfd_read(self._eventfd)
        for done, error_number in self._finished(0, self._no_time):
            done(error_number)

    def _finished(self, count_min: int, timeout: Any) -> list[tuple[Done, int]]:
        least, most = ctypes.c_long(count_min), ctypes.c_long(_IN_FLIGHT_MAX)
        found = max(0, self._call(self._get_events, self._context, least, most, self._events, timeout))
        events = _EVENT.iter_unpack(self._events.raw[: found * _EVENT.size])
        return [(self._done.pop(token), -result) for token, _, result, _ in events]
