"""/api/transactions: transactions that the brokers know, where they serve ListTransactions (KIP-664)."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.http.administration import ClusterView
from penstock.http.bodies import Json
from penstock.http.services import services_of
from penstock.http.wire import request as ask
from penstock.http.wire import serves
from penstock.protocol.messages import Struct

_LIST_TRANSACTIONS = 66
_DESCRIBE_TRANSACTIONS = 65
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def transactions(request: Request) -> Response:
    """Transactions of all brokers: state, producer, partitions"""
    services = services_of(request)
    protocol = services.options.client_properties.get("security.protocol", "plaintext")
    if protocol.lower() != "plaintext":
        return Json({"is_served": False, "transactions": []})
    view = await services.administration.cluster()
    return Json(await asyncio.to_thread(_listed, view))


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


ROUTES = [Route("/api/transactions", transactions, methods=["GET"])]
