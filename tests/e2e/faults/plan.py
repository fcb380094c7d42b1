"""What will be broken, in which order and for how long: all of it follows from a seed.

A run has two stages, each with a cluster of its own: one as clusters are by default, where what is acknowledged is in
the memory of the replicas, and one whose topics are synced before anything is acknowledged, so that the power may go.
Whom a fault hits is decided when it does: who leads then is not known before.
"""

import random
from dataclasses import dataclass, field

KILL, PAUSE, PARTITION, POWER, FULL, RESTART = "kill", "pause", "partition", "power cut", "full disk", "restart of all"
AIMS = ("leader", "controller", "coordinator")
SHAPES = ("node", "node and clients", "to node", "from node", "bridge", "clients")

# Of an hour, a little more than is asked for.
_IN_AN_HOUR = {KILL: 108, PAUSE: 42, PARTITION: 42, POWER: 12, FULL: 12, RESTART: 8}
_AIMED_SHARE = 0.7
_KILLS_WITH_POWER_SHARE = 0.2
_SYNCED_SHARE = 0.25
_OVERLAP_CHANCE = 0.3
_SECONDS_MAX = 30.0


@dataclass(frozen=True)
class Fault:
    kind: str
    seconds: float
    # Of whom: a leader, the controller, a coordinator, or any node.
    aim: str = "any"
    # Of a partition; see SHAPES.
    shape: str = ""
    # A number for what is decided only when it happens.
    chance: int = 0


@dataclass(frozen=True)
class Step:
    """One fault, perhaps with a kill in the middle of it, and then everything is mended."""

    fault: Fault
    meanwhile: Fault | None = None


@dataclass
class Stage:
    name: str
    seconds: float
    settings: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


def make_plan(seed: int, minutes: float) -> list[Stage]:
    chance = random.Random(seed)
    counts = {kind: max(1, round(count * minutes / 60)) for kind, count in _IN_AN_HOUR.items()}
    kills_with_power = round(counts[KILL] * _KILLS_WITH_POWER_SHARE)
    seconds = minutes * 60
    replicated = Stage("replicated", seconds * (1 - _SYNCED_SHARE))
    replicated.steps = _steps(
        chance,
        {
            KILL: counts[KILL] - kills_with_power,
            PAUSE: counts[PAUSE],
            PARTITION: counts[PARTITION],
            FULL: counts[FULL],
            RESTART: counts[RESTART],
        },
        seconds_max=_SECONDS_MAX if minutes >= 10 else 4.0,
    )
    synced = Stage("synced", seconds * _SYNCED_SHARE, {"log.flush.mode": "ack", "log.cleaner.enable": "false"})
    synced.steps = _steps(chance, {KILL: kills_with_power, POWER: counts[POWER]}, seconds_max=_SECONDS_MAX)
    return [replicated, synced]


def _steps(chance: random.Random, counts: dict[str, int], *, seconds_max: float) -> list[Step]:
    aimed = [index % 10 < _AIMED_SHARE * 10 for index in range(counts[KILL])]
    chance.shuffle(aimed)
    kills = [_kill(chance, AIMS[index % len(AIMS)] if is_aimed else "any") for index, is_aimed in enumerate(aimed)]
    others = [
        _other(chance, kind, index, seconds_max)
        for kind, count in counts.items()
        if kind != KILL
        for index in range(count)
    ]
    chance.shuffle(others)
    steps = []
    for fault in others:
        may_overlap = fault.kind in (PAUSE, PARTITION, FULL) and len(kills) > 1
        meanwhile = kills.pop() if may_overlap and chance.random() < _OVERLAP_CHANCE else None
        steps.append(Step(fault, meanwhile))
    steps += [Step(kill) for kill in kills]
    chance.shuffle(steps)
    return steps


def _kill(chance: random.Random, aim: str) -> Fault:
    return Fault(KILL, _duration(chance, 0.2, 2.0, 10.0), aim, chance=chance.getrandbits(32))


def _other(chance: random.Random, kind: str, index: int, seconds_max: float) -> Fault:
    match kind:
        case "pause":
            return Fault(
                PAUSE,
                _duration(chance, 1.0, 5.0, seconds_max),
                (*AIMS, "any")[index % 4],
                chance=chance.getrandbits(32),
            )
        case "partition":
            shape = SHAPES[index % len(SHAPES)]
            aim = (*AIMS, "any")[index % 4]
            return Fault(PARTITION, _duration(chance, 1.0, 5.0, seconds_max), aim, shape, chance.getrandbits(32))
        case "full disk":
            aim = (*AIMS, "any")[index % 4]
            return Fault(FULL, _duration(chance, 2.0, 4.0, min(15.0, seconds_max)), aim, chance=chance.getrandbits(32))
        case _:
            return Fault(kind, round(chance.uniform(0.1, 2.0), 2), chance=chance.getrandbits(32))


def _duration(chance: random.Random, least: float, usual: float, most: float) -> float:
    """Mostly short, now and then long."""
    return round(min(most, least + chance.expovariate(1 / usual)), 2)
