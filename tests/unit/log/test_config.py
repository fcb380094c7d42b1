"""A topic's settings as its log reads them."""

from penstock.log.config import LogConfig


def test_settings_are_taken_by_their_topic_names_and_others_left_alone() -> None:
    config = LogConfig.from_settings(
        {"segment.bytes": 5, "cleanup.policy": ["compact", "delete"], "flush.mode": "none", "something.else": 1}
    )
    assert (config.segment_bytes, config.cleanup_policy, config.flush_mode) == (5, ("compact", "delete"), "none")
    assert config.is_compacted
    assert config.retention_ms == 604_800_000


def test_the_internal_segment_size_of_tests_goes_before_the_public_one() -> None:
    assert LogConfig.from_settings({"segment.bytes": 1 << 20, "internal.segment.bytes": 99}).segment_bytes == 99
    assert LogConfig.from_settings({"segment.bytes": 1 << 20, "internal.segment.bytes": None}).segment_bytes == 1 << 20
