"""A broker small enough for unit tests: the real image, settings and controller, without logs, disks or sockets."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.base.settings import NodeSettings
from penstock.broker.absences import Absences
from penstock.broker.api import Api
from penstock.broker.producer_ids import ProducerIdBlocks
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import ALL_BROKERS, RESOURCE_BROKER, MetadataImage
from penstock.cluster.metadata.records import decode_record, encode_record
from penstock.cluster.metadata.topics import CreatedTopic, NewTopic
from penstock.protocol.messages import (
    Struct,
    decode,
    decode_request,
    encode,
    encode_response,
    request_entity,
    response_entity,
)
from tests.unit.metadata.registering import CLUSTER_ID, bring_up, registration

T = TypeVar("T")


class CountingRandom:
    """Bytes that differ with every call and are the same in every run."""

    def __init__(self) -> None:
        self._calls = 0

    def random_bytes(self, count: int) -> bytes:
        self._calls += 1
        return self._calls.to_bytes(8, "big").rjust(count, b"\x11")[-count:]


class SmallBroker:
    def __init__(self, **overrides: str) -> None:
        self.node_id = self.controller_id = 1
        self.cluster_id = CLUSTER_ID
        self.settings = NodeSettings({name.replace("_", "."): value for name, value in overrides.items()})
        self.image = MetadataImage()
        self.disk_is_full = False
        self.quorum = SimpleNamespace(kraft_version=0)
        self.now_ms = 0
        self.clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.absences = Absences(self.image, self.clock)
        self.controller = Controller(self.image, self.settings, CountingRandom(), CLUSTER_ID)
        self.controller.watch_connection = lambda *_: None  # type: ignore[attr-defined]
        self.producer_ids = ProducerIdBlocks(self)  # type: ignore[arg-type]
        self.add_broker(1, "here")

    def add_broker(self, broker_id: int, host: str) -> None:
        one = registration(broker_id, listeners=[("PLAINTEXT", host, 9092, 0)])
        bring_up(self.controller, self._apply, one)

    def _apply(self, decision: Decision[T]) -> T:
        for record in decision.records:
            self.image.replay(decode_record(encode_record(record)))
        node = self.image.config_of(RESOURCE_BROKER, str(self.node_id))
        self.settings.use_dynamic(self.image.config_of(RESOURCE_BROKER, ALL_BROKERS), node)
        return decision.answer

    async def decide(self, decide: Callable[[Controller], Decision[T]]) -> T:
        if self.disk_is_full:
            raise Refused(ErrorCode.kafka_storage_error, "the disk is full")
        return self._apply(decide(self.controller))

    async def create_topics(self, topics: Sequence[NewTopic]) -> Sequence[CreatedTopic]:
        return await self.decide(lambda controller: controller.create_topics(topics))

    async def allocate_producer_ids(self) -> range:
        epoch = self.image.brokers[self.node_id].epoch
        return await self.decide(lambda controller: controller.allocate_producer_ids(self.node_id, epoch))

    def endpoint_for(self, context: Any, broker_id: int) -> tuple[str, int, str | None]:
        return ("here" if broker_id == self.node_id else f"host-{broker_id}", 9092, None)

    def ask(self, api: Api, version: int, **fields: Any) -> Any:
        """Sends a request through both codecs and the handler; the answer is as a client decodes it."""
        entity = request_entity(api.key, version)
        request = decode_request(api.key, version, bytes(encode(entity, Struct(**fields))))
        context: Any = SimpleNamespace(version=version, client_id="test", connection=SimpleNamespace(on_closed=[]))
        broker: Any = self
        answer = api.handle(broker, context, request)
        if inspect.isawaitable(answer):
            answer = asyncio.run(_awaited(answer))
        frame = encode_response(api.key, version, 7, answer)
        schema: Any = response_entity(api.key, version)
        return decode(schema, bytes(frame), 8 + schema.__header_schema__.__version__)


async def _awaited(answer: Any) -> Any:
    return await answer


@pytest.fixture
def broker() -> SmallBroker:
    return SmallBroker()


@pytest.fixture
def make_broker() -> type[SmallBroker]:
    return SmallBroker
