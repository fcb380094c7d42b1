"""What a node with an empty data directory has to ask before it can join a cluster: which one it is."""

import asyncio
import logging
from collections.abc import Sequence

from penstock.broker.peers import Peer, PeerGone
from penstock.protocol.messages import Malformed, Struct

log = logging.getLogger("penstock.node")

_DESCRIBE_CLUSTER = 60
_ROUND_SECONDS = 0.2
_ANSWER_SECONDS_MAX = 2.0


async def ask_cluster_id(servers: Sequence[tuple[str, int]], client_id: str, stopped: asyncio.Event) -> str | None:
    """Of whoever answers first. None: stopped before anybody did."""
    is_told = False
    while not stopped.is_set():
        for host, port in servers:
            peer = Peer(host, port, client_id)
            try:
                async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                    answer = await peer.request(_DESCRIBE_CLUSTER, 0, Struct())
                return str(answer.cluster_id)
            except (PeerGone, Malformed, TimeoutError):
                continue
            finally:
                peer.close()
        if not is_told:
            is_told = True
            names = ", ".join(f"{host}:{port}" for host, port in servers)
            log.warning("nobody answers at %s: this node waits for one of them, to join its cluster", names)
        await asyncio.sleep(_ROUND_SECONDS)
    return None
