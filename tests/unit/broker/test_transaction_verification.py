import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.transaction_verification import TransactionVerification


async def test_one_that_is_cancelled_while_it_waits_its_turn_does_not_disturb_the_one_before() -> None:
    broker: Any = SimpleNamespace(
        settings={"transaction.partition.verification.enable": True}, clock=SimpleNamespace(now_ms=lambda: 0)
    )
    verification = TransactionVerification(broker)
    writes: Any = SimpleNamespace(producer_id=7, start=lambda now_ms, is_verifying: [])
    may_end = asyncio.Event()

    async def write() -> None:
        async with verification.verified(writes):
            await may_end.wait()

    first, second = asyncio.create_task(write()), asyncio.create_task(write())
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    may_end.set()
    await first
