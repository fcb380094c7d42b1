"""Clusters in simulated time: no seed may break an invariant, the same seed is the same run, planted defects are found.

Each case is a process of its own, with a fixed hash seed: the order of sets must not be chance.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.defects import DEFECTS
from tests.simulation.run import kept_seeds

ROOT = Path(__file__).parents[2]
_FIRST_SEED = 10_000
_BATCHES, _SEEDS_PER_BATCH = 10, 20
_PASSED = re.compile(r"seed (\d+): ok ([0-9a-f]{16})")


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.simulation.run", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def batches(seeds: list[int]) -> list[list[int]]:
    return [seeds[start : start + _SEEDS_PER_BATCH] for start in range(0, len(seeds), _SEEDS_PER_BATCH)]


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(_BATCHES))
def test_no_seed_breaks_an_invariant(batch: int) -> None:
    first = _FIRST_SEED + batch * _SEEDS_PER_BATCH
    _check(list(range(first, first + _SEEDS_PER_BATCH)))


def _check(seeds: list[int]) -> None:
    # The other cores have other tests.
    run = simulate("--in-order", "--these", *map(str, seeds))
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr
    assert [int(seed) for seed, _ in _PASSED.findall(run.stdout)] == seeds


@pytest.mark.slow
@pytest.mark.parametrize("seeds", batches(kept_seeds()), ids=lambda seeds: f"{seeds[0]}-and-more")
def test_seeds_that_failed_once_never_do_again(seeds: list[int]) -> None:
    _check(seeds)


@pytest.mark.slow
def test_a_seed_is_the_same_run_every_time() -> None:
    # Beside each other, each in a process of its own, and one after the other.
    first, second = (simulate("--first", "500", "--seeds", "3", *how) for how in ((), ("--in-order",)))
    traces = _PASSED.findall(first.stdout)
    assert len(traces) == 3, first.stdout + first.stderr
    assert traces == _PASSED.findall(second.stdout)
    assert len({trace for _, trace in traces}) == 3, "other seeds are other runs"


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_caught(name: str) -> None:
    seed = str(DEFECTS[name].caught_by_seed)
    with_defect = simulate("--seed", seed, "--defect", name)
    assert with_defect.returncode == 1, f"{DEFECTS[name].what}, and nobody noticed"
    assert "replay: make simulate" in with_defect.stdout


@pytest.mark.slow
@pytest.mark.parametrize("seeds", batches(sorted({one.caught_by_seed for one in DEFECTS.values()})), ids=str)
def test_without_the_planted_defect_the_seed_that_caught_it_passes(seeds: list[int]) -> None:
    _check(seeds)
