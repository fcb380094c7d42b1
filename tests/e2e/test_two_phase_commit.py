"""KIP-939 over the wire: a prepared transaction outlives its producer and the broker, and is ended by whoever recovers
it. Also that an end that was decided is carried out by the broker's next life."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.protocol.batch import TRANSACTIONAL
from penstock.protocol.messages import Struct
from tests.conformance.wire import PRODUCE, Wire, batch_of, create_topic, fetch, produce_of, records_of
from tests.e2e.node import Node, wait_until

FIND_COORDINATOR, INIT_PRODUCER_ID, END_TXN, DESCRIBE_TRANSACTIONS = 10, 22, 26, 65
READ_COMMITTED = 1
Pair = tuple[int, int]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data", "-X", "transaction.two.phase.commit.enable=true").start()
    yield node
    node.close()


def wire_to_coordinator(node: Node) -> Wire:
    """A connection, once the coordinator is at work."""
    wire = Wire(node.port)

    def is_ready() -> bool:
        (found,) = wire.ask(FIND_COORDINATOR, 4, Struct(key_type=1, coordinator_keys=["t"])).coordinators
        return not found.error_code and bool(describe(wire).error_code != ErrorCode.coordinator_load_in_progress)

    wait_until(is_ready, "the coordinator is at work")
    return wire


def describe(wire: Wire) -> Any:
    (state,) = wire.ask(DESCRIBE_TRANSACTIONS, 0, Struct(transactional_ids=["t"])).transaction_states
    return state


def init(wire: Wire, *, keep: bool = False) -> Any:
    body = Struct(
        transactional_id="t",
        transaction_timeout=1,
        producer_id=-1,
        producer_epoch=-1,
        enable2_pc=True,
        keep_prepared_txn=keep,
    )
    answer = wire.ask(INIT_PRODUCER_ID, 6, body)
    assert answer.error_code == ErrorCode.none
    return answer


def pair_of(answer: Any) -> Pair:
    return answer.producer_id, answer.producer_epoch


def write(wire: Wire, pair: Pair, value: bytes) -> ErrorCode:
    batch = batch_of([value], attributes=TRANSACTIONAL, producer=(*pair, 0))
    body = produce_of("orders", [(0, batch)])
    body.transactional_id = "t"
    code: ErrorCode = wire.ask(PRODUCE, 12, body).responses[0].partition_responses[0].error_code
    return code


def end(wire: Wire, pair: Pair, *, commit: bool) -> Any:
    body = Struct(transactional_id="t", producer_id=pair[0], producer_epoch=pair[1], committed=commit)
    return wire.ask(END_TXN, 5, body)


def committed(wire: Wire) -> tuple[int, list[bytes | None]]:
    """(last stable offset, the values that a reader of committed records would see)."""
    answer = fetch(wire, "orders", 0, isolation_level=READ_COMMITTED)
    aborted = {one.producer_id for one in answer.aborted_transactions or ()}
    values = [record.value for record in records_of(answer.records)]
    return answer.last_stable_offset, [] if aborted else [value for value in values if value in (b"one", b"two")]


@pytest.mark.parametrize("commit", [True, False])
def test_a_prepared_transaction_is_recovered_and_ended_after_the_broker_was_killed(node: Node, commit: bool) -> None:
    with wire_to_coordinator(node) as wire:
        create_topic(wire, "orders")
        old = pair_of(init(wire))
        assert write(wire, old, b"one") == ErrorCode.none
    node.kill9()
    node.start()
    with wire_to_coordinator(node) as wire:
        assert committed(wire) == (0, [])
        assert describe(wire).transaction_state == "Ongoing"
        recovered = init(wire, keep=True)
        assert (recovered.ongoing_txn_producer_id, recovered.ongoing_txn_producer_epoch) == old
        assert end(wire, old, commit=not commit).error_code == ErrorCode.producer_fenced
    node.kill9()
    node.start()
    with wire_to_coordinator(node) as wire:
        ended = end(wire, pair_of(recovered), commit=commit)
        assert ended.error_code == ErrorCode.none
        wait_until(lambda: committed(wire)[0] > 1, "the marker is written")
        assert committed(wire) == (2, [b"one"] if commit else [])
        # The producer that recovered it goes on.
        assert write(wire, pair_of(ended), b"two") == ErrorCode.none


def test_an_end_that_was_answered_is_carried_out_whenever_the_broker_is_killed(node: Node) -> None:
    with wire_to_coordinator(node) as wire:
        create_topic(wire, "orders")
        pair = pair_of(init(wire))
        assert write(wire, pair, b"one") == ErrorCode.none
        answer = end(wire, pair, commit=True)
        assert answer.error_code == ErrorCode.none
        # At once: its markers may be written by now, or not.
        node.kill9()
    node.start()
    with wire_to_coordinator(node) as wire:
        # Perhaps for the second time: the coordinator does not know how far its last life had come.
        wait_until(lambda: committed(wire)[0] > 1, "the marker is written")
        assert committed(wire)[1] == [b"one"]
        wait_until(lambda: describe(wire).transaction_state == "CompleteCommit", "the end is complete")
        again = end(wire, pair, commit=True)
        assert (again.error_code, pair_of(again)) == (ErrorCode.none, pair_of(answer))
