"""The crowd: a few in each turn of the loop, in the order of their coming."""

import asyncio

import pytest

from penstock.broker.crowd import TAKEN_PER_TURN, Crowd
from penstock.broker.deferred import Deferred
from penstock.protocol.messages import Malformed


class Told(Deferred):
    """Keeps why there is no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.why = ""

    def fail(self, why: str) -> None:
        self.why = why


async def test_a_turn_takes_so_many_and_the_others_keep_their_order() -> None:
    crowd = Crowd()
    done: list[int] = []
    count = 3 * TAKEN_PER_TURN + 1
    for number in range(count):
        if crowd.take():
            done.append(number)
        else:
            crowd.add(lambda number=number: done.append(number), Deferred())  # type: ignore[misc]
    assert done == list(range(TAKEN_PER_TURN))
    sizes = []
    while crowd.is_waiting:
        await asyncio.sleep(0)
        sizes.append(len(done))
    assert sizes == [2 * TAKEN_PER_TURN, 3 * TAKEN_PER_TURN, count]
    assert done == list(range(count))


async def test_who_comes_while_others_wait_does_not_overtake_them() -> None:
    crowd = Crowd()
    for _ in range(TAKEN_PER_TURN):
        assert crowd.take()
    done: list[str] = []
    for _ in range(TAKEN_PER_TURN + 1):
        crowd.add(lambda: done.append("earlier"), Deferred())
    await asyncio.sleep(0)
    assert len(done) == TAKEN_PER_TURN
    assert not crowd.take()
    await asyncio.sleep(0)
    assert not crowd.is_waiting
    assert crowd.take()


async def test_a_quiet_turn_makes_room_again() -> None:
    crowd = Crowd()
    for _ in range(5):
        for _ in range(TAKEN_PER_TURN):
            assert crowd.take()
        assert not crowd.take()
        await asyncio.sleep(0)


@pytest.mark.parametrize("problem", [Malformed("no request"), RuntimeError("a defect")])
async def test_one_that_fails_costs_its_client_the_answer_and_nobody_else(
    problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    crowd = Crowd()
    while crowd.take():
        pass
    failed, served = Told(), Told()
    done: list[str] = []

    def fail() -> None:
        raise problem

    crowd.run(fail, failed)
    crowd.run(lambda: done.append("served"), served)
    assert not done
    await asyncio.sleep(0)
    assert done == ["served"]
    crowd.run(fail, failed)
    crowd.run(lambda: done.append("at once"), served)
    assert done == ["served", "at once"]
    assert failed.why
    assert not served.why
    assert ("a defect" in caplog.text) == isinstance(problem, RuntimeError)
