"""/api/transactions: transactions that the brokers know, where they serve ListTransactions (KIP-664), and their end by
force: who takes over a transactional id aborts what was open under it, and fences its producer (KIP-98).
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.base.errors import ErrorCode
from penstock.http.administration import ClusterView
from penstock.http.bodies import Json, decode_json, read_body
from penstock.http.errors import CLUSTER_ERROR, WRONG_STATE, ApiError
from penstock.http.services import Services, services_of
from penstock.http.wire import request as ask
from penstock.http.wire import serves
from penstock.protocol.messages import Struct

_LIST_TRANSACTIONS = 66
_DESCRIBE_TRANSACTIONS = 65
_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION = 22, 5
# What the new owner of an id that is aborted would have, if there was one.
_TIMEOUT_MS = 60_000
_ABORT_SECONDS_MAX = 10.0
_RETRY_SECONDS = 0.1
_TRANSACTION_NOT_FOUND = 40407
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FINISHED = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


class _Abort(msgspec.Struct, forbid_unknown_fields=True):
    """Which transaction was meant: the id may have another owner by now, and another transaction."""

    producer_id: int
    producer_epoch: int


_abort = msgspec.json.Decoder(_Abort)


async def transactions(request: Request) -> Response:
    """Transactions of all brokers: state, producer, partitions"""
    services = services_of(request)
    if not _can_ask(services):
        return Json({"is_served": False, "transactions": []})
    view = await services.administration.cluster()
    return Json(await asyncio.to_thread(_listed, view))


def _can_ask(services: Services) -> bool:
    return services.options.client_properties.get("security.protocol", "plaintext").lower() == "plaintext"


async def abort(request: Request) -> Response:
    """Abort a transaction and fence its producer"""
    services = services_of(request)
    wanted = decode_json(_abort, await read_body(request, services.options.body_bytes_max))
    if not _can_ask(services):
        raise ApiError(50101, "this server cannot ask these brokers for transactions", "Use `penstock txn abort`.")
    view = await services.administration.cluster()
    name: str = request.path_params["transactional_id"]
    return Json(await asyncio.to_thread(_aborted, view, name, wanted))


def _aborted(view: ClusterView, name: str, wanted: _Abort) -> dict[str, Any]:
    """Blocks. Raises ApiError."""
    address, found = _coordinated(view, name)
    if (found.producer_id, found.producer_epoch) != (wanted.producer_id, wanted.producer_epoch):
        raise ApiError(WRONG_STATE, f"'{name}' belongs to another producer by now", "Look at the list again.")
    if found.transaction_state in _FINISHED:
        raise ApiError(WRONG_STATE, f"'{name}' has no open transaction", "Look at the list again.")
    body = Struct(transactional_id=name, transaction_timeout=_TIMEOUT_MS, producer_id=-1, producer_epoch=-1)
    deadline_s = time.monotonic() + _ABORT_SECONDS_MAX
    while True:
        error = ask(address, _INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, body).error_code
        if not error:
            return {"transactional_id": name, "aborted": True}
        # While its markers are written, the coordinator says so.
        if error != ErrorCode.concurrent_transactions or time.monotonic() > deadline_s:
            what = ErrorCode(error).name.replace("_", " ")
            raise ApiError(CLUSTER_ERROR, f"'{name}' is not aborted: {what}", "Look at the list, and try again.")
        time.sleep(_RETRY_SECONDS)


def _coordinated(view: ClusterView, name: str) -> tuple[tuple[str, int], Any]:
    """Where its coordinator is, and how that describes it. Raises ApiError."""
    for broker in view.brokers.values():
        address = (broker.host, broker.port)
        (found,) = ask(address, _DESCRIBE_TRANSACTIONS, 0, Struct(transactional_ids=[name])).transaction_states
        if not found.error_code:
            return address, found
    raise ApiError(_TRANSACTION_NOT_FOUND, f"there is no transaction of '{name[:80]}'", "Look at the list again.")


def _listed(view: ClusterView) -> dict[str, Any]:
    """Blocks. Raises ApiError."""
    found = []
    is_served = False
    for broker in view.brokers.values():
        address = (broker.host, broker.port)
        if not serves(address, _LIST_TRANSACTIONS):
            continue
        is_served = True
        answer = ask(address, _LIST_TRANSACTIONS, 0, Struct(state_filters=[], producer_id_filters=[]))
        names = [one.transactional_id for one in answer.transaction_states]
        details = _described(address, names) if serves(address, _DESCRIBE_TRANSACTIONS) else {}
        for one in answer.transaction_states:
            detail = details.get(one.transactional_id, {})
            found.append(
                {
                    "transactional_id": one.transactional_id,
                    "producer_id": one.producer_id,
                    "state": one.transaction_state,
                    "coordinator": broker.broker_id,
                    **detail,
                }
            )
    found.sort(key=lambda one: one["transactional_id"])
    return {"is_served": is_served, "transactions": found}


def _described(address: tuple[str, int], names: list[str]) -> dict[str, dict[str, Any]]:
    if not names:
        return {}
    answer = ask(address, _DESCRIBE_TRANSACTIONS, 0, Struct(transactional_ids=names))
    return {
        one.transactional_id: {
            "producer_epoch": one.producer_epoch,
            "timeout_ms": one.transaction_timeout // _MILLISECOND,
            "started_ms": max((one.transaction_start_time - _EPOCH) // _MILLISECOND, -1),
            "partitions": [[topic.topic, number] for topic in one.topics for number in topic.partitions],
        }
        for one in answer.transaction_states
        if not one.error_code
    }


ROUTES = [
    Route("/api/transactions", transactions, methods=["GET"]),
    # Ids may have slashes in them.
    Route("/api/transactions/{transactional_id:path}/abort", abort, methods=["POST"]),
]
