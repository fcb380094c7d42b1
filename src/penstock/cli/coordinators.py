"""Finding the coordinator of a group or a transaction, and waiting until it can answer."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from penstock.base.errors import ErrorCode
from penstock.cli.connection import REQUEST_TIMEOUT_S, Cluster
from penstock.cli.failures import Failed
from penstock.cli.wire import refusal, request
from penstock.protocol.messages import Struct

FIND_COORDINATOR, FIND_COORDINATOR_VERSION = 10, 4
# What a key names.
GROUP, TRANSACTION = 0, 1

# A coordinator that is being made, moved or loaded will answer soon, and so will one that is ending a transaction.
_SOON = (
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
    ErrorCode.concurrent_transactions,
)
_RETRY_PAUSE_S = 0.1

T = TypeVar("T")


def coordinator_of(cluster: Cluster, kind: int, key: str) -> dict[str, Any]:
    body = Struct(key_type=kind, coordinator_keys=[key])

    def ask() -> Any:
        answer = request(cluster, cluster.address, FIND_COORDINATOR, FIND_COORDINATOR_VERSION, body)
        (found,) = answer.coordinators
        return found, found.error_code, found.error_message

    found = settled(ask)
    return {"id": found.node_id, "host": found.host, "port": found.port}


def settled(ask: Callable[[], tuple[T, ErrorCode, str | None]]) -> T:
    """What is answered once the coordinator is ready to."""
    give_up_at = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        answer, code, message = ask()
        problem = refusal(code, message)
        if problem is None:
            return answer
        if code not in _SOON or time.monotonic() > give_up_at:
            raise Failed(problem)
        time.sleep(_RETRY_PAUSE_S)
