"""Brokers for tests: registered and unfenced as real ones are."""

import uuid
from collections.abc import Callable
from typing import Any

from penstock.cluster.metadata.brokers import Heartbeat, Registration
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.features import SUPPORTED_FEATURES

CLUSTER_ID = "a-cluster"


def registration(broker_id: int, incarnation: int = 1, **fields: Any) -> Registration:
    """Of the broker's given incarnation."""
    return Registration(
        **{
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid.UUID(int=(broker_id << 64) + incarnation),
            "listeners": [("PLAINTEXT", f"host-{broker_id}", 9092, 0)],
            "features": [(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
            **fields,
        }
    )


def bring_up(controller: Controller, do: Callable[[Decision[Any]], Any], one: Registration, now_ms: int = 0) -> int:
    """Registers a broker and lets it serve; gives its epoch."""
    epoch: int = do(controller.register_broker(one, now_ms))
    do(controller.heartbeat(Heartbeat(one.broker_id, epoch, current_metadata_offset=2**62), now_ms))
    return epoch
