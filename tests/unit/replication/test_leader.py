import uuid
from typing import Any

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.alter_partition import AlteredPartition
from penstock.cluster.metadata.image import BrokerImage, PartitionImage
from penstock.cluster.metadata.records import PartitionRecord, RegisterBrokerRecord
from penstock.cluster.partition.replication import (
    Acknowledge,
    BeginEpoch,
    Effect,
    HighWatermarkAdvanced,
    Leader,
    ProposeIsr,
)

LAG_MS_MAX = 30_000
TOPIC_ID = uuid.UUID(int=5)


def broker(broker_id: int, epoch: int, **fields: Any) -> BrokerImage:
    return BrokerImage(
        RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=None, broker_epoch=epoch, end_points=(), features=(), rack=None,
            **{"fenced": False, **fields},
        )
    )  # fmt: skip


def partition(
    isr: tuple[int, ...] = (1, 2, 3), *, leader_epoch: int = 5, partition_epoch: int = 10, leader: int = 1
) -> PartitionImage:
    record = PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=(1, 2, 3), isr=isr, leader=leader, leader_epoch=leader_epoch,
        partition_epoch=partition_epoch, directories=(),
    )  # fmt: skip
    return PartitionImage(TOPIC_ID, record, lambda items: items or ())


class Led:
    """Broker 1 leads; 2 and 3 follow with broker epochs 102 and 103. Of ten records in its log five are committed."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3), isr_min: int = 2) -> None:
        self.brokers = {one: broker(one, 100 + one) for one in (1, 2, 3)}
        self.leader = Leader(1, self.brokers, lag_ms_max=LAG_MS_MAX, isr_min=isr_min)
        self.begun = self.leader.lead(partition(isr), log_end_offset=10, high_watermark=5, now_ms=0)

    def fetch(self, broker_id: int, offset: int, now_ms: int = 0, epoch: int | None = None) -> list[Effect]:
        broker_epoch = 100 + broker_id if epoch is None else epoch
        return self.leader.on_fetch(broker_id, broker_epoch, offset, 0, now_ms)


def altered(isr: tuple[int, ...], partition_epoch: int = 11, leader_epoch: int = 5) -> AlteredPartition:
    return AlteredPartition(
        TOPIC_ID, 0, leader_id=1, leader_epoch=leader_epoch, isr=isr, partition_epoch=partition_epoch
    )


def test_a_new_leader_begins_its_epoch_at_the_end_of_its_log_and_knows_nothing_of_the_others() -> None:
    led = Led()
    assert led.begun == [BeginEpoch(5, 10)]
    assert (led.leader.high_watermark, led.leader.epoch_start_offset) == (5, 10)
    assert [one.log_end_offset for one in led.leader.followers.values()] == [-1, -1]


def test_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    led = Led()
    assert led.fetch(2, 10) == []
    assert led.fetch(3, 8) == [HighWatermarkAdvanced(8)]
    assert led.fetch(3, 10) == [HighWatermarkAdvanced(10)]
    assert led.leader.on_append(12, now_ms=1) == []
    assert led.fetch(2, 12) == []
    assert led.fetch(3, 12) == [HighWatermarkAdvanced(12)]


def test_the_high_watermark_never_goes_back() -> None:
    led = Led()
    led.fetch(2, 10)
    led.fetch(3, 10)
    assert led.fetch(3, 4) == []
    assert led.leader.high_watermark == 10


def test_a_leader_alone_in_the_isr_commits_by_itself_only_if_one_is_enough() -> None:
    assert Led((1,), isr_min=1).begun == [BeginEpoch(5, 10), HighWatermarkAdvanced(10)]
    led = Led((1,), isr_min=2)
    assert (led.begun, led.leader.is_under_min_isr) == ([BeginEpoch(5, 10)], True)
    assert led.leader.reconfigure(lag_ms_max=LAG_MS_MAX, isr_min=1, now_ms=0) == [HighWatermarkAdvanced(10)]


def test_where_the_disk_must_have_it_the_high_watermark_waits_for_the_leaders_own_sync() -> None:
    led = Led()
    led.leader.must_sync = True
    led.leader.on_append(12, now_ms=0)
    led.leader.acknowledge_at(12, "write")
    led.fetch(2, 12)
    assert led.fetch(3, 12) == []
    assert led.leader.on_synced(10, now_ms=0) == [HighWatermarkAdvanced(10)]
    assert led.leader.on_synced(12, now_ms=0) == [HighWatermarkAdvanced(12), Acknowledge("write", ErrorCode.none)]
    # A sync that was overtaken is no news.
    assert led.leader.on_synced(11, now_ms=0) == []


def test_a_new_leader_counts_nothing_of_its_own_log_as_synced_that_is_not_known_to_be_committed() -> None:
    led = Led((1,), isr_min=1)
    synced = Leader(1, led.brokers, lag_ms_max=LAG_MS_MAX, isr_min=1)
    synced.must_sync = True
    assert synced.lead(partition((1,)), log_end_offset=10, high_watermark=5, now_ms=0) == [BeginEpoch(5, 10)]
    assert synced.on_synced(10, now_ms=0) == [HighWatermarkAdvanced(10)]


def test_writes_are_acknowledged_in_order_when_everybody_in_sync_has_them() -> None:
    led = Led()
    for offset in (11, 12, 13):
        led.leader.on_append(offset, now_ms=0)
        assert led.leader.acknowledge_at(offset, f"write {offset}") == []
    led.fetch(2, 13)
    assert led.fetch(3, 12) == [
        HighWatermarkAdvanced(12),
        Acknowledge("write 11", ErrorCode.none),
        Acknowledge("write 12", ErrorCode.none),
    ]


def test_a_write_that_is_committed_already_is_acknowledged_at_once() -> None:
    led = Led((1,), isr_min=1)
    led.leader.on_append(11, now_ms=0)
    assert led.leader.acknowledge_at(11, "write") == [Acknowledge("write", ErrorCode.none)]


def test_a_write_that_was_committed_by_too_few_says_so() -> None:
    led = Led()
    led.leader.on_append(11, now_ms=0)
    led.leader.acknowledge_at(11, "write")
    led.fetch(2, 11)
    led.leader.lead(partition((1,), partition_epoch=11), 0, 0, now_ms=0)
    assert led.leader.is_under_min_isr
    led.leader.high_watermark = 11
    assert led.leader.acknowledge_at(11, "next") == [
        Acknowledge("write", ErrorCode.not_enough_replicas_after_append),
        Acknowledge("next", ErrorCode.not_enough_replicas_after_append),
    ]


def test_who_waits_when_the_leader_resigns_is_sent_to_another() -> None:
    led = Led()
    led.leader.on_append(11, now_ms=0)
    led.leader.acknowledge_at(11, "write")
    assert led.leader.resign() == [Acknowledge("write", ErrorCode.not_leader_or_follower)]
    assert not led.leader.is_leading
    assert led.leader.check_follower(2, 102, 5) is ErrorCode.not_leader_or_follower


# Who may fetch


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "leader_epoch", "error"),
    [
        (2, 102, 5, ErrorCode.none),
        (2, -1, -1, ErrorCode.none),
        (2, 102, 4, ErrorCode.fenced_leader_epoch),
        (2, 102, 6, ErrorCode.unknown_leader_epoch),
        (4, 104, 5, ErrorCode.unknown_leader_epoch),
        (4, 104, -1, ErrorCode.not_leader_or_follower),
        (2, 101, 5, ErrorCode.not_leader_or_follower),
    ],
)
def test_only_replicas_of_this_epoch_fetch_as_followers(
    broker_id: int, broker_epoch: int, leader_epoch: int, error: ErrorCode
) -> None:
    assert Led().leader.check_follower(broker_id, broker_epoch, leader_epoch) is error


# The ISR grows


def test_a_follower_that_has_everything_is_proposed_and_counts_at_once() -> None:
    led = Led((1, 2))
    led.fetch(2, 10)
    assert led.leader.high_watermark == 10
    led.leader.on_append(12, now_ms=0)
    proposal = ProposeIsr(5, 10, ((1, 101), (2, 102), (3, 103)))
    assert led.fetch(3, 10) == [proposal]
    assert led.fetch(2, 12) == []
    assert led.leader.on_altered(proposal, altered((1, 2, 3)), now_ms=0) == []


def test_a_committed_expansion_is_in_force_before_the_metadata_says_so() -> None:
    led = Led((1, 2))
    led.fetch(2, 10)
    (proposal,) = led.fetch(3, 10)
    assert isinstance(proposal, ProposeIsr)
    led.leader.on_altered(proposal, altered((1, 2, 3)), now_ms=0)
    assert (led.leader.isr, led.leader.partition_epoch) == ((1, 2, 3), 11)
    # Older news, then the same again.
    led.leader.lead(partition((1, 2), partition_epoch=10), 0, 0, now_ms=0)
    led.leader.lead(partition((1, 2, 3), partition_epoch=11), 0, 0, now_ms=0)
    assert led.leader.isr == (1, 2, 3)


def test_a_follower_joins_only_when_it_reached_the_beginning_of_this_epoch() -> None:
    """What an earlier leader committed may lie between our high watermark and there."""
    led = Led((1, 2))
    assert led.fetch(3, 9) == []
    assert len(led.fetch(3, 10)) == 1


@pytest.mark.parametrize("fields", [{"fenced": True}, {"in_controlled_shutdown": True}, {"epoch": 110}])
def test_a_broker_that_is_fenced_stopping_or_another_incarnation_is_not_proposed(fields: dict[str, Any]) -> None:
    led = Led((1, 2))
    led.brokers[3] = broker(3, **{"epoch": 103, **fields})
    assert led.fetch(3, 10) == []
    del led.brokers[3]
    assert led.fetch(3, 10) == []


def test_one_proposal_is_under_way_at_a_time() -> None:
    led = Led((1,), isr_min=1)
    assert len(led.fetch(2, 10)) == 1
    assert led.fetch(3, 10) == []


# The ISR shrinks


def test_a_follower_that_does_not_catch_up_in_time_is_proposed_to_leave_and_counts_until_it_has() -> None:
    led = Led()
    led.fetch(2, 10, now_ms=0)
    led.fetch(3, 10, now_ms=0)
    assert led.leader.next_deadline_ms() is None
    led.leader.on_append(12, now_ms=100)
    led.fetch(2, 12, now_ms=200)
    assert led.leader.next_deadline_ms() == LAG_MS_MAX + 1
    assert led.leader.on_tick(LAG_MS_MAX) == []
    proposal = ProposeIsr(5, 10, ((1, 101), (2, 102)))
    assert led.leader.on_tick(LAG_MS_MAX + 1) == [proposal]
    assert (led.leader.next_deadline_ms(), led.leader.high_watermark) == (None, 10)
    assert led.leader.on_tick(2 * LAG_MS_MAX) == []
    (pending,) = [led.leader._pending]
    assert pending is not None
    assert led.leader.on_altered(pending, altered((1, 2)), LAG_MS_MAX + 2) == [HighWatermarkAdvanced(12)]


def test_a_follower_that_is_always_a_little_behind_stays() -> None:
    led = Led()
    end_offset = 10
    for now_ms in range(0, 3 * LAG_MS_MAX, 1000):
        for follower in (2, 3):
            led.fetch(follower, end_offset, now_ms)
        end_offset += 1
        led.leader.on_append(end_offset, now_ms + 1)
        assert led.leader.on_tick(now_ms + 500) == []


def test_members_that_never_show_up_have_the_same_time_as_others() -> None:
    led = Led()
    assert led.leader.next_deadline_ms() == LAG_MS_MAX + 1
    assert led.leader.on_tick(LAG_MS_MAX + 1) == [ProposeIsr(5, 10, ((1, 101),))]


# The controller's answers


@pytest.mark.parametrize(
    ("error", "is_repeated", "is_given_up"),
    [
        (ErrorCode.ineligible_replica, False, True),
        (ErrorCode.fenced_leader_epoch, False, False),
        (ErrorCode.invalid_update_version, False, False),
        (ErrorCode.new_leader_elected, False, False),
        (ErrorCode.unknown_topic_id, False, False),
        (ErrorCode.not_controller, True, False),
        (ErrorCode.request_timed_out, True, False),
    ],
)
def test_a_refused_proposal_is_given_up_repeated_or_left_to_the_metadata(
    error: ErrorCode, is_repeated: bool, is_given_up: bool
) -> None:
    led = Led((1, 2))
    (proposal,) = led.fetch(3, 10)
    assert isinstance(proposal, ProposeIsr)
    assert led.leader.on_altered(proposal, error, now_ms=0) == ([proposal] if is_repeated else [])
    # Only then is the next proposed.
    assert bool(led.fetch(3, 10)) == is_given_up


def test_an_answer_that_the_metadata_has_overtaken_changes_nothing() -> None:
    led = Led((1, 2))
    (proposal,) = led.fetch(3, 10)
    assert isinstance(proposal, ProposeIsr)
    led.leader.lead(partition((1,), partition_epoch=12), 0, 0, now_ms=0)
    assert led.leader.on_altered(proposal, altered((1, 2, 3)), now_ms=0) == []
    assert led.leader.isr == (1,)


def test_a_new_epoch_of_the_same_leader_keeps_what_is_known_of_the_followers() -> None:
    led = Led()
    led.fetch(2, 10)
    led.leader.on_append(11, now_ms=0)
    effects = led.leader.lead(partition(leader_epoch=6, partition_epoch=11), 0, 0, now_ms=5)
    assert effects == [BeginEpoch(6, 11)]
    assert (led.leader.followers[2].log_end_offset, led.leader.high_watermark) == (10, 5)


def test_the_low_watermark_is_that_of_the_living() -> None:
    led = Led()
    led.leader.on_fetch(2, 102, 10, 4, 0)
    led.leader.on_fetch(3, 103, 10, 2, 0)
    assert led.leader.low_watermark(7) == 2
    led.brokers[3] = broker(3, 103, fenced=True)
    assert led.leader.low_watermark(7) == 4


def test_a_follower_at_the_end_of_the_log_need_not_say_so_with_each_fetch() -> None:
    """It fetched other partitions meanwhile: as of then it had everything here."""
    contacts: dict[int, int] = {}
    led = Led()
    led.leader = Leader(1, led.brokers, lag_ms_max=LAG_MS_MAX, isr_min=2, contacts=contacts)
    led.leader.lead(partition(), log_end_offset=10, high_watermark=5, now_ms=0)
    for follower in (2, 3):
        led.fetch(follower, 10)
    contacts[2] = 100_000
    led.leader.on_append(11, now_ms=100_200)
    assert led.leader.on_tick(100_300) == [ProposeIsr(5, 10, ((1, 101), (2, 102)))], "3 was not heard of since"


def test_a_follower_that_could_not_join_may_join_without_moving() -> None:
    led = Led(isr=(1, 2))
    led.fetch(2, 10)
    led.brokers[3] = broker(3, 103, fenced=True)
    assert led.fetch(3, 10) == []
    assert led.leader.let_join(3) == []
    led.brokers[3] = broker(3, 103)
    assert led.leader.let_join(3) == [ProposeIsr(5, 10, ((1, 101), (2, 102), (3, 103)))]
    assert led.leader.let_join(3) == [], "one proposal at a time"
