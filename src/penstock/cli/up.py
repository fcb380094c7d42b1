"""penstock up: a cluster on this machine, in the foreground."""

import selectors
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.children import Child, NodeChild, NodeOptions
from penstock.cli.demo_child import DemoChild
from penstock.cli.failures import EXIT_FAILED, Failed
from penstock.cli.http import HttpPort, LogFormat
from penstock.cli.http_child import HttpChild
from penstock.cli.log_format import formatter
from penstock.cli.options import NONE_GIVEN, parse_pairs
from penstock.cli.printing import bold, note, say

HOST = "127.0.0.1"
STOP_SECONDS_MAX = 30.0
KILL_SECONDS_MAX = 5.0
HTTP_STOP_SECONDS_MAX = 8.0
METRICS_PORT = 9644


def up(
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=1, metavar="NODES", help="How many nodes.")] = 1,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the data is, and stays.")] = Path("data"),
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=1, max=65535, help="Node i listens on PORT+i-1.")
    ] = 9092,
    http_port: HttpPort = 0,
    no_http: Annotated[
        bool, typer.Option("--no-http", help="No console (8080), schema registry (8081), REST API (8082).")
    ] = False,
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port",
            metavar="P",
            min=0,
            max=65535,
            show_default=False,
            help="Node i serves its metrics on P+i-1; by default 9644, and nowhere with --no-http.",
        ),
    ] = 0,
    log_format: LogFormat = "text",
    no_demo: Annotated[
        bool, typer.Option("--no-demo", help="Only the cluster, without the orders and the Spark pipeline.")
    ] = False,
    overrides: Annotated[
        list[str], typer.Option("-X", metavar="NAME=VALUE", help="A broker setting; may be given several times.")
    ] = NONE_GIVEN,
) -> None:
    """Start a cluster here, in the foreground; Ctrl-C stops it.

    Needs no configuration file and no formatting. Prints `ready` and the addresses once clients can connect.
    """
    # The demo writes exactly once, which takes two-phase commits (KIP-939).
    settings = {} if no_demo else {"transaction.two.phase.commit.enable": "true"}
    settings |= parse_pairs(overrides, "-X")
    formatter(log_format)
    directory = _made(data)
    if nodes > 1:
        voters = ",".join(f"{node_id}@{HOST}:{port + node_id - 1}" for node_id in range(1, nodes + 1))
        settings = {"controller.quorum.voters": voters, **settings}
    children = []
    for node_id in range(1, nodes + 1):
        options = NodeOptions(
            node_id,
            str(directory / f"node-{node_id}"),
            HOST,
            port + node_id - 1,
            settings,
            _metrics_port(metrics_port, node_id, is_default=not no_http, is_any=http_port != 0),
        )
        children.append(NodeChild(options, directory, log_format))
    start_http = None if no_http else lambda: HttpChild(children, HOST, http_port, directory, log_format)
    exit_code = Supervisor(children, start_http, None if no_demo else directory).run()
    if exit_code:
        raise typer.Exit(exit_code)


def _metrics_port(wanted: int, node_id: int, *, is_default: bool, is_any: bool) -> int | None:
    """0 is any free port: with one port for all of HTTP, metrics are there too and this one is nobody's business."""
    if wanted:
        return wanted + node_id - 1
    if not is_default:
        return None
    return 0 if is_any else METRICS_PORT + node_id - 1


def _made(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True)
        probe = data / ".penstock-can-write"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise Failed(
            f"cannot keep data in {data}: {(error.strerror or str(error)).lower()}. Name another directory with --data."
        ) from error
    return data.absolute()


class Supervisor:
    """Waits for what comes first: a word from a child, its end, a signal. Nothing is polled.

    HTTP starts once the nodes are ready, so that nobody waits for it, and ends before they do, so that its consumers
    can still leave their groups. The cluster goes on without it if need be."""

    def __init__(
        self,
        nodes: list[NodeChild],
        start_http: Callable[[], HttpChild] | None,
        demo_directory: Path | None = None,
    ) -> None:
        self._alive: set[Child] = set(nodes)
        self._nodes = nodes
        self._start_http = start_http
        self._http: HttpChild | None = None
        self._selector = selectors.DefaultSelector()
        self._stop_before_s: float | None = None
        self._signals = 0
        self._is_announced = False
        self._is_http_announced = False
        self._any_failed = False
        self._demo_directory = demo_directory
        self._demo: DemoChild | None = None

    def run(self) -> int:
        """Until every node ended; the exit code."""
        signal_reader, signal_writer = socket.socketpair()
        signal_writer.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(signal_writer.fileno())
        self._selector.register(signal_reader, selectors.EVENT_READ, None)
        for child in self._nodes:
            self._selector.register(child.channel, selectors.EVENT_READ, child)
        while self._alive:
            for key, _ in self._selector.select(self._patience_s()):
                if key.data is None:
                    self._on_signal(len(signal_reader.recv(64)))
                else:
                    self._on_word(key.data)
            if self._stop_before_s is not None and time.monotonic() >= self._stop_before_s:
                self._on_stop_overdue()
        signal.set_wakeup_fd(-1)
        return EXIT_FAILED if self._any_failed else 0

    def _patience_s(self) -> float | None:
        return None if self._stop_before_s is None else max(0.0, self._stop_before_s - time.monotonic())

    def _on_word(self, child: Child) -> None:
        if child.receive():
            if child is self._http:
                if child.is_ready and not self._is_http_announced:
                    self._is_http_announced = True
                    say(self._http.announcement())
            elif not self._is_announced and all(each.is_ready for each in self._nodes):
                self._announce()
            return
        self._selector.unregister(child.channel)
        self._alive.discard(child)
        is_stopping = self._stop_before_s is not None
        if not (is_stopping and child.ended_as_asked()):
            self._any_failed |= child is not self._http
            note(f"penstock: {child.obituary()}")
        child.forget()
        if child is self._http:
            self._http = None
            if is_stopping:
                self._stop_nodes()
        elif self._http is not None and self._alive == {self._http}:
            self._begin_to_stop()

    def _on_signal(self, count: int) -> None:
        self._signals += count
        if self._signals > 1:
            # Asked twice: the person does not want to wait.
            self._kill(self._alive)
            return
        note("stopping")
        if self._demo is not None:
            self._demo.stop()
        self._begin_to_stop()

    def _begin_to_stop(self) -> None:
        if self._http is None:
            self._stop_nodes()
        else:
            self._stop_before_s = time.monotonic() + HTTP_STOP_SECONDS_MAX
            self._http.stop(signal.SIGTERM)

    def _stop_nodes(self) -> None:
        self._stop_before_s = time.monotonic() + STOP_SECONDS_MAX
        for child in self._nodes:
            if child in self._alive:
                child.stop(signal.SIGTERM)

    def _on_stop_overdue(self) -> None:
        self._kill(self._alive if self._http is None else {self._http})

    def _kill(self, children: set[Child]) -> None:
        for child in children:
            recovery = "" if child is self._http else "; it will recover its log"
            note(f"penstock: {child.name} did not stop in time and is killed{recovery}")
            child.stop(signal.SIGKILL)
        self._stop_before_s = time.monotonic() + KILL_SECONDS_MAX

    def _announce(self) -> None:
        self._is_announced = True
        bootstrap = ",".join(child.address for child in self._nodes)
        say(f"{bold('ready')} {bootstrap}")
        for child in self._nodes:
            options = child.options
            say(f"  node {options.node_id}  {child.address}  data {options.data_directory}  log {child.log_path}")
        brokers = "" if bootstrap == f"{HOST}:9092" else f" --brokers {bootstrap}"
        say(
            "\nTry, in another terminal:\n"
            f"  penstock topic create greetings -p 3{brokers}\n"
            f"  echo 'hello, penstock' | penstock produce greetings{brokers}\n"
            f"  penstock consume greetings{brokers}\n"
            "Any Kafka client works too. Ctrl-C stops it; the data stays."
        )
        if self._start_http is not None:
            self._http = self._start_http()
            self._alive.add(self._http)
            self._selector.register(self._http.channel, selectors.EVENT_READ, self._http)
        if self._demo_directory is not None:
            self._demo = DemoChild(bootstrap, self._demo_directory)
