"""Brokers of the benchmark that have a part of a core, by files that stand for the system's."""

from pathlib import Path

import pytest

from bench.confining import confined
from bench.processes import Failed


@pytest.mark.parametrize(
    ("version", "limits"),
    [(1, {"cpu.cfs_period_us": "10000", "cpu.cfs_quota_us": "2500"}), (2, {"cpu.max": "2500 10000"})],
)
def test_processes_have_a_quarter_of_a_core_until_the_end(tmp_path: Path, version: int, limits: dict[str, str]) -> None:
    hierarchy = tmp_path / "cpu" if version == 1 else tmp_path
    hierarchy.mkdir(exist_ok=True)
    if version == 2:
        (tmp_path / "cgroup.controllers").write_text("cpu memory")
    with confined([17], 0.25, tmp_path):
        (group,) = (path for path in hierarchy.iterdir() if path.is_dir())
        assert {name: (group / name).read_text() for name in limits} == limits
        assert (group / "cgroup.procs").read_text() == "17"
        assert not (hierarchy / "cgroup.procs").exists()
    assert (hierarchy / "cgroup.procs").read_text() == "17"


def test_it_says_so_where_the_system_does_not_allow_it(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="root or cgroups"), confined([17], 0.25, tmp_path / "missing"):
        pass
