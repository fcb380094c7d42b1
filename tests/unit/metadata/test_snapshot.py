from typing import Any

from hypothesis import given, settings

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import decode_record, encode_record
from penstock.cluster.metadata.snapshot import restore, snapshot_records
from penstock.cluster.partition.replication import Leader
from tests.unit.metadata.cluster_of_three import Brokers
from tests.unit.metadata.test_partition_change import STEPS, _act


def everything_in(image: MetadataImage) -> Any:
    """As plain data; a broker's place in the log is the snapshot's own."""

    def fields(one: Any, *left_out: str) -> dict[str, Any]:
        return {name: getattr(one, name) for name in one.__slots__ if name not in left_out}

    return {
        "features": image.features,
        "brokers": {one.id: fields(one, "must_know_offset") for one in image.brokers.values()},
        "controllers": image.controllers,
        "topics": {
            name: (topic.id, topic.is_internal, {index: fields(one) for index, one in topic.partitions.items()})
            for name, topic in image.topics.items()
        },
        "configs": image.configs,
        "colliding": image.colliding_names,
        "next_producer_id": image.next_producer_id,
        "leaderless": {(one.topic_id, one.index) for one in image.index.leaderless},
        "eligible": {
            broker_id: {(one.topic_id, one.index) for one in image.index.eligible_on(broker_id)}
            for broker_id in image.brokers
        },
    }


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_snapshot_replayed_gives_the_same_image(steps: list[tuple[str, int, int]]) -> None:
    """Invariant 13: snapshot and suffix equal the whole log."""
    cluster = Brokers(None, "rack", None, None)
    cluster.topic("orders", (1, 2, 3), (2, 3, 4), (4, 1, 2), min_insync_replicas="2")
    cluster.topic("a.b")
    cluster.do(cluster.controller.allocate_producer_ids(1, cluster.epoch(1)))
    cluster.do(cluster.controller.register_controller(9, cluster.image.brokers[1].incarnation, [], []))  # type: ignore[arg-type]
    for action, broker_id, index in steps:
        _act(cluster, action, broker_id, index)
    restored = MetadataImage()
    for record in snapshot_records(cluster.image):
        restored.replay(decode_record(encode_record(record)))
    assert everything_in(restored) == everything_in(cluster.image)


def test_an_empty_image_has_an_empty_snapshot() -> None:
    assert list(snapshot_records(MetadataImage())) == []


def test_a_partitions_leader_knows_the_brokers_of_a_snapshot_that_was_loaded_while_it_leads() -> None:
    cluster = Brokers()
    cluster.topic()
    image = MetadataImage()
    restore(image, snapshot_records(cluster.image), cluster.image.end_offset)
    leader = Leader(1, image.brokers, lag_ms_max=1000, isr_min=2)
    leader.lead(cluster.partition(), log_end_offset=0, high_watermark=0, now_ms=0)
    before = cluster.epoch(2)
    cluster.restart(2, clean=False)
    restore(image, snapshot_records(cluster.image), cluster.image.end_offset)
    assert leader.check_follower(2, before, 0) is ErrorCode.not_leader_or_follower
    assert leader.check_follower(2, cluster.epoch(2), 0) is ErrorCode.none
