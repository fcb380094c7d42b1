"""Both brokers under one face: prepare, launch, stop; each with its own new data directory, on loopback."""

import os
import re
import shutil
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import ClassVar, Protocol

from bench import processes
from penstock.testing.ports import free_ports

REPOSITORY = Path(__file__).resolve().parent.parent
KAFKA_VERSION = "4.3.1"
STOP_TIMEOUT_S = 180.0

# Kafka's own start script gives its broker these.
_HEAP = ("-Xmx1G", "-Xms1G")
_JVM = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
KAFKA_JVM = (*_HEAP, *_JVM)


class Unavailable(Exception):
    """Something that must be installed first; the message says what and how."""


class Broker(Protocol):
    """A broker with its data directory. `prepare` once, then `launch` and `stop` as often as wanted."""

    name: ClassVar[str]
    # What a topic needs so that acks=all is answered only when the records are on the disk.
    synced_topic_settings: ClassVar[dict[str, str]]
    # What a topic needs so that acks=all is answered from the page cache.
    unsynced_topic_settings: ClassVar[dict[str, str]]
    # What of the two is in force if nobody says anything.
    default_flush_settings: ClassVar[dict[str, str]]
    port: int
    # Where it serves metrics of its own, if it does.
    metrics_port: int | None
    directory: Path

    def __init__(self, directory: Path) -> None: ...

    def prepare(self) -> None: ...

    def launch(self) -> None:
        """Starts the process; returns before it serves."""

    def stop(self) -> float:
        """Ends it cleanly; the seconds that took."""

    def kill(self) -> None:
        """Ends it at once; its data is of no more use."""

    def check_running(self) -> None:
        """Raises Failed, with what it printed last, when the process has ended."""

    def pids(self) -> list[int]: ...


class ApacheKafka:
    """One KRaft node, broker and controller in one process, with the settings that Kafka ships for that."""

    name: ClassVar[str] = "Apache Kafka"
    synced_topic_settings: ClassVar[dict[str, str]] = {"flush.messages": "1"}
    unsynced_topic_settings: ClassVar[dict[str, str]] = {}
    default_flush_settings: ClassVar[dict[str, str]] = {"flush.messages": str(2**63 - 1)}

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, self._controller_port = free_ports(2)
        self.metrics_port: int | None = None
        self._settings_file = directory / "server.properties"
        self._output = directory / "kafka.out"
        self._process: processes.Process | None = None

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self.directory / "data"),
            "num.network.threads": "3",
            "num.io.threads": "8",
            "socket.send.buffer.bytes": "102400",
            "socket.receive.buffer.bytes": "102400",
            "offsets.topic.replication.factor": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._settings_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        command = ["kafka.tools.StorageTool", "format", "--standalone"]
        command += ["--cluster-id", "MkU3OEVBNTcwNTJENDM2Qg", "--config", str(self._settings_file)]
        processes.run(java_command(*command), self.directory / "format.out", timeout_s=60)

    def launch(self) -> None:
        command = java_command("kafka.Kafka", str(self._settings_file), jvm=KAFKA_JVM)
        self._process = processes.start(command, self._output)

    def stop(self) -> float:
        process, self._process = self._process, None
        return _stop(process, self.name, self._output)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            processes.end(process, timeout_s=0)

    def check_running(self) -> None:
        _running_pid(self._process, self.name, self._output)

    def pids(self) -> list[int]:
        return [_running_pid(self._process, self.name, self._output)]


class Penstock:
    """`penstock up` with next to nothing configured: the process that watches over the node, and the node."""

    name: ClassVar[str] = "Penstock"
    synced_topic_settings: ClassVar[dict[str, str]] = {}
    unsynced_topic_settings: ClassVar[dict[str, str]] = {"flush.mode": "none"}
    default_flush_settings: ClassVar[dict[str, str]] = {"flush.mode": "auto"}

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port, metrics_port = free_ports(2)
        self.metrics_port: int | None = metrics_port
        self._output = directory / "penstock.out"
        self._process: processes.Process | None = None

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)

    def launch(self) -> None:
        program = Path(sys.executable).parent / "penstock"
        if not program.exists():
            raise Unavailable(f"{program} is not there: run `make env`, and the benchmark with {REPOSITORY}/.venv")
        command = [str(program), "up", "--data", str(self.directory / "data"), "--port", str(self.port)]
        # Kafka allows two-phase commits only when told so too; exactly-once writing from Spark needs them.
        command += ["-X", "transaction.two.phase.commit.enable=true"]
        self._process = processes.start(
            [*command, "--no-http", "--no-demo", "--metrics-port", str(self.metrics_port)], self._output
        )

    def stop(self) -> float:
        process, self._process = self._process, None
        return _stop(process, self.name, self._output)

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            processes.end(process, timeout_s=0)

    def check_running(self) -> None:
        _running_pid(self._process, self.name, self._output)

    def pids(self) -> list[int]:
        watcher = _running_pid(self._process, self.name, self._output)
        return [watcher, int((self.directory / "data" / "node-1.pid").read_text())]


def _running_pid(process: processes.Process | None, name: str, output: Path) -> int:
    if process is None or process.poll() is not None:
        raise processes.Failed(f"{name} is not running: {processes.last_lines(output)}")
    return process.pid


def _stop(process: processes.Process | None, name: str, output: Path) -> float:
    if process is None:
        return 0.0
    started_s = time.monotonic()
    was_clean = processes.end(process, STOP_TIMEOUT_S)
    if not was_clean:
        raise processes.Failed(f"{name} did not stop within {STOP_TIMEOUT_S:.0f} s: {processes.last_lines(output)}")
    return time.monotonic() - started_s


def java_command(*arguments: str, jvm: tuple[str, ...] = ()) -> list[str]:
    return [_java(), *jvm, "-cp", f"{kafka_jars()}/*", *arguments]


@cache
def _java() -> str:
    java = shutil.which("java")
    if java is None:
        raise Unavailable("Java is not installed: Apache Kafka and its clients need Java 17 (Debian: openjdk-17-jdk)")
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    version = re.search(r'version "(\d+)', printed)
    if version is None or int(version[1]) < 17:
        raise Unavailable(f"{java} is too old, Apache Kafka needs Java 17 (Debian: openjdk-17-jdk). It says: {printed}")
    return java


@cache
def kafka_jars() -> Path:
    """The directory of Apache Kafka's jars, fetched with Maven when they are not there yet."""
    named = os.environ.get("PENSTOCK_KAFKA_JARS")
    jars = Path(named) if named else REPOSITORY / ".cache" / "kafka-jars"
    if (jars / f"kafka-tools-{KAFKA_VERSION}.jar").exists():
        return jars
    if named:
        raise Unavailable(f"PENSTOCK_KAFKA_JARS is {named}, but kafka-tools-{KAFKA_VERSION}.jar is not in there")
    if shutil.which("mvn") is None:
        raise Unavailable(
            f"Apache Kafka {KAFKA_VERSION} must be fetched from Maven Central, and mvn is missing (Debian: maven). "
            "Or name a directory that has its jars in PENSTOCK_KAFKA_JARS"
        )
    jars.parent.mkdir(parents=True, exist_ok=True)
    processes.run([str(REPOSITORY / "scripts" / "kafka-jars")], jars.parent / "kafka-jars.out", timeout_s=600)
    return jars
