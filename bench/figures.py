"""What a scenario measures: figures with their goals, samples of them, and the verdict over all rounds."""

from dataclasses import dataclass, field
from enum import Enum
from statistics import median


class Verdict(Enum):
    MET = "met"
    MISSED = "missed"
    NO_GOAL = ""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Goal:
    """A bound on Penstock's value divided by Kafka's, or (`is_absolute`) on Penstock's value alone."""

    bound: float
    is_lower_bound: bool
    is_absolute: bool = False

    def is_met_by(self, value: float) -> bool:
        return value >= self.bound if self.is_lower_bound else value <= self.bound

    def shown(self, unit: str) -> str:
        sign = "≥" if self.is_lower_bound else "≤"
        return f"{sign} {self.bound:g} {unit}" if self.is_absolute else f"{sign} {self.bound:g}x"


def at_least(ratio: float) -> Goal:
    return Goal(ratio, is_lower_bound=True)


def at_most(ratio: float) -> Goal:
    return Goal(ratio, is_lower_bound=False)


def no_more_than(value: float) -> Goal:
    return Goal(value, is_lower_bound=False, is_absolute=True)


def no_less_than(value: float) -> Goal:
    return Goal(value, is_lower_bound=True, is_absolute=True)


@dataclass(frozen=True)
class Figure:
    key: str
    label: str
    client: str
    unit: str
    goal: Goal | None = None
    # A bound on the ratio of broker CPU per record, beside the goal for the value.
    cpu_goal: Goal | None = None


@dataclass(frozen=True)
class Sample:
    """One round's value. `value` is None when it could not be measured; `note` says why, or what else was seen."""

    value: float | None
    cpu_seconds_per_million: float | None = None
    # The client's own, to show whether it was the limit.
    client_cpu_seconds_per_million: float | None = None
    note: str = ""


@dataclass
class Comparison:
    """One figure over all rounds, both brokers."""

    figure: Figure
    kafka: list[Sample] = field(default_factory=list)
    penstock: list[Sample] = field(default_factory=list)

    @property
    def kafka_value(self) -> float | None:
        return _median([sample.value for sample in self.kafka])

    @property
    def penstock_value(self) -> float | None:
        return _median([sample.value for sample in self.penstock])

    @property
    def kafka_cpu(self) -> float | None:
        return _median([sample.cpu_seconds_per_million for sample in self.kafka])

    @property
    def penstock_cpu(self) -> float | None:
        return _median([sample.cpu_seconds_per_million for sample in self.penstock])

    @property
    def client_cpu(self) -> tuple[float | None, float | None]:
        """(Against Kafka, against Penstock.)"""
        return (
            _median([sample.client_cpu_seconds_per_million for sample in self.kafka]),
            _median([sample.client_cpu_seconds_per_million for sample in self.penstock]),
        )

    @property
    def ratio(self) -> float | None:
        return _median_ratio([each.value for each in self.penstock], [each.value for each in self.kafka])

    @property
    def cpu_ratio(self) -> float | None:
        return _median_ratio(
            [each.cpu_seconds_per_million for each in self.penstock],
            [each.cpu_seconds_per_million for each in self.kafka],
        )

    @property
    def notes(self) -> list[str]:
        """Each thing that was noted, once, with the broker it is about."""
        named = [("Apache Kafka", sample) for sample in self.kafka]
        named += [("Penstock", sample) for sample in self.penstock]
        return list(dict.fromkeys(f"{name}: {sample.note}" for name, sample in named if sample.note))

    @property
    def verdict(self) -> Verdict:
        goal = self.figure.goal
        if goal is None:
            return Verdict.NO_GOAL
        judged = self.penstock_value if goal.is_absolute else self.ratio
        if judged is None:
            return Verdict.NOT_MEASURED
        met = goal.is_met_by(judged)
        if self.figure.cpu_goal is not None:
            met = met and self.cpu_ratio is not None and self.figure.cpu_goal.is_met_by(self.cpu_ratio)
        return Verdict.MET if met else Verdict.MISSED


def _median(values: list[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    # A round that failed must not flatter the others: the median is of complete series only.
    return median(measured) if measured and len(measured) == len(values) else None


def _median_ratio(values: list[float | None], by: list[float | None]) -> float | None:
    """Of the rounds' ratios: the two samples of a round were taken one after the other, when the machine was as fast
    for both. Where Kafka was not looked at in every round, of the medians."""
    if len(values) != len(by):
        values, by = [_median(values)], [_median(by)]
    return _median([_quotient(value, of_kafka) for value, of_kafka in zip(values, by, strict=True)])


def _quotient(value: float | None, by: float | None) -> float | None:
    return value / by if value is not None and by else None
