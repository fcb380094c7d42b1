"""Kafka's own Java clients, in the shape of its command line tools."""

import json
import re
from pathlib import Path

import pytest

from penstock.broker.api import Api
from penstock.broker.router import APIS
from tests.conformance.confluent import create, read_all
from tests.conformance.java_tools import (
    BROKER_API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    DELETE_RECORDS,
    FEATURES,
    GET_OFFSETS,
    LOG_DIRS,
    PRODUCER_PERFORMANCE,
    TOPICS,
    JavaTools,
)
from tests.e2e.node import Node

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("java-tools")]


def test_kafka_topics_creates_describes_alters_lists_and_deletes(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    def topics(*arguments: str) -> str:
        return java_tools.run(TOPICS, "--bootstrap-server", shared_broker.bootstrap, *arguments)

    topics("--create", "--topic", topic_name, "--partitions", "2", "--config", "retention.ms=1000")
    described = topics("--describe", "--topic", topic_name)
    assert "PartitionCount: 2" in described
    assert "retention.ms=1000" in described
    assert re.search(r"Partition: 1\s+Leader: 1\s+Replicas: 1\s+Isr: 1", described)
    topics("--alter", "--topic", topic_name, "--partitions", "3")
    assert "PartitionCount: 3" in topics("--describe", "--topic", topic_name)
    assert topic_name in topics("--list").split()
    topics("--delete", "--topic", topic_name)
    assert topic_name not in topics("--list").split()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_console_producer_and_consumer_pass_lines_on(
    shared_broker: Node, java_tools: JavaTools, topic_name: str, codec: str
) -> None:
    create(shared_broker, topic_name)
    lines = [f"k{number}:line {number}" for number in range(50)]
    server = ("--bootstrap-server", shared_broker.bootstrap, "--topic", topic_name)
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:", "--compression-codec", codec)
    java_tools.run(CONSOLE_PRODUCER, *server, *keyed, stdin="\n".join(lines).encode())
    reading = ("--partition", "0", "--offset", "earliest", "--max-messages", "50", "--timeout-ms", "30000")
    shown = ("--property", "print.key=true", "--property", "key.separator=:")
    printed = java_tools.run(CONSOLE_CONSUMER, *server, *reading, *shown)
    assert [line for line in printed.splitlines() if line.startswith("k")] == lines


@pytest.mark.parametrize("settings", [("acks=1", "enable.idempotence=false"), ("acks=all", "enable.idempotence=true")])
def test_producer_performance_loses_nothing(
    shared_broker: Node, java_tools: JavaTools, topic_name: str, settings: tuple[str, ...]
) -> None:
    create(shared_broker, topic_name, partitions=2)
    load = ("--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    server = ("--bootstrap-server", shared_broker.bootstrap, "--topic", topic_name)
    printed = java_tools.run(PRODUCER_PERFORMANCE, *server, *load, "--command-property", *settings)
    assert "20000 records sent" in printed
    assert len(read_all(shared_broker, topic_name, 20_000, partitions=2)) == 20_000


def test_get_offset_shell_shows_both_ends_and_times(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    create(shared_broker, topic_name)
    server = ("--bootstrap-server", shared_broker.bootstrap, "--topic", topic_name)
    for line in (b"a", b"b", b"c"):
        java_tools.run(CONSOLE_PRODUCER, *server, stdin=line)
    for time, offset in {"-1": 3, "-2": 0, "earliest": 0, "latest": 3, "max-timestamp": 2, "-4": 0, "1000": 0}.items():
        assert f"{topic_name}:0:{offset}" in java_tools.run(GET_OFFSETS, *server, "--time", time)


def test_kafka_configs_describes_and_alters_topics_and_brokers(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    create(shared_broker, topic_name)

    def configs(*arguments: str) -> str:
        return java_tools.run(CONFIGS, "--bootstrap-server", shared_broker.bootstrap, *arguments)

    topic = ("--entity-type", "topics", "--entity-name", topic_name)
    configs(*topic, "--alter", "--add-config", "retention.ms=77,cleanup.policy=[compact,delete]")
    assert "retention.ms=77" in configs(*topic, "--describe")
    configs(*topic, "--alter", "--delete-config", "retention.ms")
    described = configs(*topic, "--describe")
    assert "retention.ms" not in described
    assert "cleanup.policy=compact,delete" in described
    assert "max.message.bytes=1048588" in configs(*topic, "--describe", "--all")
    assert "message.max.bytes=1048588" in configs(
        "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
    )
    configs("--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "message.max.bytes=1048577")
    assert "message.max.bytes=1048577" in configs("--entity-type", "brokers", "--entity-default", "--describe")
    configs("--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "message.max.bytes")


def test_kafka_delete_records_moves_the_start(
    shared_broker: Node, java_tools: JavaTools, topic_name: str, tmp_path: Path
) -> None:
    create(shared_broker, topic_name)
    server = ("--bootstrap-server", shared_broker.bootstrap)
    java_tools.run(CONSOLE_PRODUCER, *server, "--topic", topic_name, stdin=b"a\nb\nc\nd")
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": topic_name, "partition": 0, "offset": 3}], "version": 1}))
    printed = java_tools.run(DELETE_RECORDS, *server, "--offset-json-file", str(offsets))
    assert "low_watermark: 3" in printed
    assert f"{topic_name}:0:3" in java_tools.run(GET_OFFSETS, *server, "--topic", topic_name, "--time", "-2")


def test_kafka_log_dirs_tells_sizes(shared_broker: Node, java_tools: JavaTools, topic_name: str) -> None:
    create(shared_broker, topic_name)
    server = ("--bootstrap-server", shared_broker.bootstrap)
    java_tools.run(CONSOLE_PRODUCER, *server, "--topic", topic_name, stdin=b"some line")
    printed = java_tools.run(LOG_DIRS, *server, "--describe", "--topic-list", topic_name)
    described = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (log_dir,) = described["brokers"][0]["logDirs"]
    assert log_dir["error"] is None
    (partition,) = log_dir["partitions"]
    assert partition["partition"] == f"{topic_name}-0"
    assert partition["size"] == (shared_broker.directory / f"{topic_name}-0" / f"{0:020}.log").stat().st_size


def test_broker_api_versions_finds_each_api_usable(shared_broker: Node, java_tools: JavaTools) -> None:
    printed = java_tools.run(BROKER_API_VERSIONS, "--bootstrap-server", shared_broker.bootstrap)
    for api in APIS:
        if isinstance(api, Api) and api.is_for_brokers:
            continue
        line = next(line for line in printed.splitlines() if re.search(rf"\({api.key}\):", line))
        assert f"{api.version_max} [usable: " in line or f"to {api.version_max} [usable: " in line, line


def test_kafka_features_and_kafka_cluster_describe_the_cluster(shared_broker: Node, java_tools: JavaTools) -> None:
    assert "metadata.version" in java_tools.run(FEATURES, "--bootstrap-server", shared_broker.bootstrap, "describe")
    assert "Cluster ID: " in java_tools.run(CLUSTER, "cluster-id", "--bootstrap-server", shared_broker.bootstrap)
    endpoints = java_tools.run(CLUSTER, "list-endpoints", "--bootstrap-server", shared_broker.bootstrap)
    assert str(shared_broker.port) in endpoints


def test_dump_log_segments_finds_nothing_wrong_with_what_clients_wrote(
    shared_broker: Node, java_tools: JavaTools, topic_name: str
) -> None:
    """Codecs, headers, idempotence, several segments: .log, .index and .timeindex agree."""
    create(
        shared_broker,
        topic_name,
        configs={"segment.bytes": "1048576", "index.interval.bytes": "1000", "segment.index.bytes": "4096"},
    )
    server = ("--bootstrap-server", shared_broker.bootstrap, "--topic", topic_name)
    for codec in ("none", "zstd"):
        java_tools.run(
            PRODUCER_PERFORMANCE, *server, "--num-records", "2000", "--record-size", "500", "--throughput", "-1",
            "--command-property", f"compression.type={codec}", "batch.size=2000",
        )  # fmt: skip
    directory = shared_broker.directory / f"{topic_name}-0"
    assert len(list(directory.glob("*.log"))) > 1
    printed = java_tools.check_segments(directory)
    assert printed.count("| offset:") == 4000


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_dump_log_segments_sees_the_codec_of_the_topic(
    shared_broker: Node, java_tools: JavaTools, topic_name: str, codec: str
) -> None:
    create(shared_broker, topic_name, configs={"compression.type": codec})
    server = ("--bootstrap-server", shared_broker.bootstrap, "--topic", topic_name)
    for sent in ("none", "gzip", "zstd"):
        java_tools.run(CONSOLE_PRODUCER, *server, "--compression-codec", sent, stdin=b"a line\n" * 50)
    printed = java_tools.check_segments(shared_broker.directory / f"{topic_name}-0")
    assert set(re.findall(r"compresscodec: (\w+)", printed)) == {codec}
    assert printed.count("payload: a line") == 150
