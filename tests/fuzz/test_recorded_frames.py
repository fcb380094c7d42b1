"""Changed requests of real clients, with a fixed seed; `make fuzz` goes on with others."""

import asyncio

from tests.fuzz.corpus import recorded_frames
from tests.fuzz.frames import GROWTH_BYTES_MAX, STALL_MS_MAX, fire


def test_the_corpus_is_of_several_clients_and_most_kinds_of_request() -> None:
    frames = recorded_frames()
    assert {client for client, _ in frames} >= {"librdkafka", "aiokafka", "kafka_python", "kcat", "java_tools"}
    assert len({frame[:2] for _, frame in frames}) >= 25


def test_changed_requests_get_a_defined_answer_or_a_close_and_the_node_stays_calm() -> None:
    figures = asyncio.run(fire(1, frames=3000, seconds_max=200))
    assert figures.problems == []
    assert figures.answers > 500
    assert figures.closed > 500
    assert figures.stall_ms_max < STALL_MS_MAX
    assert figures.growth_bytes < GROWTH_BYTES_MAX
