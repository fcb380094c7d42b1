"""A node that asks to be let in: for what it waits, and what ends it."""

import asyncio
import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.settings import NodeSettings
from penstock.broker.broker_life import BrokerLife
from penstock.protocol.messages import Struct


class Controller:
    """Answers with one error after the other, then lets the node in."""

    def __init__(self, *errors: ErrorCode) -> None:
        self._errors = list(errors)

    async def request(self, api_key: int, version: int, body: Struct, *, seconds_max: float) -> Any:
        if self._errors:
            return Struct(error_code=self._errors.pop(0))
        return Struct(error_code=ErrorCode.none, broker_epoch=7)


def life(*errors: ErrorCode) -> BrokerLife:
    return BrokerLife(
        Controller(*errors),  # type: ignore[arg-type]
        NodeSettings({}),
        node_id=1,
        cluster_id="c",
        incarnation_id=uuid.UUID(int=1),
        log_directory_id=uuid.UUID(int=2),
        features=[],
        applied_offset=lambda: 0,
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
