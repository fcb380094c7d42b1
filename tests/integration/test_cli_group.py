"""`penstock group` against a running node, with real consumers in and out of the groups."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from tests.integration.conftest import Penstock, start_up, wait_until_ready

BOTH_PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])
SECONDS_MAX = 30

# Commits what it reads and says so, until it is killed.
MEMBER = """
import sys
from confluent_kafka import Consumer
consumer = Consumer(dict(pair.split("=", 1) for pair in sys.argv[2:]))
consumer.subscribe([sys.argv[1]])
while True:
    message = consumer.poll(1)
    if message is not None and not message.error():
        consumer.commit(message=message, asynchronous=False)
        print("committed", flush=True)
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node that soon misses a member."""
    settings = {
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        "group.consumer.min.session.timeout.ms": 500,
        "group.consumer.session.timeout.ms": 1500,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.heartbeat.interval.ms": 300,
    }
    options = [text for name, value in settings.items() for text in ("-X", f"{name}={value}")]
    up = wait_until_ready(start_up(tmp_path_factory.mktemp("groups") / "data", *options))
    yield up.address
    assert up.stop() == 0, "".join(up.lines)


def properties(node: str, group: str, protocol: str) -> dict[str, Any]:
    common = {"bootstrap.servers": node, "group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    classic = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300} if protocol == "classic" else {}
    return common | classic | {"client.id": "reader"}


@contextmanager
def reading(node: str, group: str, topic: str, protocol: str = "classic", count: int = 1) -> Iterator[Consumer]:
    """A member that has read and committed `count` records of the topic."""
    consumer = Consumer(properties(node, group, protocol) | {"enable.auto.commit": False})
    consumer.subscribe([topic])
    try:
        for _ in range(count):
            message = consumer.poll(SECONDS_MAX)
            assert message is not None
            assert message.error() is None
            consumer.commit(message=message, asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def described(penstock: Penstock, group: str) -> dict[str, Any]:
    (one,) = json.loads(penstock("group", "describe", group, "-o", "json").stdout)
    assert isinstance(one, dict)
    return one


def wait_for(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.2)


@pytest.fixture
def records(penstock: Penstock, topic: str) -> str:
    """The topic with ten records, one a second, in partition 0."""
    lines = "".join(f"{1_700_000_000_000 + number * 1000} {number}\n" for number in range(10))
    penstock("produce", topic, "-p", "0", "-f", "%d %v\\n", stdin=lines)
    return topic


def offset_of(penstock: Penstock, group: str) -> int | None:
    rows = {row["partition"]: row["offset"] for row in described(penstock, group)["partitions"]}
    offset: int | None = rows[0]
    return offset


@BOTH_PROTOCOLS
def test_describe_shows_who_reads_what_and_how_far_behind(
    penstock: Penstock, node: str, records: str, protocol: str
) -> None:
    group = f"{records}-{protocol}"
    with reading(node, group, records, protocol, count=4):
        found = described(penstock, group)
        text = penstock("group", "describe", group).stdout
    (member,) = found["members"]
    assert (found["type"], found["state"], found["lag"], found["last_eviction"]) == (protocol, "Stable", 6, None)
    assert found["assignor"] == {"classic": "range", "consumer": "uniform"}[protocol]
    assert (found["epoch"] is None) == (protocol == "classic")
    assert f"127.0.0.1:{found['coordinator']['port']}" == node
    assert (member["client"], member["host"]) == ("reader", "127.0.0.1")
    assert member["assignment"] == {records: [0, 1, 2]}
    first, second, _ = found["partitions"]
    assert (first["offset"], first["end"], first["lag"], first["consumer"]) == (4, 10, 6, member["member"])
    assert (second["offset"], second["end"], second["lag"]) == (None, 0, None)
    assert f"{records}:0-2" in text
    (after,) = described(penstock, group)["partitions"]
    assert (after["offset"], after["consumer"]) == (4, None)


@BOTH_PROTOCOLS
def test_a_member_that_died_leaves_its_reason_behind(
    penstock: Penstock, node: str, records: str, protocol: str
) -> None:
    group = f"{records}-{protocol}"
    pairs = [f"{name}={value}" for name, value in properties(node, group, protocol).items()]
    command = [sys.executable, "-c", MEMBER, records, *pairs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "committed\n"
        (member_id,) = (each["member"] for each in described(penstock, group)["members"])
        member.kill()
    wait_for(lambda: not described(penstock, group)["members"])
    reason = described(penstock, group)["last_eviction"]
    assert reason.startswith(f"member {member_id} was put out at 2")
    assert reason.endswith("Z: no heartbeat for 1500 ms (session timeout)")
    assert reason in penstock("group", "describe", group).stdout
    # The line stands where an error would be: clients that know nothing of it must not take it for one.
    admin = AdminClient({"bootstrap.servers": node})
    assert admin.describe_consumer_groups([group])[group].result().members == []


def test_a_group_goes_where_it_is_sent(penstock: Penstock, records: str) -> None:
    group = f"sent-{records}"
    penstock("group", "seek", group, "--to", "start", "--topics", f"{records}:0")
    before = 0
    for where, after in {
        "end": 10,
        "-3": 7,
        "+2": 9,
        "-30": 0,
        "4": 4,
        "1700000005000": 5,
        "@1700000006": 6,
        "2023-11-14T22:13:22Z": 2,
        "-1h": 10,
        "start": 0,
    }.items():
        moved = json.loads(penstock("group", "seek", group, "--to", where, "-o", "json").stdout)
        row = {"topic": records, "partition": 0, "old_offset": before, "new_offset": after, "end": 10, "error": None}
        assert moved == [row | {"lag": 10 - after}], where
        before = after
    assert offset_of(penstock, group) == 0


def test_a_consumer_that_comes_back_reads_from_there(penstock: Penstock, node: str, records: str) -> None:
    with reading(node, "back", records, count=10):
        pass
    penstock("group", "seek", "back", "--to", "8", "--topics", records)
    with reading(node, "back", records, count=2) as consumer:
        assert consumer.poll(1) is None
    assert offset_of(penstock, "back") == 10


@BOTH_PROTOCOLS
def test_a_group_with_members_is_neither_moved_nor_deleted(
    penstock: Penstock, node: str, records: str, protocol: str
) -> None:
    group = f"busy-{records}"
    with reading(node, group, records, protocol):
        refused = penstock("group", "seek", group, "--to", "end", exit_code=1)
        assert f"'{group}' has 1 member (Stable): a group can be moved only while nobody is in it" in refused.stderr
        assert "not empty" in penstock("group", "delete", group, exit_code=1).stdout
        # A plan disturbs nobody.
        penstock("group", "seek", group, "--to", "end", "--dry-run")
    assert offset_of(penstock, group) == 1


def test_a_plan_changes_nothing(penstock: Penstock, node: str, records: str) -> None:
    with reading(node, "planned", records, count=4):
        pass
    planned = penstock("group", "reset", "planned", "--shift-by", "-2", "--dry-run", "-o", "json")
    assert json.loads(planned.stdout)[0]["new_offset"] == 2
    assert "nothing was changed" in planned.stderr
    assert offset_of(penstock, "planned") == 4
    penstock("group", "reset", "planned", "--shift-by", "-2", "--execute", "--all-topics")
    assert offset_of(penstock, "planned") == 2


def test_reset_takes_what_kafkas_own_tool_takes(penstock: Penstock, records: str) -> None:
    group = f"kafkas-{records}"
    for option, offset in {
        "--to-earliest": 0,
        "--to-latest": 10,
        "--to-datetime=2023-11-14T22:13:25.000": 5,
        "--shift-by=1": 6,
        "--shift-by=-4": 2,
        "--to-offset=3": 3,
    }.items():
        moved = penstock("group", "reset", group, option, "--topic", f"{records}:0", "-o", "json")
        assert [row["new_offset"] for row in json.loads(moved.stdout)] == [offset], option
    assert offset_of(penstock, group) == 3


def test_offsets_go_into_a_file_and_come_back(penstock: Penstock, node: str, records: str, tmp_path: Path) -> None:
    with reading(node, "kept", records, count=4):
        pass
    statement = "SELECT topic, partition, offset FROM PartitionAssignment WHERE group_id = 'kept'"
    file = tmp_path / "offsets.csv"
    file.write_text(penstock("sql", statement, "-o", "csv").stdout)
    penstock("group", "seek", "kept", "--to", "end")
    penstock("group", "seek", "kept", "--to-file", str(file))
    assert offset_of(penstock, "kept") == 4


def test_a_new_group_is_made_by_naming_its_topics(penstock: Penstock, records: str) -> None:
    refused = penstock("group", "seek", "unborn", "--to", "end", exit_code=1)
    assert "'unborn' has no offsets to move: name topics with --topics" in refused.stderr
    moved = penstock("group", "seek", "unborn", "--to", "100", "--topics", f"{records}:0")
    assert f"there is no offset 100 in partition 0 of '{records}': the nearest is taken" in moved.stderr
    assert offset_of(penstock, "unborn") == 10
    refused = penstock("group", "seek", "unborn", "--to", "-1", "--topics", records, exit_code=1)
    assert "the group has committed nothing for partition 1" in refused.stderr
    refused = penstock("group", "seek", "unborn", "--to", "end", "--topics", f"{records}:7", exit_code=1)
    assert f"'{records}' has no partition 7; it has 3" in refused.stderr
    refused = penstock("group", "seek", "unborn", "--to", "end", "--topics", "no-such-topic", exit_code=1)
    assert "there is no topic 'no-such-topic'" in refused.stderr


def test_groups_are_listed_by_state_and_type(penstock: Penstock, node: str, records: str) -> None:
    def listed(*options: str) -> dict[str, str]:
        rows = json.loads(penstock("group", "list", "-o", "json", *options).stdout)
        return {row["group"]: row["state"] for row in rows if row["group"].startswith(records)}

    old, new = f"{records}-old", f"{records}-new"
    with reading(node, old, records, "classic"):
        pass
    with reading(node, new, records, "consumer"):
        assert listed() == {old: "Empty", new: "Stable"}
        assert listed("--state", "stable,dead") == {new: "Stable"}
        assert listed("--state", "empty", "--type", "consumer") == {}
        assert listed("--type", "classic") == {old: "Empty"}


def test_deleted_groups_are_gone_with_their_offsets(penstock: Penstock, node: str, records: str) -> None:
    with reading(node, "brief", records):
        pass
    result = penstock("group", "delete", "brief", "never-was", "-o", "json", exit_code=1)
    by_name = {row["group"]: row["status"] for row in json.loads(result.stdout)}
    assert by_name == {"brief": "deleted", "never-was": "failed"}
    assert "there is no group 'brief'" in penstock("group", "describe", "brief", exit_code=1).stderr


def test_a_name_that_is_nearly_right_is_suggested(penstock: Penstock, node: str, records: str) -> None:
    with reading(node, f"billing-{records}", records):
        pass
    refused = penstock("group", "describe", f"biling-{records}", exit_code=1)
    assert f"did you mean 'billing-{records}'?" in refused.stderr
