"""The commands against a running node, as a person or a script would use them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.partitioners import murmur2
from penstock.testing.ports import free_port
from tests.integration.conftest import PENSTOCK, Penstock


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_topic_is_created_listed_described_and_deleted(penstock: Penstock) -> None:
    created = penstock("topic", "create", "life", "-p", "2", "-c", "retention.ms=3600000", "-o", "json")
    assert json.loads(created.stdout) == [{"topic": "life", "status": "created", "error": None}]
    assert "already exists" in penstock("topic", "create", "life", exit_code=1).stdout
    penstock("topic", "create", "life", "--if-not-exists")
    listed = json.loads(penstock("topic", "list", "^life$", "-o", "json").stdout)
    assert listed == [{"name": "life", "partitions": 2, "replicas": 1}]

    penstock("produce", "life", "-p", "1", stdin="a\nb\n")
    (described,) = json.loads(penstock("topic", "describe", "life", "-o", "json").stdout)
    first, second = described["partition_details"]
    assert (first["start"], first["end"], first["size"]) == (0, 0, 0)
    assert (second["start"], second["end"], second["leader"], second["isr"]) == (0, 2, 1, [1])
    assert second["size"] > 60
    assert {"name": "retention.ms", "value": "3600000", "source": "topic"} in described["settings"]

    penstock("topic", "delete", "life")
    assert "there is no topic 'life'" in penstock("topic", "describe", "life", exit_code=1).stderr


def test_a_topic_is_altered_and_grown(penstock: Penstock, topic: str) -> None:
    penstock("topic", "alter", topic, "--set", "segment.ms=1234", "--partitions", "5")
    got = json.loads(penstock("config", "get", "segment.ms", "--topic", topic, "-o", "json").stdout)
    assert (got["value"], got["source"], bool(got["documentation"])) == ("1234", "topic", True)
    penstock("topic", "alter-config", topic, "--delete", "segment.ms")
    got = json.loads(penstock("config", "get", "segment.ms", "--topic", topic, "-o", "json").stdout)
    assert (got["value"], got["source"]) == ("604800000", "default")
    listed = json.loads(penstock("topic", "list", topic, "-o", "json").stdout)
    assert listed[0]["partitions"] == 5
    refused = penstock("topic", "alter", topic, "--set", "retention.ms=soon", exit_code=1)
    assert "retention.ms" in refused.stdout


def test_keys_land_where_java_puts_them(penstock: Penstock, topic: str) -> None:
    keys = [f"key-{number}" for number in range(20)]
    penstock("produce", topic, "-f", "%k:%v\\n", stdin="".join(f"{key}:x\n" for key in keys))
    consumed = penstock("consume", topic, "-o", ":end", "-f", "%k %p\\n").stdout.splitlines()
    expected = [f"{key} {(murmur2(key.encode()) & 0x7FFFFFFF) % 3}" for key in keys]
    assert sorted(consumed) == sorted(expected)


def test_headers_keys_nulls_and_bytes_come_back_as_they_went(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "-p", "0", "-k", "k", "-H", "a=1", "-H", "b:2", stdin="v\n")
    penstock("produce", topic, "-p", "0", "-f", "%v{hex}\\n", stdin="ff00\n")
    penstock("produce", topic, "-p", "0", "-k", "gone", "--tombstone", stdin="\n")
    first, second, third = lines(penstock("consume", topic, "-p", "0", "--until-end").stdout)
    assert (first["key"], first["value"], first["offset"]) == ("k", "v", 0)
    assert first["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "2"}]
    assert second["value_base64"] == "/wA="
    assert (third["key"], third["value"]) == ("gone", None)


def test_what_was_consumed_as_json_can_be_produced_again(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "-f", "%k:%v\\n", "-H", "h=1", stdin="a:1\nb:2\nc:3\n")
    first = penstock("consume", topic, "--until-end").stdout
    penstock("topic", "create", topic + "-copy")
    penstock("produce", topic + "-copy", "-f", "json", stdin=first)
    second = penstock("consume", topic + "-copy", "--until-end").stdout
    fields = ("key", "value", "headers", "timestamp")
    copied = [{name: record[name] for name in fields} for record in lines(second)]
    assert copied == [{name: record[name] for name in fields} for record in lines(first)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_file_goes_in_and_comes_out_whole(penstock: Penstock, topic: str, tmp_path: Path, codec: str) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {number}\n" for number in range(5000)))
    produced = penstock("produce", topic, "-p", "0", "--file", str(file), "-z", codec, "--acks", "1")
    assert "Produced 5,000 records" in produced.stderr
    assert penstock("consume", topic, "-o", ":end", "-f", "%v\\n").stdout == file.read_text()


def test_reading_starts_and_stops_where_it_is_told(penstock: Penstock, topic: str) -> None:
    records = "".join(f"{1_700_000_000_000 + number * 1000} {number}\n" for number in range(10))
    penstock("produce", topic, "-p", "2", "-f", "%d %v\\n", stdin=records)
    for offset, values in {
        "start:end": "0 1 2 3 4 5 6 7 8 9 ",
        "2:4": "2 3 ",
        "-2:end": "8 9 ",
        "+8:end": "8 9 ",
        "@1700000005000:end": "5 6 7 8 9 ",
        "@1700000002000:1700000004000": "2 3 ",
        "@-1m:end": "",
    }.items():
        assert penstock("consume", topic, "-p", "2", "-o", offset, "-f", "%v ").stdout == values, offset


def test_consume_follows_until_it_has_its_number(penstock: Penstock, node: str, topic: str) -> None:
    command = [PENSTOCK, "consume", topic, "-n", "2", "-f", "%v\\n", "--brokers", node]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        try:
            penstock("produce", topic, stdin="first\n")
            penstock("produce", topic, stdin="second\n")
            output, _ = following.communicate(timeout=30)
        finally:
            following.kill()
    assert sorted(output.splitlines()) == ["first", "second"]
    assert following.returncode == 0


def test_trimming_deletes_from_the_start_and_asks_first(penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, "-p", "0", stdin="".join(f"{number}\n" for number in range(10)))
    assert "--yes" in penstock("topic", "trim", topic, "--offset", "4", exit_code=2).stderr
    trimmed = json.loads(penstock("topic", "trim", topic, "--offset", "4", "-p", "0", "--yes", "-o", "json").stdout)
    assert trimmed == [{"partition": 0, "old_start": 0, "new_start": 4, "end": 10, "deleted": 4}]
    assert penstock("consume", topic, "-o", ":end", "-f", "%v ").stdout == "4 5 6 7 8 9 "
    penstock("topic", "trim", topic, "--all", "--yes")
    assert penstock("consume", topic, "-o", ":end").stdout == ""


def test_an_own_partitioner_decides(node: str, topic: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def choose(key, value, count):\n    return int(value) % count\n")
    command = [PENSTOCK, "produce", topic, "--partitioner", "mine:choose", "-o", "%v %p\\n", "--brokers", node]
    result = subprocess.run(
        command, input="0\n1\n2\n4\n", capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    )
    assert sorted(result.stdout.splitlines()) == ["0 0", "1 1", "2 2", "4 1"]


def test_cluster_settings_are_shown_set_and_taken_back(penstock: Penstock) -> None:
    name = "log.cleaner.backoff.ms"
    penstock("config", "set", f"{name}=7200000")
    got = json.loads(penstock("cluster", "config", "get", name, "-o", "json").stdout)
    assert (got["value"], got["source"], got["type"]) == ("7200000", "cluster", "long")
    penstock("config", "reset", name)
    assert json.loads(penstock("config", "get", name, "-o", "json").stdout)["source"] == "default"
    assert f"did you mean '{name}'?" in penstock("config", "get", "log.cleaner.backoff.mz", exit_code=1).stderr


def test_records_that_are_too_large_are_counted_and_the_others_arrive(penstock: Penstock) -> None:
    penstock("topic", "create", "small", "-c", "max.message.bytes=1000")
    result = penstock("produce", "small", "-X", "batch.num.messages=1", stdin=f"a\n{'x' * 2000}\nb\n", exit_code=1)
    assert "1 of 3 records did not get into 'small': message size too large" in result.stderr
    assert penstock("consume", "small", "-o", ":end", "-f", "%v ").stdout == "a b "
    result = penstock("produce", "small", stdin="x" * 2_000_000, exit_code=1)
    assert "1 of 1 record did not get into 'small': message size too large" in result.stderr


def test_cluster_info_names_the_node(penstock: Penstock, node: str) -> None:
    info = json.loads(penstock("cluster", "info", "-o", "json").stdout)
    (only,) = info["nodes"]
    assert (f"{only['host']}:{only['port']}", only["id"], info["without_leader"]) == (node, 1, 0)


def test_bench_measures_and_cleans_up_after_itself(penstock: Penstock) -> None:
    produced = json.loads(penstock("bench", "produce", "-n", "2000", "-o", "json").stdout)
    assert (produced["records"], produced["records_per_second"] > 0, "p99_ms" in produced) == (2000, True, True)
    assert json.loads(penstock("bench", "consume", "-n", "2000", "-o", "json").stdout)["records"] == 2000
    measured = json.loads(penstock("bench", "latency", "--seconds", "1", "--rate", "50", "-o", "json").stdout)
    assert measured["records"] == 50
    assert json.loads(penstock("topic", "list", "^penstock-bench-", "-o", "json").stdout) == []


@pytest.mark.parametrize("command", [["produce"], ["consume"], ["topic", "describe"], ["bench", "produce", "--topic"]])
def test_a_topic_that_is_not_there_is_never_made_by_accident(penstock: Penstock, command: list[str]) -> None:
    result = penstock(*command, "no-such-topic", stdin="a\n", exit_code=1)
    assert "there is no topic 'no-such-topic'" in result.stderr
    assert json.loads(penstock("topic", "list", "^no-such-topic$", "-o", "json").stdout) == []


def test_a_broker_that_is_not_there_is_one_sentence(penstock: Penstock) -> None:
    port = free_port()
    result = penstock("topic", "list", "--brokers", f"127.0.0.1:{port}", exit_code=1)
    assert result.stderr.count("\n") == 1
    assert f"no broker at 127.0.0.1:{port}" in result.stderr
    assert "penstock up" in result.stderr


def test_a_reader_that_leaves_early_is_no_drama(node: str, penstock: Penstock, topic: str) -> None:
    penstock("produce", topic, stdin="".join(f"{number}\n" for number in range(20_000)))
    script = f"{PENSTOCK} consume {topic} -o :end -f '%v\\n' --brokers {node} | head -n 1"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""


def test_the_programs_own_words_about_itself(penstock: Penstock) -> None:
    assert f"Python {sys.version.split()[0]}".lower() in penstock("version").stdout
    assert json.loads(penstock("version", "-o", "json").stdout)["penstock"]
    assert "topic" in penstock("--help").stdout
