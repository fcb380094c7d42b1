"""A node that asks to be let in: for what it waits, and what ends it; and one that stood still."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.settings import NodeSettings
from penstock.broker.broker_life import BrokerLife
from penstock.protocol.messages import Struct

BROKER_HEARTBEAT = 63


class BeatingHeart:
    """Answers heartbeats; whether the node is fenced is up to the test."""

    def __init__(self) -> None:
        self.is_fenced = False
        self.beats = 0

    async def request(self, api_key: int, version: int, body: Struct, *, seconds_max: float) -> Any:
        self.beats += 1
        return Struct(error_code=ErrorCode.none, is_fenced=self.is_fenced, should_shut_down=False)


class Controller:
    """Answers with one error after the other, then lets the node in."""

    def __init__(self, *errors: ErrorCode) -> None:
        self._errors = list(errors)

    async def request(self, api_key: int, version: int, body: Struct, *, seconds_max: float) -> Any:
        if self._errors:
            return Struct(error_code=self._errors.pop(0))
        return Struct(error_code=ErrorCode.none, broker_epoch=7)


class Misled(Controller):
    """Knows the node of before as the one of epoch 8, until this one is let in again as the one of epoch 9."""

    def __init__(self, *errors: ErrorCode) -> None:
        super().__init__(*errors)
        self.known_epoch = 8
        self.beats = 0
        self.previous_epochs: list[int] = []

    async def request(self, api_key: int, version: int, body: Struct, *, seconds_max: float) -> Any:
        if api_key == BROKER_HEARTBEAT:
            self.beats += 1
            is_known = body.broker_epoch == self.known_epoch
            code = ErrorCode.none if is_known else ErrorCode.stale_broker_epoch
            return Struct(error_code=code, is_fenced=not is_known, should_shut_down=False)
        self.previous_epochs.append(body.previous_broker_epoch)
        answer = await super().request(api_key, version, body, seconds_max=seconds_max)
        if answer.error_code == ErrorCode.none:
            answer.broker_epoch = self.known_epoch = 9
        return answer


def life(
    *errors: ErrorCode, controller: BeatingHeart | Misled | None = None, known_epoch: Callable[[], int] = lambda: 7
) -> BrokerLife:
    return BrokerLife(
        controller or Controller(*errors),  # type: ignore[arg-type]
        NodeSettings({"broker.heartbeat.interval.ms": "1", "broker.session.timeout.ms": "3000"}),
        node_id=1,
        cluster_id="c",
        incarnation_id=uuid.UUID(int=1),
        log_directory_id=uuid.UUID(int=2),
        features=[],
        applied_offset=lambda: 0,
        known_epoch=known_epoch,
        is_outcast=lambda: False,
    )


@pytest.mark.parametrize("error", [ErrorCode.kafka_storage_error, ErrorCode.duplicate_broker_registration])
def test_what_may_pass_is_waited_for(error: ErrorCode) -> None:
    new = life(error, error)
    asyncio.run(new.register("here", 9092, -1))
    assert new.epoch == 7


def test_what_will_not_change_ends_the_node_at_once_with_words() -> None:
    with pytest.raises(Refused, match="belongs to another cluster"):
        asyncio.run(life(ErrorCode.inconsistent_cluster_id).register("here", 9092, -1))


async def test_a_node_that_stood_still_is_in_doubt_until_it_hears_that_it_is_not_fenced() -> None:
    controller = BeatingHeart()
    node = life(controller=controller)
    node.start()
    try:
        await until(lambda: controller.beats > 0)
        assert not node.is_in_doubt
        controller.is_fenced = True
        # As it is found after SIGCONT, by a request that is served before any timer.
        node._seen_s -= 2
        assert node.is_in_doubt
        beats = controller.beats
        await until(lambda: controller.beats > beats + 10)
        assert node.is_in_doubt
        controller.is_fenced = False
        await until(lambda: not node.is_in_doubt)
    finally:
        node.stop()


async def test_who_does_not_live_yet_or_stood_still_for_a_moment_is_not_in_doubt() -> None:
    node = life(controller=BeatingHeart())
    assert not node.is_in_doubt
    node.start()
    node._seen_s -= 1
    assert not node.is_in_doubt
    node.stop()


async def test_who_is_not_the_one_that_the_metadata_know_asks_to_be_let_in_again() -> None:
    """A request of the process before it arrived late."""
    controller = Misled(ErrorCode.duplicate_broker_registration)
    node = life(controller=controller, known_epoch=lambda: controller.known_epoch)
    node.epoch = 7
    node.start()
    try:
        await until(lambda: not node.is_fenced)
        assert (node.epoch, controller.previous_epochs) == (9, [-1, -1])
    finally:
        node.stop()


async def test_who_was_unregistered_does_not_come_back_by_itself() -> None:
    controller = Misled()
    node = life(controller=controller, known_epoch=lambda: -1)
    node.epoch = 7
    node.start()
    try:
        await until(lambda: controller.beats > 3)
        assert (node.epoch, controller.previous_epochs) == (7, [])
    finally:
        node.stop()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    pytest.fail("it did not come to be")
