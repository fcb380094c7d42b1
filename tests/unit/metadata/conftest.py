import random
from typing import TypeVar

import pytest

from penstock.base.settings import NodeSettings
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import decode_record, encode_record
from tests.unit.metadata.registering import CLUSTER_ID, bring_up, registration

T = TypeVar("T")


class SeededRandom:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)


class Cluster:
    """A controller whose decisions are replayed at once, through their bytes."""

    def __init__(self, *racks: str | None, **overrides: str) -> None:
        self.image = MetadataImage()
        self.settings = NodeSettings({name.replace("_", "."): value for name, value in overrides.items()})
        self.controller = Controller(self.image, self.settings, SeededRandom(), CLUSTER_ID)
        for broker_id, rack in enumerate(racks or (None,), start=1):
            bring_up(self.controller, self.do, registration(broker_id, rack=rack))

    def do(self, decision: Decision[T]) -> T:
        for record in decision.records:
            self.image.replay(decode_record(encode_record(record)))
        return decision.answer


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def make_cluster() -> type[Cluster]:
    return Cluster
