"""One node of Apache Kafka from its jars, to ask it the same questions as ours; and its tools, several in one JVM."""

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from penstock.testing.apache_kafka import kafka_jars
from penstock.testing.ports import free_port
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import KEEPS_EVERYTHING

START_SECONDS_MAX = 120
STOP_SECONDS_MAX = 60
# Tests run tools for seconds: the quick compiler and the small collector start fastest.
JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+UsePerfData", "-Djava.awt.headless=true")
# Kafka's tools log through slf4j to nowhere unless told otherwise; this keeps the notice about that off the output.
QUIET = ("-Dslf4j.internal.verbosity=ERROR",)


def java_command(*arguments: str) -> list[str]:
    jars = kafka_jars()
    assert jars is not None, "the java fixture checks this"
    return ["java", *JVM, *QUIET, "-cp", jars, *arguments]


def dump_log_segments(decoder: str, segment: Path) -> str:
    """What Kafka's own tool prints of a segment."""
    command = java_command("org.apache.kafka.tools.DumpLogSegments", decoder, "--files", str(segment))
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


class KafkaNode:
    """A KRaft broker and controller in one process, with the settings that Kafka ships for that."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self._settings = dict(settings or {})
        self.port = free_port()
        self.controller_port = free_port()
        self._output = directory / "kafka.out"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> "KafkaNode":
        self.directory.mkdir(parents=True, exist_ok=True)
        address = f"PLAINTEXT://127.0.0.1:{self.port}"
        controller = f"CONTROLLER://127.0.0.1:{self.controller_port}"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self.controller_port}",
            "listeners": f"{address},{controller}",
            "advertised.listeners": f"{address},{controller}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.min.isr": "1",
            **dict([KEEPS_EVERYTHING]),
        } | self._settings
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        format_storage = ["kafka.tools.StorageTool", "format", "--standalone", "--config", str(properties)]
        format_storage += ["--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg"]
        environment = os.environ | {"LANG": "C.UTF-8"}
        subprocess.run(java_command(*format_storage), check=True, capture_output=True, timeout=120, env=environment)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                java_command("kafka.Kafka", str(properties)), stdout=output, stderr=subprocess.STDOUT, env=environment
            )
        self._wait_until_ready()
        return self

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline_s = time.monotonic() + START_SECONDS_MAX
        while True:
            assert self._process.poll() is None, self._output.read_text()[-4000:]
            assert time.monotonic() < deadline_s, self._output.read_text()[-4000:]
            try:
                with Wire(self.port) as wire:
                    create_topic(wire, "kafka-is-ready")
                return
            except (OSError, AssertionError):
                time.sleep(0.1)

    def start_again(self) -> None:
        """After a stop. Does not wait: where another node leads the quorum, it may never serve."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                java_command("kafka.Kafka", str(self.directory / "server.properties")),
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"LANG": "C.UTF-8"},
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def begin_to_stop(self) -> None:
        """Kafka then hands over what it leads, while somebody is there to take it."""
        assert self._process is not None
        self._process.terminate()

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
