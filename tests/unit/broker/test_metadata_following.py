"""Much that is committed at once is followed in pieces, so that others have a turn between them."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from penstock.broker.broker import Broker
from penstock.broker.metadata_following import RECORDS_OF_A_TURN, CommittedBatch, hand_on
from penstock.cluster.metadata.records import MetadataRecord, TopicRecord, encode_record
from penstock.protocol.batch import read_header
from penstock.protocol.records import Record, build_batch
from penstock.testing.in_process import BrokerInProcess
from tests.conformance.wire import Wire, create_topic
from tests.unit.broker.test_quorum_runner import Nobody


class Told(Nobody):
    def __init__(self) -> None:
        self.batches: list[CommittedBatch] = []

    def on_committed(self, batch: CommittedBatch) -> Iterator[None]:
        self.batches.append(batch)
        return iter(())


@pytest.mark.parametrize("count", [1, RECORDS_OF_A_TURN - 1, RECORDS_OF_A_TURN, 2 * RECORDS_OF_A_TURN + 1])
def test_a_batch_is_read_in_pieces_and_handed_on_whole(count: int) -> None:
    records: list[MetadataRecord] = [
        TopicRecord(name=f"topic-{number}", topic_id=UUID(int=number + 1)) for number in range(count)
    ]
    batch = build_batch([Record(delta, 0, None, encode_record(record)) for delta, record in enumerate(records)])
    listener = Told()
    turns = 0
    for _ in hand_on(read_header(batch), memoryview(batch), listener):
        turns += 1
        assert not listener.batches
    assert turns == count // RECORDS_OF_A_TURN
    assert listener.batches == [CommittedBatch(0, records)]


def test_a_broker_lets_others_have_a_turn_while_it_hosts_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 2 * RECORDS_OF_A_TURN + 1
    on_committed = Broker.on_committed
    hosted: list[int] = []

    def watched(broker: Broker, batch: CommittedBatch) -> Iterator[None]:
        for _ in on_committed(broker, batch):
            # Whoever looks at the metadata sees all of it, though not all is hosted yet.
            assert len(broker.image.topics["many"].partitions) == count
            hosted.append(len(broker.topics_by_name[b"many"]))
            yield

    monkeypatch.setattr(Broker, "on_committed", watched)
    with BrokerInProcess() as broker, Wire(int(broker.bootstrap_servers.rpartition(":")[2])) as wire:
        create_topic(wire, "many", count)
    assert len(hosted) == 2
    assert 0 < hosted[0] < hosted[1] < count
