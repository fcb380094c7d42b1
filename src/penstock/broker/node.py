"""One node as a process: the data directory, the ports, the broker and its server, from start to a clean end."""

import asyncio
import base64
import fcntl
import gc
import hashlib
import logging
import os
import re
import signal
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from penstock.base.errors import Refused
from penstock.base.ports import Disk, DiskError, MissingFile, Random
from penstock.base.settings import InvalidSettings, NodeSettings
from penstock.broker.broker import Broker, Identity
from penstock.broker.handlers.member_calls import prepare_codecs
from penstock.broker.hearing import best_hearing
from penstock.broker.joining import ask_cluster_id
from penstock.broker.metrics_server import MetricsServer
from penstock.broker.peers import Peer, PeerGone
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
from penstock.protocol.messages import Malformed, Struct

log = logging.getLogger("penstock.node")

_API_VERSIONS = 18
_TWIN_SECONDS_MAX = 1.0
_ANY_ADDRESS = ("", "0.0.0.0", "::")

# Given the data directory: tests run nodes on disks that can lose power.
OpenDisk = Callable[[str], RealDisk]


class StartRefused(Exception):
    """The node cannot start; the message says why and what to do."""


@dataclass(frozen=True)
class NodeConfig:
    node_id: int
    data_directory: str
    host: str
    port: int
    overrides: Mapping[str, str] = field(default_factory=dict)
    # None: no metrics are served; 0: on any free port.
    metrics_port: int | None = None


def run(
    config: NodeConfig,
    on_ready: Callable[[str], None],
    on_metrics: Callable[[str], None] = lambda _: None,
    open_disk: OpenDisk = RealDisk,
) -> None:
    """Serves until SIGINT or SIGTERM. `on_ready` gets `host:port` once clients can connect, `on_metrics`, before that,
    where the metrics are. Raises StartRefused."""

    async def until_signal() -> None:
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await serve(config, on_ready, stopped, on_metrics, open_disk, owns_process=True)

    asyncio.run(until_signal())


async def serve(
    config: NodeConfig,
    on_ready: Callable[[str], None],
    stopped: asyncio.Event,
    on_metrics: Callable[[str], None] = lambda _: None,
    open_disk: OpenDisk = RealDisk,
    *,
    owns_process: bool = False,
) -> None:
    """The same for who has an event loop, until `stopped`. A process that is not the node's own is left as it is.
    Raises StartRefused."""
    config = replace(config, data_directory=_absolute(config.data_directory))
    try:
        settings = NodeSettings(
            {
                **config.overrides,
                "node.id": str(config.node_id),
                "listeners": f"PLAINTEXT://{config.host}:{config.port}",
                "log.dirs": config.data_directory,
            }
        )
        advertised = _advertised(settings)
    except (InvalidSettings, ValueError) as problem:
        raise StartRefused(str(problem)) from problem
    lock = _lock_directory(config.data_directory)
    try:
        await _serve(config, settings, advertised, on_ready, stopped, on_metrics, open_disk, owns_process)
    except Refused as problem:
        raise StartRefused(f"node {config.node_id} cannot join its cluster: {problem.message}") from problem
    except (DiskError, BadCheckpoint) as problem:
        raise StartRefused(f"the data in {config.data_directory} cannot be used: {problem}") from problem
    finally:
        os.close(lock)


async def _serve(
    config: NodeConfig,
    settings: NodeSettings,
    advertised: tuple[str, int] | None,
    on_ready: Callable[[str], None],
    stopped: asyncio.Event,
    on_metrics: Callable[[str], None],
    open_disk: OpenDisk,
    owns_process: bool,
) -> None:
    disk = open_disk(config.data_directory)
    random = SystemRandom()
    identity = await _identify(disk, random, config, settings, stopped)
    if identity is None:
        return
    await _refuse_to_be_two(identity, config.host, config.port)
    broker = Broker(
        identity,
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
        hearing=best_hearing(asyncio.get_running_loop()),
    )
    try:
        port = server.bind(config.host, config.port)
    except OSError as problem:
        server.stop()
        raise StartRefused(
            f"cannot listen on {config.host}:{config.port}: {problem.strerror}. "
            "Is another node or Kafka running there? Choose another port with --port."
        ) from problem
    try:
        broker.join_quorum(*_quorum_address(identity, advertised or (config.host, port)))
    except DiskError:
        # Nothing else has begun that would have to end.
        server.stop()
        broker.group_commit.stop()
        raise
    metrics_server = MetricsServer(broker)
    try:
        broker.metrics.start()
        if config.metrics_port is not None:
            address = await metrics_server.start(config.host, config.metrics_port)
            if address is not None:
                on_metrics(address)
        server.start()
        await _unless(stopped, broker.start(*(advertised or (config.host, port))))
        if not stopped.is_set():
            on_ready(f"{config.host}:{port}")
            if owns_process:
                if broker.hosts_partitions:
                    await prepare_codecs()
                _collect_seldom()
            await stopped.wait()
            await broker.take_leave()
    finally:
        metrics_server.stop()
        broker.metrics.stop()
        server.stop()
        broker.stop()


async def _refuse_to_be_two(identity: Identity, host: str, port: int) -> None:
    """Two nodes with one id would vote twice in the quorum, which must not happen even once. So where the others know
    this id by another address than ours, nobody may answer there: we do not yet. Raises StartRefused."""
    for node_id, known_host, known_port in identity.voters:
        is_ours = known_port == port and host in (known_host, *_ANY_ADDRESS)
        if node_id != identity.node_id or is_ours:
            continue
        peer = Peer(known_host, known_port, f"node-{node_id}")
        try:
            async with asyncio.timeout(_TWIN_SECONDS_MAX):
                await peer.request(_API_VERSIONS, 0, Struct())
        except (PeerGone, Malformed, TimeoutError):
            continue
        finally:
            peer.close()
        raise StartRefused(
            f"another node with the id {node_id} is running at {known_host}:{known_port}. Give this one an id of its "
            "own, or stop the other."
        )


async def _unless(stopped: asyncio.Event, starting: Coroutine[None, None, None]) -> None:
    """Waits for the start, which may take long where the other nodes are not there yet, or for the end."""
    start = asyncio.ensure_future(starting)
    stop = asyncio.ensure_future(stopped.wait())
    await asyncio.wait((start, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        await start
    else:
        start.cancel()


def _collect_seldom() -> None:
    """What is there now stays, and requests leave hardly any cycles: looking for some every 700 objects, which is
    Python's default, took a third of the time of a busy group coordinator. Nor all too seldom: while it looks, which
    takes about a millisecond for 4,000 objects, everybody waits. (Half as many at a time would be met by what a hundred
    busy connections have under way: 8 % of the time of their commits.)"""
    gc.freeze()
    gc.set_threshold(16_000, 0, 1000)


def _advertised(settings: NodeSettings) -> tuple[str, int] | None:
    """Host and port that all clients are told, where the operator names one. Raises ValueError."""
    listeners = settings["advertised.listeners"]
    if not listeners:
        return None
    host, separator, port = listeners[0].rpartition("://")[2].rpartition(":")
    if not (separator and host and port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"advertised.listeners must be like PLAINTEXT://host:9092, not {listeners[0]!r}")
    return host.strip("[]"), int(port)


def _absolute(path: str) -> str:
    return os.path.abspath(path)


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


async def _identify(
    disk: Disk, random: Random, config: NodeConfig, settings: NodeSettings, stopped: asyncio.Event
) -> Identity | None:
    """Who this data directory belongs to; a new one is given an identity. There is no formatting step: nodes that are
    told of the same voters come to the same cluster id by themselves, and one that joins asks for it. None: it was
    stopped before there was an answer."""
    voters = settings["controller.quorum.voters"]
    quorum = tuple(_parse_voter(voter) for voter in voters)
    bootstrap = tuple(_parse_server(server) for server in settings["controller.quorum.bootstrap.servers"])
    if quorum and bootstrap:
        raise StartRefused(
            "controller.quorum.voters and controller.quorum.bootstrap.servers exclude each other: the first names the "
            "voters of a cluster for good, the second is for joining one whose voters may change."
        )
    try:
        found = parse_meta_properties(disk.read_file(META_PROPERTIES_FILE), META_PROPERTIES_FILE)
    except MissingFile:
        if quorum:
            cluster_id = _id_of(",".join(voters))
        elif bootstrap:
            asked = await ask_cluster_id(bootstrap, f"node-{config.node_id}", stopped)
            if asked is None:
                return None
            cluster_id = asked
        else:
            cluster_id = _random_id(random)
        found = MetaProperties(cluster_id, config.node_id, _random_id(random))
        disk.write_file(META_PROPERTIES_FILE, format_meta_properties(found))
    if found.node_id != config.node_id:
        raise StartRefused(
            f"{config.data_directory} belongs to node {found.node_id}, not {config.node_id}. "
            "Start it with its own id, or choose another directory with --data."
        )
    directory_id = UUID(bytes=base64.urlsafe_b64decode(found.directory_id + "=="))
    return Identity(found.node_id, found.cluster_id, directory_id, quorum, bootstrap)


def _parse_voter(text: str) -> tuple[int, str, int]:
    found = re.fullmatch(r"(\d+)@(.+):(\d+)", text)
    if found is None:
        raise StartRefused(f"controller.quorum.voters must be like 1@host:9092,2@host:9093, not {text!r}")
    return int(found[1]), found[2].strip("[]"), int(found[3])


def _parse_server(text: str) -> tuple[str, int]:
    found = re.fullmatch(r"(.+):(\d+)", text)
    if found is None:
        raise StartRefused(f"controller.quorum.bootstrap.servers must be like host:9092,host:9093, not {text!r}")
    return found[1].strip("[]"), int(found[2])


def _quorum_address(identity: Identity, bound: tuple[str, int]) -> tuple[str, int]:
    """Where the other voters find this node. What it is bound to may be all addresses, which is none to connect to."""
    return next(((host, port) for node_id, host, port in identity.voters if node_id == identity.node_id), bound)


def _id_of(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:16]).decode().rstrip("=")


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
