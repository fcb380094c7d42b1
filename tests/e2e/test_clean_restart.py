"""A clean restart is no excuse to forget what producers still wait for."""

from penstock.protocol.messages import Struct
from tests.conformance.wire import INIT_PRODUCER_ID, Wire, batch_of, create_topic, produce
from tests.e2e.node import Node

# As many requests as an idempotent producer may have on their way.
IN_FLIGHT_MAX = 5


def test_what_was_on_its_way_at_a_clean_restart_may_be_sent_again(broker: Node, topic_name: str) -> None:
    """The answers to several batches may be lost with the connection; each of them is known as a duplicate then."""
    with Wire(broker.port) as wire:
        create_topic(wire, topic_name)
        producer_id = wire.ask(INIT_PRODUCER_ID, 4, Struct(transaction_timeout=1000)).producer_id
        batches = [batch_of([b"v" * 1000] * 2, producer=(producer_id, 0, sequence)) for sequence in range(0, 40, 2)]
        offsets = []
        for batch in batches:
            answer = produce(wire, topic_name, batch)
            assert answer.error_code == 0
            offsets.append(answer.base_offset)
    broker.restart()
    with Wire(broker.port) as wire:
        again = [produce(wire, topic_name, batch) for batch in batches[-IN_FLIGHT_MAX:]]
    assert [(answer.error_code, answer.base_offset) for answer in again] == [
        (0, offset) for offset in offsets[-IN_FLIGHT_MAX:]
    ]
