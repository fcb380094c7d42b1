"""The examples do what they say: run as scripts, killed where they say it matters, and run again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.integration.conftest import Penstock, start_up, wait_until_ready

EXAMPLES = Path(__file__).parents[2] / "examples"
# Long enough for a rebalance on a busy machine.
IDLE = ("--idle-seconds", "4")
VALUES = [f"record-{number}" for number in range(12)]
# An hour ago: retention takes what is older than a week.
FIRST_MS = int(time.time() - 3600) * 1000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose classic groups do not wait for more members to come."""
    data = tmp_path_factory.mktemp("examples") / "data"
    up = wait_until_ready(start_up(data, "-X", "group.initial.rebalance.delay.ms=0"))
    yield up.address
    assert up.stop() == 0, "".join(up.lines)


@pytest.fixture
def records(penstock: Penstock, topic: str) -> str:
    """The topic with twelve records, one a second, four in each partition."""
    lines = "".join(f"{FIRST_MS + number * 1000} {value}\n" for number, value in enumerate(VALUES))
    penstock("produce", topic, "--partitioner", "round-robin", "-f", "%d %v\\n", stdin=lines)
    return topic


def run(node: str, example: str, *arguments: str, exit_code: int = 0) -> list[list[str]]:
    """The words of each line that the script printed."""
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), *arguments]
    environment = os.environ | {"PENSTOCK_BROKERS": node}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert result.returncode == exit_code, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def processed(lines: list[list[str]]) -> list[str]:
    assert all(word == "processed" for word, _ in lines)
    return [value for _, value in lines]


def test_at_least_once_repeats_after_a_crash_and_loses_nothing(node: str, records: str) -> None:
    arguments = ("at_least_once", records, "--group", f"least-{records}", *IDLE)
    before = processed(run(node, *arguments, "--crash-at", "5", exit_code=-signal.SIGKILL))
    after = processed(run(node, *arguments))
    assert len(before) == 5
    assert set(before + after) == set(VALUES), "a record was lost"
    # The one that was processed but not committed, and no other.
    assert [value for value, times in Counter(before + after).items() if times > 1] == [before[-1]]
    assert processed(run(node, *arguments)) == []


def test_at_most_once_loses_after_a_crash_and_repeats_nothing(node: str, records: str) -> None:
    arguments = ("at_most_once", records, "--group", f"most-{records}", *IDLE)
    before = processed(run(node, *arguments, "--crash-at", "5", exit_code=-signal.SIGKILL))
    after = processed(run(node, *arguments))
    assert len(before) == 4
    assert max(Counter(before + after).values()) == 1, "a record was repeated"
    # The one that was committed but not processed, and no other.
    assert len(set(VALUES) - set(before + after)) == 1
    assert processed(run(node, *arguments)) == []


def test_replay_reads_from_the_start_an_offset_or_a_time(node: str, penstock: Penstock, records: str) -> None:
    def replayed(where: str) -> list[str]:
        return sorted(value for _, _, value in run(node, "replay", records, where, *IDLE))

    assert replayed("start") == sorted(VALUES)
    offsets = {int(offset) for _, offset, _ in run(node, "replay", records, "2", *IDLE)}
    assert offsets == {2, 3}
    eighth = datetime.fromtimestamp(FIRST_MS / 1000 + 7, UTC)
    assert replayed(eighth.isoformat()) == sorted(VALUES[7:])
    assert replayed("2033-01-01") == []
    assert "there is no group" in penstock("group", "describe", "replay", exit_code=1).stderr


def test_replay_from_the_end_is_what_comes_next(node: str, penstock: Penstock, records: str) -> None:
    command = [sys.executable, str(EXAMPLES / "replay.py"), records, "end", *IDLE]
    environment = os.environ | {"PENSTOCK_BROKERS": node}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as reading:
        assert reading.stderr is not None
        assert reading.stderr.readline().startswith("reading")
        penstock("produce", records, "-p", "1", stdin="next\n")
        output, _ = reading.communicate(timeout=60)
    assert output == "1 4 next\n"


def test_every_group_gets_everything_once(node: str, penstock: Penstock, records: str) -> None:
    groups = [f"{name}-{records}" for name in ("billing", "shipping", "audit")]
    lines = run(node, "fan_out", records, *groups, *IDLE)
    assert Counter(map(tuple, lines)) == Counter((group, value) for group in groups for value in VALUES)
    assert run(node, "fan_out", records, *groups, *IDLE) == []
    (described, *_) = json.loads(penstock("group", "describe", *groups, "-o", "json").stdout)
    assert described["lag"] == 0


def test_consumers_without_a_partition_wait_and_take_over(node: str, topic: str) -> None:
    lines = run(node, "more_consumers_than_partitions", topic, "--group", f"crowd-{topic}", "--consumers", "5")
    before, (leaver, verb), after = lines[:5], lines[5], lines[6:]
    assert sorted(partition for _, _, partition in before) == ["0", "1", "2", "nothing", "nothing"]
    assert verb == "leaves"
    assert {name: partition for name, _, partition in before}[leaver] != "nothing"
    assert leaver not in {name for name, _, _ in after}
    assert sorted(partition for _, _, partition in after) == ["0", "1", "2", "nothing"]


def committed(penstock: Penstock, topic: str, count: int) -> list[str]:
    """The values of a topic that readers of committed records see; `count` is how many are to be waited for."""
    read = penstock("consume", topic, "-n", str(count), "-X", "isolation.level=read_committed")
    return [json.loads(line)["value"] for line in read.stdout.splitlines()]


def test_consume_transform_produce_writes_every_order_once_after_a_crash(
    node: str, penstock: Penstock, records: str
) -> None:
    payments, inventory = f"{records}-payments", f"{records}-inventory"
    penstock("topic", "create", payments, "-p", "2")
    penstock("topic", "create", inventory, "-p", "2")
    arguments = ("consume_transform_produce", records, payments, inventory, "--group", records, *IDLE)
    before = processed(run(node, *arguments, "--crash-at", "7", exit_code=-signal.SIGKILL))
    after = processed(run(node, *arguments))
    assert sorted(before + after) == sorted(VALUES), "an order was lost, or done twice"
    assert sorted(committed(penstock, payments, len(VALUES))) == sorted(f"paid {value}" for value in VALUES)
    assert sorted(committed(penstock, inventory, len(VALUES))) == sorted(f"reserved {value}" for value in VALUES)
    described = json.loads(penstock("group", "describe", records, "-o", "json").stdout)
    assert described[0]["lag"] == 0


def test_atomic_writes_show_in_both_topics_or_in_none(node: str, penstock: Penstock, topic: str) -> None:
    withdrawals, deposits = topic, f"{topic}-deposits"
    penstock("topic", "create", deposits, "-p", "2")
    lines = run(node, "atomic_writes", withdrawals, deposits, "--count", "9", "--abort-every", "3")
    kept = sorted(value for word, value in lines if word == "committed")
    assert len(kept) == 6
    assert sorted(committed(penstock, withdrawals, 6)) == kept
    assert sorted(committed(penstock, deposits, 6)) == kept
