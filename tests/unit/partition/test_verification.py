"""Who may write in a transaction, and which markers count (KIP-890, KIP-1228). Codes as Apache Kafka gives them."""

import pytest

from penstock.base.errors import ErrorCode
from penstock.cluster.partition.partition import LONG_AGO_MS, Partition
from penstock.cluster.partition.verification import NOTHING_TO_VERIFY, TRUSTED, Verification
from penstock.log.end_marker import EndMarker
from penstock.protocol.batch import TRANSACTIONAL
from penstock.protocol.produce import PartitionAnswer
from penstock.protocol.records import Record, build_batch
from penstock.testing.sim_disk import SimDisk
from tests.unit.partition.made import NOW_MS, make_partition

PRODUCER = 7
EPOCH_MAX = 2**15 - 1


@pytest.fixture
def partition() -> Partition:
    return make_partition(SimDisk())


def verify(partition: Partition, epoch: int = 0, sequence: int = 0, *, epoch_bumps: bool = True) -> Verification:
    return partition.start_verification(PRODUCER, epoch, sequence, epoch_bumps, NOW_MS)


def write(
    partition: Partition,
    verification: Verification | None,
    epoch: int = 0,
    sequence: int = 0,
    *,
    attributes: int = TRANSACTIONAL,
    producer_id: int = PRODUCER,
) -> PartitionAnswer:
    batch = build_batch(
        [Record(0, NOW_MS, b"k", b"v")],
        attributes=attributes,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return partition.append(memoryview(batch), -1, 12, NOW_MS, verification)


def end(partition: Partition, epoch: int, *, commit: bool = True, coordinator: int = 0, version: int = 2) -> ErrorCode:
    return partition.append_marker(EndMarker(not commit, coordinator), PRODUCER, epoch, version, NOW_MS)


def test_a_transactional_batch_without_a_transactional_id_is_refused(partition: Partition) -> None:
    assert write(partition, None).error_code == ErrorCode.transactional_id_authorization_failed


def test_a_transactional_batch_needs_a_producer(partition: Partition) -> None:
    assert write(partition, TRUSTED, producer_id=-1).error_code == ErrorCode.invalid_record


def test_the_first_batch_needs_a_verification_and_the_next_ones_do_not(partition: Partition) -> None:
    assert write(partition, NOTHING_TO_VERIFY).error_code == ErrorCode.invalid_txn_state
    assert write(partition, verify(partition)).error_code == 0
    assert verify(partition, sequence=1) is NOTHING_TO_VERIFY
    assert write(partition, NOTHING_TO_VERIFY, sequence=1).error_code == 0


def test_old_clients_are_trusted_where_verification_is_off(partition: Partition) -> None:
    assert write(partition, TRUSTED).error_code == 0


def test_a_marker_makes_verifications_void(partition: Partition) -> None:
    """The batch was on its way when its transaction was aborted: nobody would end the one that it would open."""
    late = verify(partition, epoch_bumps=False)
    assert end(partition, 0, commit=False, version=1) == 0
    assert write(partition, late).error_code == ErrorCode.invalid_txn_state
    assert partition.last_stable_offset == partition.high_watermark


def lead_again(partition: Partition) -> None:
    """After somebody else has."""
    partition.await_leader(partition.leader_epoch + 1)
    partition.lead_alone(partition.leader_epoch + 1, LONG_AGO_MS)


def test_a_verification_is_void_when_another_has_led_since(partition: Partition) -> None:
    """The marker that ends its transaction may have been written by that one."""
    verification = verify(partition)
    lead_again(partition)
    assert write(partition, verification).error_code == ErrorCode.invalid_txn_state


def test_what_was_refused_when_this_node_last_led_is_not_waited_for(partition: Partition) -> None:
    """The client has written it elsewhere since."""
    assert verify(partition, sequence=3, epoch_bumps=False).lowest_sequence == 3
    lead_again(partition)
    later = verify(partition, sequence=8, epoch_bumps=False)
    assert write(partition, later, sequence=8).error_code == ErrorCode.none


def test_a_verification_of_an_earlier_transaction_is_none_of_this_one(partition: Partition) -> None:
    late = verify(partition, epoch_bumps=False)
    end(partition, 0, commit=False, version=1)
    assert verify(partition, epoch_bumps=False) is not late
    assert write(partition, late).error_code == ErrorCode.invalid_txn_state


def test_who_was_fenced_hears_that_first(partition: Partition) -> None:
    """INVALID_TXN_STATE would end the producer for good; from a stale epoch it recovers."""
    late = verify(partition)
    end(partition, 1, commit=False)
    assert write(partition, late).error_code == ErrorCode.invalid_producer_epoch
    assert write(partition, NOTHING_TO_VERIFY).error_code == ErrorCode.invalid_producer_epoch


def test_a_higher_sequence_waits_for_the_lowest_one_that_was_refused(partition: Partition) -> None:
    first = verify(partition, sequence=0, epoch_bumps=False)
    assert verify(partition, sequence=5, epoch_bumps=False) is first
    assert write(partition, first, sequence=5).error_code == ErrorCode.out_of_order_sequence_number
    assert write(partition, first, sequence=0).error_code == 0


def test_a_new_epoch_forgets_the_sequence_that_the_old_one_waited_for(partition: Partition) -> None:
    first = verify(partition, epoch=0, sequence=0, epoch_bumps=False)
    assert verify(partition, epoch=1, sequence=3, epoch_bumps=False) is first
    assert write(partition, first, epoch=1, sequence=3).error_code == 0


def test_with_an_epoch_for_each_transaction_the_first_sequence_is_zero(partition: Partition) -> None:
    assert write(partition, verify(partition, sequence=4), sequence=4).error_code == (
        ErrorCode.out_of_order_sequence_number
    )
    older = make_partition(SimDisk())
    assert write(older, verify(older, sequence=4, epoch_bumps=False), sequence=4).error_code == 0


def test_a_plain_batch_in_the_middle_of_a_transaction_is_refused(partition: Partition) -> None:
    write(partition, verify(partition))
    assert write(partition, None, sequence=1, attributes=0).error_code == ErrorCode.invalid_txn_state


def test_a_retry_is_answered_with_its_first_offset(partition: Partition) -> None:
    assert write(partition, verify(partition)).base_offset == 0
    assert write(partition, NOTHING_TO_VERIFY, sequence=1).base_offset == 1
    again = write(partition, NOTHING_TO_VERIFY)
    assert (again.error_code, again.base_offset) == (0, 0)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_of_an_older_epoch_is_refused(partition: Partition, version: int) -> None:
    write(partition, verify(partition, epoch=3), epoch=3)
    assert end(partition, 2, version=version) == ErrorCode.invalid_producer_epoch


def test_a_late_marker_does_not_end_the_next_transaction(partition: Partition) -> None:
    """KIP-1228: with an epoch for each transaction, the marker's must be above that of the data."""
    write(partition, verify(partition))
    assert end(partition, 1) == 0
    write(partition, verify(partition, epoch=1), epoch=1)
    assert end(partition, 1) == ErrorCode.invalid_producer_epoch
    assert partition.last_stable_offset == 2
    assert end(partition, 1, version=1) == 0


def test_a_marker_may_come_twice(partition: Partition) -> None:
    write(partition, verify(partition))
    assert end(partition, 1) == 0
    assert end(partition, 1) == 0
    assert partition.last_stable_offset == partition.high_watermark


def test_the_last_epoch_there_is_ends_its_own_transaction(partition: Partition) -> None:
    write(partition, verify(partition, epoch=EPOCH_MAX), epoch=EPOCH_MAX)
    assert end(partition, EPOCH_MAX) == 0


def test_a_marker_of_an_older_coordinator_is_fenced(partition: Partition) -> None:
    write(partition, verify(partition))
    assert end(partition, 1, coordinator=5) == 0
    write(partition, verify(partition, epoch=1), epoch=1)
    assert end(partition, 2, coordinator=4) == ErrorCode.transaction_coordinator_fenced
    assert end(partition, 2, coordinator=5) == 0


def test_a_marker_for_a_partition_without_data_is_written(partition: Partition) -> None:
    assert end(partition, 4) == 0
    assert partition.high_watermark == partition.last_stable_offset == 1
    assert write(partition, verify(partition, epoch=3), epoch=3).error_code == ErrorCode.invalid_producer_epoch


def test_records_of_coordinators_are_fenced_by_epoch_and_verification(partition: Partition) -> None:
    end(partition, 2)
    assert partition.check_own_in_transaction(PRODUCER, 1, NOTHING_TO_VERIFY) == ErrorCode.invalid_producer_epoch
    assert partition.check_own_in_transaction(PRODUCER, 2, NOTHING_TO_VERIFY) == ErrorCode.invalid_txn_state
    verification = partition.start_verification(PRODUCER, 2, -1, True, NOW_MS)
    assert partition.check_own_in_transaction(PRODUCER, 2, verification) == ErrorCode.none


def test_verifications_that_nothing_came_of_are_forgotten(partition: Partition) -> None:
    forgotten = verify(partition)
    partition.expire_producers(NOW_MS + 1000, 1000)
    assert write(partition, forgotten).error_code == ErrorCode.invalid_txn_state
