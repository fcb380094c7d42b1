"""Who is measured when, by scenarios and sessions that measure nothing."""

from collections.abc import Iterator
from typing import cast

import pytest

from bench.brokers import ApacheKafka, Penstock
from bench.figures import Comparison, Figure, Sample, at_least
from bench.processes import Failed
from bench.scenarios import Scenario
from bench.session import Session
from bench.turns import by_turns, plan


class _NamedSession:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_ended = False

    def end_shared(self) -> None:
        self.is_ended = True


class _TwoFigures:
    FIGURES = (Figure("first", "", "", "s"), Figure("second", "", "", "s"))

    def __init__(self, failing: str = "") -> None:
        self._failing = failing

    def measure(self, session: Session) -> Iterator[tuple[str, Sample]]:
        yield "first", Sample(1)
        if cast(_NamedSession, session).name == self._failing:
            raise Failed("it fell over")
        yield "second", Sample(2)


def _measured(scenario: Scenario, sessions: list[_NamedSession], *, is_alone: bool) -> list[tuple[str, str, Sample]]:
    taken = by_turns(scenario, cast(list[Session], sessions), is_alone=is_alone)
    return [(cast(_NamedSession, session).name, key, sample) for session, key, sample in taken]


@pytest.mark.parametrize(
    ("is_alone", "order"),
    [
        (False, [("a", "first"), ("b", "first"), ("a", "second"), ("b", "second")]),
        (True, [("a", "first"), ("a", "second"), ("b", "first"), ("b", "second")]),
    ],
)
def test_each_figure_is_measured_of_both_before_the_next_unless_a_scenario_wants_the_machine_for_itself(
    is_alone: bool, order: list[tuple[str, str]]
) -> None:
    sessions = [_NamedSession("a"), _NamedSession("b")]
    assert [(name, key) for name, key, _ in _measured(_TwoFigures(), sessions, is_alone=is_alone)] == order


def test_who_falls_over_has_its_reason_told_and_the_other_goes_on() -> None:
    sessions = [_NamedSession("a"), _NamedSession("b")]
    samples = _measured(_TwoFigures(failing="a"), sessions, is_alone=False)
    assert samples[2:] == [("a", "second", Sample(None, note="failed: it fell over")), ("b", "second", Sample(2))]
    assert [session.is_ended for session in sessions] == [True, False]


def test_neither_is_always_second_and_kafka_has_one_turn_where_it_needs_minutes() -> None:
    assert [plan(["produce", "partitions"], index) for index in range(3)] == [
        [("produce", [ApacheKafka, Penstock]), ("partitions", [ApacheKafka, Penstock])],
        [("produce", [Penstock, ApacheKafka]), ("partitions", [Penstock])],
        [("produce", [ApacheKafka, Penstock]), ("partitions", [Penstock])],
    ]


def test_a_ratio_is_the_median_of_those_of_the_rounds() -> None:
    figure = Figure("rate", "", "", "records/s", at_least(1.5))
    # The machine was half as fast in the second round.
    kafka, penstock = [100.0, 50.0, 100.0], [200.0, 100.0, 100.0]
    comparison = Comparison(figure, [Sample(value) for value in kafka], [Sample(value) for value in penstock])
    assert comparison.ratio == 2.0
    assert Comparison(figure, [Sample(100.0)], comparison.penstock).ratio == 1.0
    assert Comparison(figure, [Sample(None), *comparison.kafka[1:]], comparison.penstock).ratio is None
