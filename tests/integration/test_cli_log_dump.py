"""penstock log dump on what a node of ours wrote."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import PENSTOCK, start_up, wait_until_ready

GOLDEN = Path(__file__).parents[1] / "golden" / "segments"


def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run([PENSTOCK, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a node that was stopped."""
    up = wait_until_ready(start_up(tmp_path_factory.mktemp("dump") / "data"))
    run("topic", "create", "orders", "--brokers", up.address)
    run(
        "produce",
        "orders",
        "-k",
        "k",
        "-H",
        "h=1",
        "-z",
        "zstd",
        "--brokers",
        up.address,
        stdin=f"{'one' * 100}\ntwo\n",
    )
    run("produce", "orders", "--brokers", up.address, "-X", "enable.idempotence=true", stdin="three\n")
    assert up.stop() == 0
    return up.data / "node-1"


def test_a_segment_is_printed_with_its_records(data: Path) -> None:
    segment = data / "orders-0" / "00000000000000000000.log"
    result = run("log", "dump", str(segment), "--records", "-o", "json")
    assert result.returncode == 0
    batches = [json.loads(line) for line in result.stdout.splitlines()]
    # Whether the first two share a batch is librdkafka's to decide: it may send while it still sorts records in.
    assert (batches[0]["codec"], batches[0]["problem"]) == ("zstd", None)
    assert [len(batch["record_details"]) for batch in batches] == [batch["records"] for batch in batches]
    values = [record["value"] for batch in batches for record in batch["record_details"]]
    assert values == ["one" * 100, "two", "three"]
    assert batches[0]["record_details"][0]["headers"] == [{"key": "h", "value": "1"}]
    assert batches[-1]["producer_id"] >= 0
    text = run("log", "dump", str(segment), "--records").stdout
    assert 'key="k" value="two"' in text
    assert "3 records, offsets 0-2" in text


def test_batches_of_several_records_are_printed_in_every_codec() -> None:
    result = run("log", "dump", str(GOLDEN / "codecs-0" / "00000000000000000000.log"), "--records", "-o", "json")
    batches = [json.loads(line) for line in result.stdout.splitlines()]
    assert {batch["codec"] for batch in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {(batch["records"], len(batch["record_details"]), batch["problem"]) for batch in batches} == {(8, 8, None)}


def test_who_stops_reading_is_not_told_of_a_broken_pipe() -> None:
    files = [str(path) for path in sorted(GOLDEN.rglob("*.log")) for _ in range(20)]
    with subprocess.Popen(
        [PENSTOCK, "log", "dump", *files, "--records"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as dump:
        assert dump.stdout is not None
        assert dump.stderr is not None
        dump.stdout.read(1)
        dump.stdout.close()
        assert dump.stderr.read() == b""


def test_a_whole_data_directory_is_sound(data: Path) -> None:
    result = run("log", "dump", str(data))
    assert result.returncode == 0, result.stdout
    for name in ("meta.properties", "partition.metadata", "recovery-point-offset-checkpoint"):
        assert name in result.stdout


def test_metadata_records_are_decoded(data: Path) -> None:
    result = run("log", "dump", str(data / "__cluster_metadata-0"), "--records")
    assert "TopicRecord(" in result.stdout
    assert "not readable" not in result.stdout


def test_damage_is_found_and_fails(data: Path, tmp_path: Path) -> None:
    original = (data / "orders-0" / "00000000000000000000.log").read_bytes()
    damaged = tmp_path / "00000000000000000000.log"
    damaged.write_bytes(original[:70] + bytes([original[70] ^ 1]) + original[71:-3])
    result = run("log", "dump", str(damaged))
    assert result.returncode == 1
    assert "PROBLEM: wrong checksum" in result.stdout
    assert "torn" in result.stdout
    assert "2 problems found" in result.stderr
    assert os.path.getsize(damaged) == len(original) - 3
