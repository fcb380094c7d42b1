"""KIP-73: a rate over the last eleven seconds."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.partition.throttle import Throttle


def throttle(bytes_per_second: int | None) -> Throttle:
    made = Throttle()
    made.bytes_per_second = bytes_per_second
    return made


def test_without_a_rate_nothing_is_held_back() -> None:
    made = throttle(None)
    made.record(1 << 40, 0)
    assert not made.is_exceeded(0)


def test_what_was_sent_counts_against_the_time_since_it_began() -> None:
    made = throttle(1000)
    made.record(3000, 10_000)
    assert made.is_exceeded(10_000)
    assert made.is_exceeded(12_999)
    assert not made.is_exceeded(13_000)


def test_less_than_a_second_counts_as_one() -> None:
    made = throttle(1000)
    made.record(900, 10_000)
    assert not made.is_exceeded(10_001)
    made.record(200, 10_002)
    assert made.is_exceeded(10_002)


def test_after_eleven_seconds_it_is_forgotten() -> None:
    made = throttle(1)
    made.record(1 << 30, 0)
    assert made.is_exceeded(11_000)
    assert not made.is_exceeded(11_001)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.integers(1, 500), st.integers(1, 3_000)), max_size=200))
def test_who_asks_before_each_step_keeps_to_the_rate_but_for_one_step(rate: int, steps: list[tuple[int, int]]) -> None:
    made = throttle(rate)
    now_ms = sent = 0
    for pause_ms, size in steps:
        now_ms += pause_ms
        if not made.is_exceeded(now_ms):
            made.record(size, now_ms)
            sent += size
    largest = max((size for _, size in steps), default=0)
    assert sent * 1000 <= rate * (now_ms + 1000) + 2 * largest * 1000
