"""Changed requests of real clients, with a fixed seed; `make fuzz` goes on with others."""

import asyncio
import random

import pytest

from tests.fuzz.corpus import recorded_frames
from tests.fuzz.frames import GROWTH_BYTES_MAX, STALL_MS_MAX, fire
from tests.fuzz.guided_targets import TARGETS, corpus_of
from tests.fuzz.mutation import mutated


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


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_fuzzed_by_coverage_holds_without_it(target: str) -> None:
    corpus = corpus_of(target)
    everything = b"".join(corpus)
    chance = random.Random(7)
    for data in corpus * 10:
        TARGETS[target](data)
        TARGETS[target](bytes(mutated(data, chance, others=everything)))
