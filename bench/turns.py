"""Who is measured when: in every round each figure of Kafka and of Penstock, one right after the other.

A shared machine is twice as fast at one time as at another. So both brokers are there at the same time, and of each
figure the two samples are taken by turns; who is not measured has nothing to do meanwhile. Only what is measured of
brokers of its own (`ALONE`) has the machine for itself, one broker after the other.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import brokers, processes
from bench.figures import Sample
from bench.scenarios import ALONE, ONCE_FOR_KAFKA, SCENARIOS, Scenario
from bench.session import Session, Sizes
from penstock.base.errors import Refused

Kind = type[brokers.Broker]


class Measured(NamedTuple):
    kind: Kind
    scenario: str
    key: str
    sample: Sample


def plan(wanted: Sequence[str], round_index: int) -> list[tuple[str, list[Kind]]]:
    """Each scenario of a round, with who is measured. The order changes, so that neither always comes second."""
    order: list[Kind] = [brokers.ApacheKafka, brokers.Penstock]
    if round_index % 2:
        order.reverse()
    once = ONCE_FOR_KAFKA if round_index else frozenset()
    return [(name, [kind for kind in order if kind is brokers.Penstock or name not in once]) for name in wanted]


def samples_of_round(
    wanted: Sequence[str], round_index: int, sizes: Sizes, directory: Path, tell: Callable[[str], None]
) -> Iterator[Measured]:
    """`tell` gets to know of brokers that did not end as they should."""
    sessions: dict[Kind, Session] = {}
    for kind in (brokers.ApacheKafka, brokers.Penstock):
        own = directory / kind.__name__
        own.mkdir()
        sessions[kind] = Session(kind, sizes, own)
    for name, kinds in plan(wanted, round_index):
        if name in ALONE:
            _end(sessions.values(), tell)
        measured = by_turns(SCENARIOS[name], [sessions[kind] for kind in kinds], is_alone=name in ALONE)
        yield from (Measured(session.kind, name, key, sample) for session, key, sample in measured)
    _end(sessions.values(), tell)


def _end(sessions: Iterable[Session], tell: Callable[[str], None]) -> None:
    for session in sessions:
        try:
            session.end_shared()
        except processes.Failed as error:
            tell(f"{error}")


def by_turns(
    scenario: Scenario, sessions: Sequence[Session], *, is_alone: bool
) -> Iterator[tuple[Session, str, Sample]]:
    waiting = deque((session, _samples(scenario, session)) for session in sessions)
    while waiting:
        session, samples = waiting.popleft()
        for key, sample in samples:
            yield session, key, sample
            if not is_alone:
                waiting.append((session, samples))
                break


def _samples(scenario: Scenario, session: Session) -> Iterator[tuple[str, Sample]]:
    """The scenario's samples; when it breaks off, the reason for each figure that is missing."""
    missing = [figure.key for figure in scenario.FIGURES]
    key = missing[-1]
    try:
        for key, sample in scenario.measure(session):
            missing.remove(key)
            yield key, sample
    except (processes.Failed, Refused, OSError, ValueError) as error:
        # A scenario that fails after its last sample spoils that one: see Comparison.
        for failed in missing or [key]:
            yield failed, Sample(None, note=f"failed: {error}")
        # Whatever state it is in: the next scenario gets another one.
        with contextlib.suppress(processes.Failed):
            session.end_shared()
