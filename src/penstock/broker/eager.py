"""Runs a handler's coroutine at once, and without a task.

Most handlers finish or come to their one wait right away; a task would cost them more than their own work. In exchange
`asyncio.current_task` is None in them: no `asyncio.timeout` and no `TaskGroup` there.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

# Called once, with what the coroutine returned or with what it raised.
Finish = Callable[[Any, BaseException | None], None]


def run_eagerly(coroutine: Coroutine[Any, None, Any], finish: Finish) -> None:
    try:
        future = coroutine.send(None)
    except StopIteration as end:
        finish(end.value, None)
    except (Exception, asyncio.CancelledError) as problem:
        # Cancelled is what it waits for when the loop ends.
        finish(None, problem)
    else:
        if future is None:
            # A bare yield, as in `asyncio.sleep(0)`: the others first.
            asyncio.get_running_loop().call_soon(run_eagerly, coroutine, finish)
        else:
            # What the future has come to is for the coroutine to ask, as `await` does when it goes on.
            future._asyncio_future_blocking = False
            future.add_done_callback(lambda _: run_eagerly(coroutine, finish))
