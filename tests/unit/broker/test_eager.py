import asyncio
from typing import Any

from penstock.broker.eager import run_eagerly


class Outcome:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, BaseException | None]] = []
        self.is_told = asyncio.Event()

    def __call__(self, answer: Any, problem: BaseException | None) -> None:
        self.calls.append((answer, problem))
        self.is_told.set()


async def test_a_coroutine_that_waits_for_nothing_is_finished_at_once() -> None:
    async def answer() -> int:
        return 7

    outcome = Outcome()
    run_eagerly(answer(), outcome)
    assert outcome.calls == [(7, None)]


async def test_one_that_waits_goes_on_when_its_future_is_done() -> None:
    first: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    second: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def add() -> int:
        return await first + await second

    outcome = Outcome()
    run_eagerly(add(), outcome)
    first.set_result(3)
    await asyncio.sleep(0)
    assert outcome.calls == []
    second.set_result(4)
    await asyncio.sleep(0)
    assert outcome.calls == [(7, None)]


async def test_what_a_future_raises_can_be_caught_behind_the_await() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def catching() -> str:
        try:
            await future
        except ValueError as problem:
            return str(problem)
        return "nothing"

    outcome = Outcome()
    run_eagerly(catching(), outcome)
    future.set_exception(ValueError("no"))
    await asyncio.sleep(0)
    assert outcome.calls == [("no", None)]


async def test_what_the_coroutine_raises_is_told() -> None:
    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("defect")

    outcome = Outcome()
    run_eagerly(failing(), outcome)
    assert outcome.calls == []
    await outcome.is_told.wait()
    ((answer, problem),) = outcome.calls
    assert answer is None
    assert isinstance(problem, ValueError)


async def test_threads_and_gathered_coroutines_can_be_awaited() -> None:
    async def one() -> int:
        return await asyncio.to_thread(int, "1")

    async def both() -> list[int]:
        return list(await asyncio.gather(one(), one()))

    outcome = Outcome()
    run_eagerly(both(), outcome)
    await outcome.is_told.wait()
    assert outcome.calls == [([1, 1], None)]


async def test_that_what_it_waits_for_was_cancelled_is_told_and_is_no_defect() -> None:
    problems: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def gathering() -> list[int]:
        return list(await asyncio.gather(future))

    outcome = Outcome()
    run_eagerly(gathering(), outcome)
    future.cancel()
    await outcome.is_told.wait()
    ((answer, problem),) = outcome.calls
    assert answer is None
    assert isinstance(problem, asyncio.CancelledError)
    assert problems == []
