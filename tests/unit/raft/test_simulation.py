"""Whole quorums in bad weather: every seed is another story of crashes, cuts, lost and doubled messages.

To see one again: `Simulation(seed).run(STEPS)`.
"""

import pytest

from penstock.cluster.raft import Quorum
from tests.unit.raft.checkers import Violation
from tests.unit.raft.defects import DEFECTS
from tests.unit.raft.simulation import Simulation

STEPS = 1500
SEEDS = range(24)
# Where something was once found, in the core or in the simulation.
KEPT_SEEDS = [105, 148, 171, 195, 196, 261, 262, 2125]


@pytest.mark.parametrize("seed", [*SEEDS, *KEPT_SEEDS])
def test_nothing_decided_is_lost_and_everybody_agrees(seed: int) -> None:
    simulation = Simulation(seed)
    simulation.run(STEPS)
    assert simulation.checkers.elections >= 1
    assert simulation.checkers.committed_end > 1


def test_the_wire_changes_nothing() -> None:
    plain, wired = Simulation(4), Simulation(4, over_the_wire=True)
    plain.run(STEPS)
    wired.run(STEPS)
    assert wired.checkers.committed == plain.checkers.committed


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_planted_defect_is_caught(defect: type[Quorum]) -> None:
    for seed in range(20):
        try:
            Simulation(seed, defect).run(STEPS)
        except Violation:
            return
    pytest.fail(f"{defect.__name__} went unnoticed")


def test_a_seed_tells_the_same_story_every_time() -> None:
    def story(seed: int) -> list[str]:
        simulation = Simulation(seed)
        told: list[str] = []
        simulation.cluster.observers.append(
            lambda member, effect: told.append(f"{simulation.cluster.now_ms} {member.id} {effect}")
        )
        simulation.run(800)
        return told

    assert story(7) == story(7)
    assert story(7) != story(8)
