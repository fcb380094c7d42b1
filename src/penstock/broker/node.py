"""One node as a process: the data directory, the ports, the broker and its server, from start to a clean end."""

import asyncio
import base64
import fcntl
import gc
import logging
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from penstock.base.errors import Refused
from penstock.base.ports import Disk, DiskError, MissingFile, Random
from penstock.base.settings import InvalidSettings, NodeSettings
from penstock.broker.broker import Broker
from penstock.broker.ports import RealDisk, SystemClock, SystemRandom
from penstock.broker.router import Router
from penstock.broker.server import Server
from penstock.log.checkpoints import (
    META_PROPERTIES_FILE,
    BadCheckpoint,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)

log = logging.getLogger("penstock.node")


class StartRefused(Exception):
    """The node cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class NodeConfig:
    node_id: int
    data_directory: str
    host: str
    port: int
    overrides: Mapping[str, str] = field(default_factory=dict)


def run(config: NodeConfig, on_ready: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM. `on_ready` gets `host:port` once clients can connect. Raises StartRefused."""
    try:
        settings = NodeSettings(
            {
                **config.overrides,
                "node.id": str(config.node_id),
                "listeners": f"PLAINTEXT://{config.host}:{config.port}",
                "log.dirs": os.path.abspath(config.data_directory),
            }
        )
        advertised = _advertised(settings)
    except (InvalidSettings, ValueError) as problem:
        raise StartRefused(str(problem)) from problem
    lock = _lock_directory(config.data_directory)
    try:
        located = replace(config, data_directory=os.path.abspath(config.data_directory))
        asyncio.run(_serve(located, settings, advertised, on_ready))
    except (DiskError, BadCheckpoint, Refused) as problem:
        raise StartRefused(f"the data in {config.data_directory} cannot be used: {problem}") from problem
    finally:
        os.close(lock)


async def _serve(
    config: NodeConfig,
    settings: NodeSettings,
    advertised: tuple[str, int] | None,
    on_ready: Callable[[str], None],
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    disk = RealDisk(config.data_directory)
    random = SystemRandom()
    identity = _identify(disk, random, config)
    broker = Broker(
        node_id=config.node_id,
        cluster_id=identity.cluster_id,
        data_directory=config.data_directory,
        settings=settings,
        disk=disk,
        clock=SystemClock(),
        random=random,
        boot_id=_boot_id(),
    )
    server = Server(
        Router(broker).dispatch,
        frame_bytes_max=settings["socket.request.max.bytes"],
        idle_ms_max=settings["connections.max.idle.ms"],
        connections_max=settings["max.connections"],
        connections_per_ip_max=settings["max.connections.per.ip"],
    )
    try:
        port = server.bind(config.host, config.port)
    except OSError as problem:
        raise StartRefused(
            f"cannot listen on {config.host}:{config.port}: {problem.strerror}. "
            "Is another node or Kafka running there? Choose another port with --port."
        ) from problem
    try:
        await broker.start(*(advertised or (config.host, port)))
        _collect_seldom()
        server.start()
        on_ready(f"{config.host}:{port}")
        await stopped.wait()
    finally:
        server.stop()
        broker.stop()


def _collect_seldom() -> None:
    """What is there now stays, and requests leave hardly any cycles: looking for some every 700 objects, which is
    Python's default, took a third of the time of a busy group coordinator."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _advertised(settings: NodeSettings) -> tuple[str, int] | None:
    """Host and port that all clients are told, where the operator names one. Raises ValueError."""
    listeners = settings["advertised.listeners"]
    if not listeners:
        return None
    host, separator, port = listeners[0].rpartition("://")[2].rpartition(":")
    if not (separator and host and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"advertised.listeners must be like PLAINTEXT://host:9092, not {listeners[0]!r}")
    return host.strip("[]"), int(port)


def _lock_directory(path: str) -> int:
    try:
        os.makedirs(path, exist_ok=True)
        descriptor = os.open(os.path.join(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise StartRefused(
            f"cannot write to the data directory {path}: {problem.strerror}. Choose another one with --data."
        ) from problem
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        os.close(descriptor)
        raise StartRefused(
            f"the data directory {path} is in use by another node. Stop that one, or choose another with --data."
        ) from problem
    return descriptor


def _identify(disk: Disk, random: Random, config: NodeConfig) -> MetaProperties:
    """Who this data directory belongs to; a new one is given an identity. There is no formatting step."""
    try:
        found = parse_meta_properties(disk.read_file(META_PROPERTIES_FILE), META_PROPERTIES_FILE)
    except MissingFile:
        found = MetaProperties(_random_id(random), config.node_id, _random_id(random))
        disk.write_file(META_PROPERTIES_FILE, format_meta_properties(found))
    if found.node_id != config.node_id:
        raise StartRefused(
            f"{config.data_directory} belongs to node {found.node_id}, not {config.node_id}. "
            "Start it with its own id, or choose another directory with --data."
        )
    return found


def _boot_id() -> str | None:
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return None


def _random_id(random: Random) -> str:
    """22 characters of URL-safe base64, as Kafka's ids; no dash first, which tools would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(random.random_bytes(16)).decode().rstrip("=")
        if not text.startswith("-"):
            return text
