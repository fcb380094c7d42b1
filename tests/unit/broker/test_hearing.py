"""Who is heard, and when what was put off is done: with epoll and without, over real sockets."""

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from penstock.broker.hearing import EpollHearing, Hearing, LoopHearing

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="epoll is Linux'")


class Speaker:
    """A client, and the node's end of its connection."""

    def __init__(self, hearing: Hearing) -> None:
        self.client, self._heard = socket.socketpair()
        self._hearing = hearing
        self.descriptor = self._heard.fileno()

    def say(self) -> None:
        self.client.send(b"x")

    def hear(self) -> None:
        self._heard.recv(1)

    def leave(self) -> None:
        self._hearing.ignore(self.descriptor)
        self._heard.close()
        self.client.close()


class World:
    def __init__(self, hearing: Hearing) -> None:
        self.hearing = hearing
        self.happened: list[str] = []
        self.speakers: list[Speaker] = []
        self._something_happened = asyncio.Event()

    def note(self, what: str) -> None:
        self.happened.append(what)
        self._something_happened.set()

    def speaker(self, name: str, *, once_more: bool | None = None, then: Callable[[], None] | None = None) -> Speaker:
        """`once_more`: what it says is put off. `then` is done when it is heard."""
        made = Speaker(self.hearing)
        self.speakers.append(made)

        def hear() -> None:
            made.hear()
            self.note(name)
            if once_more is not None:
                self.hearing.when_all_were_heard(lambda: self.note(f"{name}'s work"), once_more=once_more)
            if then is not None:
                then()

        self.hearing.listen(made.descriptor, hear)
        return made

    def end(self, speaker: Speaker) -> None:
        self.speakers.remove(speaker)
        speaker.leave()

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(10):
            while len(self.happened) < count:
                self._something_happened.clear()
                await self._something_happened.wait()
        return self.happened


@pytest.fixture(params=[LoopHearing, EpollHearing])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = World(request.param(asyncio.get_running_loop()))
    yield made
    for speaker in made.speakers:
        speaker.leave()
    made.hearing.stop()


async def test_work_is_done_once_all_who_had_something_to_say_were_heard(world: World) -> None:
    speakers = [world.speaker("a", once_more=False), world.speaker("b"), world.speaker("c")]
    for speaker in speakers:
        speaker.say()
    happened = await world.until(4)
    assert sorted(happened[:3]) == ["a", "b", "c"]
    assert happened[3:] == ["a's work"]


async def test_once_more_also_waits_for_those_who_begin_to_speak_meanwhile(world: World) -> None:
    second = world.speaker("b")
    first = world.speaker("a", once_more=True, then=second.say)
    first.say()
    assert await world.until(3) == ["a", "b", "a's work"]


async def test_who_ended_while_others_are_heard_is_not_heard_any_more(world: World) -> None:
    first = world.speaker("first", then=lambda: world.end(second))
    second = world.speaker("second", then=lambda: world.end(first))
    first.say()
    second.say()
    await world.until(1)
    # Somebody else is heard after them, so they would have been.
    world.speaker("third").say()
    assert len(await world.until(2)) == 2


async def test_a_defect_with_one_client_is_told_and_the_others_are_heard() -> None:
    loop = asyncio.get_running_loop()
    world = World(EpollHearing(loop))
    broken = Speaker(world.hearing)

    def fail() -> None:
        broken.hear()
        raise RuntimeError("planted")

    world.hearing.listen(broken.descriptor, fail)
    world.speakers.append(broken)
    others = [world.speaker(str(index)) for index in range(3)]
    broken.say()
    for other in others:
        other.say()
    assert sorted(await world.until(3)) == ["0", "1", "2"]
    for speaker in world.speakers:
        speaker.leave()
    world.hearing.stop()


async def test_more_than_one_step_takes_are_all_heard_and_others_have_their_turn_between() -> None:
    loop = asyncio.get_running_loop()
    world = World(EpollHearing(loop))
    speakers = [world.speaker(str(index)) for index in range(200)]
    for speaker in speakers:
        speaker.say()
    heard_by_turns: list[int] = []
    async with asyncio.timeout(10):
        while len(world.happened) < 200:
            heard_by_turns.append(len(world.happened))
            await asyncio.sleep(0)
    assert sorted(world.happened, key=int) == [str(index) for index in range(200)]
    assert len(set(heard_by_turns)) > 2
    for speaker in speakers:
        speaker.leave()
    world.hearing.stop()


async def test_what_is_put_off_while_nobody_is_heard_is_done_in_the_next_turn(world: World) -> None:
    world.hearing.when_all_were_heard(lambda: world.note("work"), once_more=True)
    assert not world.happened
    assert await world.until(1) == ["work"]
