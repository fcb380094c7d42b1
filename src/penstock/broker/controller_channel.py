"""The way to the active controller, wherever it is: on another node, or here.

Requests are asked again until there is a controller that answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.peers import Peer, PeerGone
from penstock.protocol.messages import Malformed, Struct

# A node that starts alone is its controller a moment later.
_RETRY_SECONDS_MIN = 0.002
_RETRY_SECONDS_MAX = 0.05
_REQUEST_SECONDS_MAX = 3.0

# Answers a request of this node to itself: API key, version, body.
AskHere = Callable[[int, int, Struct], Awaitable[Any]]
# Host and port of a node, None while it is not known.
Locate = Callable[[int], tuple[str, int] | None]


class ControllerChannel:
    def __init__(self, node_id: int, leader_id: Callable[[], int], locate: Locate, ask_here: AskHere) -> None:
        self._node_id = node_id
        self._leader_id = leader_id
        self._locate = locate
        self._ask_here = ask_here
        self._peer: Peer | None = None

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()
            self._peer = None

    async def request(self, api_key: int, version: int, body: Struct, *, seconds_max: float) -> Any:
        """The controller's answer. Raises Refused(REQUEST_TIMED_OUT) when there was none in that time."""
        # In a task of its own: handlers, which have none, cannot have time-outs.
        return await asyncio.get_running_loop().create_task(self._request(api_key, version, body, seconds_max))

    async def _request(self, api_key: int, version: int, body: Struct, seconds_max: float) -> Any:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + seconds_max
        why = "there is no active controller"
        pause_s = _RETRY_SECONDS_MIN
        while True:
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                raise Refused(ErrorCode.request_timed_out, f"the controller did not answer: {why}")
            try:
                answer = await self._once(api_key, version, body, min(left_s, _REQUEST_SECONDS_MAX))
                if getattr(answer, "error_code", 0) != ErrorCode.not_controller:
                    return answer
                why = "the node asked is not the controller"
            except (Refused, PeerGone, Malformed) as problem:
                why = str(problem)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _RETRY_SECONDS_MAX)

    async def _once(self, api_key: int, version: int, body: Struct, seconds_max: float) -> Any:
        leader_id = self._leader_id()
        peer = None if leader_id == self._node_id else self._peer_of(leader_id)
        try:
            async with asyncio.timeout(seconds_max):
                if peer is None:
                    return await self._ask_here(api_key, version, body)
                return await peer.request(api_key, version, body)
        except TimeoutError as problem:
            if peer is not None:
                # Answers come in order: the ones behind would wait as long.
                peer.close()
            raise PeerGone(f"node {leader_id} did not answer in {seconds_max:.0f} s") from problem

    def _peer_of(self, node_id: int) -> Peer:
        address = self._locate(node_id)
        if address is None:
            raise Refused(ErrorCode.not_controller, "there is no active controller at the moment")
        if self._peer is None or (self._peer.host, self._peer.port) != address:
            if self._peer is not None:
                self._peer.close()
            self._peer = Peer(*address, f"node-{self._node_id}")
        return self._peer
