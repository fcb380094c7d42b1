"""A short run of what `make faults` does for longer: each kind of fault once, and a history without fault."""

from pathlib import Path

import pytest

from tests.e2e.faults import plan
from tests.e2e.faults.plan import FULL, KILL, PARTITION, PAUSE, POWER, RESTART, Fault, Stage, Step
from tests.e2e.faults.run import run_stage

SETTINGS_SYNCED = {"log.flush.mode": "ack", "log.cleaner.enable": "false"}


def test_the_same_seed_makes_the_same_plan_and_an_hour_has_what_is_asked_for() -> None:
    stages = plan.make_plan(7, 60)
    assert stages == plan.make_plan(7, 60)
    faults = [fault for stage in stages for step in stage.steps for fault in (step.fault, step.meanwhile) if fault]
    counts = {kind: sum(fault.kind == kind for fault in faults) for kind in (KILL, PAUSE, PARTITION, POWER, FULL)}
    assert counts[KILL] >= 100
    assert min(counts[PAUSE], counts[PARTITION]) >= 40
    assert min(counts[POWER], counts[FULL]) >= 10
    kills = [fault for fault in faults if fault.kind == KILL]
    assert sum(fault.aim != "any" for fault in kills) >= 0.6 * len(kills)
    assert all(1 <= fault.seconds <= 30 for fault in faults if fault.kind == PAUSE)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("faults")
@pytest.mark.parametrize(
    "stage",
    [
        Stage(
            "replicated",
            1,
            {},
            [
                Step(Fault(KILL, 0.5, "leader", chance=1)),
                Step(Fault(PARTITION, 2, "controller", "node", 2)),
                Step(Fault(PAUSE, 1, "coordinator", chance=3)),
                Step(Fault(FULL, 1, "leader", chance=4)),
                Step(Fault(RESTART, 0.1)),
            ],
        ),
        Stage("synced", 1, SETTINGS_SYNCED, [Step(Fault(POWER, 0.1, chance=5)), Step(Fault(KILL, 0.5, "controller"))]),
    ],
    ids=lambda stage: str(stage.name),
)
def test_nothing_is_lost_doubled_reordered_or_stuck(stage: Stage, tmp_path: Path) -> None:
    verdict = run_stage(stage, tmp_path, print)
    # How long healing takes is for a machine that does nothing else.
    del verdict.counts["slow to converge"]
    assert verdict.is_good, verdict.details
    assert verdict.seen["acknowledged"] > 0
    assert verdict.seen["copies"] > 0
