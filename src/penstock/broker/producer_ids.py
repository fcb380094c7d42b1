"""Producer ids: unique in the cluster for ever, taken from blocks that are recorded before they are used.

The next block is asked for while the last tenth of the one before is being used, so nobody waits for it.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode, Refused

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

log = logging.getLogger("penstock.producer_ids")

_AT_HAND_MIN = 100


class ProducerIdBlocks:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._at_hand: deque[int] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._refused = Refused(ErrorCode.coordinator_load_in_progress, "there is no producer id at hand")

    def take(self) -> int | None:
        """None while there is none at hand; one has been asked for then."""
        if len(self._at_hand) <= _AT_HAND_MIN:
            self._ask()
        return self._at_hand.popleft() if self._at_hand else None

    async def next(self) -> int:
        """Raises Refused."""
        while (producer_id := self.take()) is None:
            await self.wait()
        return producer_id

    async def wait(self) -> None:
        """Until there is an id at hand. Raises Refused."""
        if self._at_hand:
            return
        # Whoever waits may leave; the block is for everybody.
        await asyncio.shield(self._ask())
        if not self._at_hand:
            raise self._refused

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> "asyncio.Task[None]":
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._fetch_block())
        return self._asking

    async def _fetch_block(self) -> None:
        try:
            self._at_hand.extend(await self._broker.allocate_producer_ids())
        except Refused as refused:
            log.error("no block of producer ids could be had: %s", refused.message)
            self._refused = refused
