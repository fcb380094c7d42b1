"""Processes that share a part of one core, by a cgroup of their own: what they are limited by is then themselves.

Needs root, and the cpu controller of cgroups in either version.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from bench.processes import Failed

_ROOT = Path("/sys/fs/cgroup")
# Short, so that nobody waits for long until there is some time left again.
_PERIOD_US = 10_000
_MEMBERS = "cgroup.procs"


@contextlib.contextmanager
def confined(pids: Iterable[int], cores: float, root: Path = _ROOT) -> Iterator[None]:
    """Raises Failed where that cannot be done."""
    quota_us = round(cores * _PERIOD_US)
    if (root / "cgroup.controllers").exists():
        hierarchy, limits = root, {"cpu.max": f"{quota_us} {_PERIOD_US}"}
    else:
        hierarchy = root / "cpu"
        limits = {"cpu.cfs_period_us": f"{_PERIOD_US}", "cpu.cfs_quota_us": f"{quota_us}"}
    group = hierarchy / f"penstock-bench-{os.getpid()}"
    members = list(pids)
    try:
        group.mkdir()
        for name, value in limits.items():
            (group / name).write_text(value)
        _move(members, group)
    except OSError as problem:
        _remove(group)
        raise Failed(
            f"processes cannot be confined to a part of a core, for want of root or cgroups: {problem}"
        ) from None
    try:
        yield
    finally:
        # Who has ended meanwhile is in no group any more.
        with contextlib.suppress(OSError):
            _move(members, hierarchy)
        _remove(group)


def _move(pids: list[int], group: Path) -> None:
    for pid in pids:
        (group / _MEMBERS).write_text(f"{pid}")


def _remove(group: Path) -> None:
    with contextlib.suppress(OSError):
        group.rmdir()
