"""Requests of this broker to other brokers, about transactions that span both. One connection to each."""

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.broker.peers import Peer, PeerGone
from penstock.protocol.messages import Malformed, Struct

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_REQUEST_SECONDS_MAX = 5.0


class LinkBroken(Exception):
    """The other broker did not answer, or not in time: what was asked may or may not have been done."""


class Links:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._peers: dict[int, Peer] = {}

    def stop(self) -> None:
        for peer in self._peers.values():
            peer.close()

    async def request(self, node_id: int, api_key: int, version: int, body: Struct) -> Any:
        """The decoded answer. Raises LinkBroken."""
        # In a task of its own: handlers, which have none, cannot have time-outs.
        return await asyncio.get_running_loop().create_task(self._request(node_id, api_key, version, body))

    async def _request(self, node_id: int, api_key: int, version: int, body: Struct) -> Any:
        registered = self._broker.image.brokers.get(node_id)
        if registered is None:
            raise LinkBroken(f"node {node_id} is not registered")
        peer = self._peers.get(node_id)
        if peer is None or (peer.host, peer.port) != (registered.host, registered.port):
            if peer is not None:
                peer.close()
            peer = self._peers[node_id] = Peer(registered.host, registered.port, f"node-{self._broker.node_id}")
        try:
            async with asyncio.timeout(_REQUEST_SECONDS_MAX):
                return await peer.request(api_key, version, body)
        except TimeoutError as problem:
            peer.close()
            raise LinkBroken(f"node {node_id} did not answer in time") from problem
        except (PeerGone, Malformed) as problem:
            raise LinkBroken(str(problem)) from problem
