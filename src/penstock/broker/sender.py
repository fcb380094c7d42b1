"""A second pair of hands for `sendfile`.

Sending a megabyte costs half a millisecond of kernel time, which would be all that this process's one event loop does
while consumers catch up. `sendfile` releases the interpreter lock, so one thread can send for one connection while the
loop serves the others. There is never more than one job under way: whoever comes meanwhile sends by itself.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple


class Sent(NamedTuple):
    bytes_sent: int
    # None also where the socket takes no more for now.
    problem: OSError | None


class Sender:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="send")
        self._is_busy = False

    def try_send(
        self, to_socket: int, from_file: int, position: int, length: int, done: Callable[[Sent], None]
    ) -> bool:
        """Sends in the thread and calls `done` from the loop; False if it is busy. The caller keeps `to_socket` open
        until then; the file may be closed at once."""
        if self._is_busy:
            return False
        self._is_busy = True
        # The log may close its own descriptor any time.
        file = os.dup(from_file)
        self._thread.submit(self._send, to_socket, file, position, length, done)
        return True

    def stop(self) -> None:
        self._thread.shutdown(wait=True)

    def _send(self, to_socket: int, file: int, position: int, length: int, done: Callable[[Sent], None]) -> None:
        sent = 0
        problem = None
        try:
            while sent < length:
                count = os.sendfile(to_socket, file, position + sent, length - sent)
                if not count:
                    break
                sent += count
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            problem = error
        os.close(file)
        self._loop.call_soon_threadsafe(self._finish, done, Sent(sent, problem))

    def _finish(self, done: Callable[[Sent], None], sent: Sent) -> None:
        self._is_busy = False
        done(sent)
