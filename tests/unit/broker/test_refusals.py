"""What clients are told where a coordinator cannot answer: what they can live with."""

import pytest

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.handlers import api_09_offset_fetch, api_12_heartbeat


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.coordinator_load_in_progress, ErrorCode.none),
        (ErrorCode.not_coordinator, ErrorCode.not_coordinator),
        (ErrorCode.coordinator_not_available, ErrorCode.coordinator_not_available),
    ],
)
def test_members_of_a_group_that_is_being_loaded_hear_that_all_is_well(code: ErrorCode, told: ErrorCode) -> None:
    """As in Kafka, whose consumers know no other answer."""
    assert api_12_heartbeat._refuse(4, None, Refused(code, "")).error_code == told


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.not_coordinator, ErrorCode.not_coordinator),
    ],
)
def test_who_asks_for_offsets_is_not_told_that_there_is_no_coordinator(code: ErrorCode, told: ErrorCode) -> None:
    """librdkafka's AdminClient does not survive it."""
    assert api_09_offset_fetch._survivable(code) == told
