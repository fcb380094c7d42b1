"""One run: a cluster, its clients and its mishaps, all from one seed. `python -m tests.simulation.run --seeds 20`."""

import argparse
import gc
import logging
import os
import random
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

SEEDS_FILE = Path(__file__).with_name("seeds.txt")
_FAULT_SECONDS = 25.0
_READY_SECONDS_MAX = 30.0
_CONVERGE_SECONDS_MAX = 30.0
_OBSERVE_SECONDS = 0.1
_SEEDS_PER_COLLECTION = 10


@dataclass
class Result:
    seed: int
    problem: str | None = None
    invariant: int | None = None
    trace: str = ""
    simulated_s: float = 0.0
    real_s: float = 0.0
    facts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def run_seed(
    seed: int, *, plant: Callable[[], Callable[[], None]] | None = None, fault_s: float = _FAULT_SECONDS
) -> Result:
    """`plant` puts a defect into the production code, and returns what takes it out again."""
    from tests.simulation.world import SimulatedWorld

    result = Result(seed)
    started_s = time.process_time()
    unplant = plant() if plant is not None else None
    gc.disable()
    if not gc.get_freeze_count():
        # Modules and what they hold need not be looked through after each run.
        gc.freeze()
    # Of clusters that were killed in the middle of something.
    warnings.simplefilter("ignore")
    try:
        world = SimulatedWorld(seed, result.notes)
        try:
            world.run(
                ready_s_max=_READY_SECONDS_MAX,
                fault_s=fault_s,
                converge_s_max=_CONVERGE_SECONDS_MAX,
                observe_s=_OBSERVE_SECONDS,
            )
        except Exception as problem:
            result.invariant = getattr(problem, "invariant", None)
            is_violation = result.invariant is not None
            result.problem = str(problem) if is_violation else "".join(traceback.format_exception(problem))
        result.trace = world.trace()
        result.simulated_s = world.scheduler.now_s
        result.facts = world.facts()
        world.end()
    finally:
        if unplant is not None:
            unplant()
        gc.enable()
        if seed % _SEEDS_PER_COLLECTION == 0:
            gc.collect()
    result.real_s = time.process_time() - started_s
    return result


def run_seeds(seeds: Sequence[int], defect: str | None = None, *, in_order: bool = False) -> Iterator[Result]:
    """On all cores, a seed on each: they know nothing of each other. `in_order` keeps to one."""
    if in_order or len(seeds) == 1:
        yield from (_run_by_name(seed, defect) for seed in seeds)
        return
    with ProcessPoolExecutor(
        min(os.cpu_count() or 1, len(seeds)),
        get_context("spawn"),
        initializer=logging.disable,
        initargs=(logging.WARNING,),
    ) as pool:
        yield from pool.map(_run_by_name, seeds, repeat(defect))


def _run_by_name(seed: int, defect: str | None) -> Result:
    if defect is None:
        return run_seed(seed)
    from tests.simulation.defects import DEFECTS

    return run_seed(seed, plant=DEFECTS[defect].plant)


def kept_seeds() -> list[int]:
    """Those that failed once, with the reason behind a #."""
    lines = SEEDS_FILE.read_text().splitlines() if SEEDS_FILE.exists() else []
    return [int(line.split("#")[0]) for line in lines if line.split("#")[0].strip()]


def report(result: Result, *, verbose: bool = False) -> None:
    speed = result.simulated_s / max(result.real_s, 1e-9)
    outcome = "ok" if result.problem is None else "FAILED"
    facts = " ".join(f"{name}={count}" for name, count in result.facts.items())
    print(
        f"seed {result.seed}: {outcome} {result.trace} {result.simulated_s:.0f} s at {speed:.0f}x {facts}", flush=True
    )
    if verbose or result.problem is not None:
        for note in result.notes:
            print(f"    {note}")
    if result.problem is not None:
        print(f"  {result.problem}\n  replay: make simulate SEED={result.seed}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many fresh seeds")
    parser.add_argument("--first", type=int, help="the first of them; at random unless given")
    parser.add_argument("--seed", type=int, help="only this one, with all that happened")
    parser.add_argument("--these", type=int, nargs="+", help="only these")
    parser.add_argument("--kept", action="store_true", help="those that failed once, before the others")
    parser.add_argument("--defect", help="a planted defect, by its name in defects.py")
    parser.add_argument("--log", action="store_true", help="the nodes' own log lines")
    parser.add_argument("--in-order", action="store_true", help="on one core, one after the other")
    options = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings must be the same in every run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation.run", *(arguments or sys.argv[1:])])
    logging.basicConfig(level=logging.INFO, stream=sys.stdout) if options.log else logging.disable(logging.WARNING)
    if options.seed is not None:
        seeds = [options.seed]
    elif options.these:
        seeds = options.these
    else:
        first = options.first if options.first is not None else random.SystemRandom().randrange(10**9)
        seeds = [*(kept_seeds() if options.kept else []), *range(first, first + options.seeds)]
    started_s = time.monotonic()
    simulated_s = 0.0
    failed = []
    for result in run_seeds(seeds, options.defect, in_order=options.log or options.in_order):
        report(result, verbose=options.seed is not None)
        simulated_s += result.simulated_s
        if result.problem is not None:
            failed.append(result.seed)
    real_s = time.monotonic() - started_s
    print(f"{len(seeds)} seeds, {simulated_s:.0f} simulated seconds in {real_s:.0f} s: {simulated_s / real_s:.0f}x")
    if failed:
        print(f"{len(failed)} of {len(seeds)} seeds failed: {' '.join(map(str, failed))}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
