"""penstock up: a cluster on this machine, in the foreground."""

import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.children import Child, NodeOptions
from penstock.cli.failures import EXIT_FAILED, Failed, Misused
from penstock.cli.options import NONE_GIVEN, parse_pairs
from penstock.cli.printing import bold, note, say

HOST = "127.0.0.1"
STOP_SECONDS_MAX = 30.0
KILL_SECONDS_MAX = 5.0


def up(
    nodes: Annotated[int, typer.Option("-n", "--nodes", min=1, metavar="NODES", help="How many nodes.")] = 1,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where the data is, and stays.")] = Path("data"),
    port: Annotated[
        int, typer.Option("--port", metavar="P", min=1, max=65535, help="Node i listens on PORT+i-1.")
    ] = 9092,
    http_port: Annotated[
        int,
        typer.Option(
            "--http-port", metavar="P", min=1, max=65535, help="Taken for later: there is no HTTP server yet."
        ),
    ] = 8080,
    no_http: Annotated[bool, typer.Option("--no-http", help="Taken for later: there is no HTTP server yet.")] = False,
    no_demo: Annotated[bool, typer.Option("--no-demo", help="Taken for later: there is no demo yet.")] = False,
    overrides: Annotated[
        list[str], typer.Option("-X", metavar="NAME=VALUE", help="A broker setting; may be given several times.")
    ] = NONE_GIVEN,
) -> None:
    """Start a cluster here, in the foreground; Ctrl-C stops it.

    Needs no configuration file and no formatting. Prints `ready` and the addresses once clients can connect.
    """
    if nodes > 1:
        raise Misused("this version runs one node: clusters are still to come. Leave -n out.")
    settings = parse_pairs(overrides, "-X")
    directory = _made(data)
    children = []
    for node_id in range(1, nodes + 1):
        options = NodeOptions(node_id, str(directory / f"node-{node_id}"), HOST, port + node_id - 1, settings)
        children.append(Child(options, directory))
    exit_code = Supervisor(children).run()
    if exit_code:
        raise typer.Exit(exit_code)


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
    """Waits for what comes first: a word from a node, its end, a signal. Nothing is polled."""

    def __init__(self, children: list[Child]) -> None:
        self._alive = set(children)
        self._all = children
        self._selector = selectors.DefaultSelector()
        self._stop_before_s: float | None = None
        self._signals = 0
        self._is_announced = False
        self._any_failed = False

    def run(self) -> int:
        """Until every node ended; the exit code."""
        signal_reader, signal_writer = socket.socketpair()
        signal_writer.setblocking(False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(signal_writer.fileno())
        self._selector.register(signal_reader, selectors.EVENT_READ, None)
        for child in self._all:
            self._selector.register(child.channel, selectors.EVENT_READ, child)
        while self._alive:
            for key, _ in self._selector.select(self._patience_s()):
                if key.data is None:
                    self._on_signal(len(signal_reader.recv(64)))
                else:
                    self._on_word(key.data)
            if self._stop_before_s is not None and time.monotonic() >= self._stop_before_s:
                self._kill()
        signal.set_wakeup_fd(-1)
        return EXIT_FAILED if self._any_failed else 0

    def _patience_s(self) -> float | None:
        return None if self._stop_before_s is None else max(0.0, self._stop_before_s - time.monotonic())

    def _on_word(self, child: Child) -> None:
        if child.receive():
            if not self._is_announced and all(each.is_ready for each in self._all):
                self._announce()
            return
        self._selector.unregister(child.channel)
        self._alive.discard(child)
        is_stopping = self._stop_before_s is not None
        if not (is_stopping and child.ended_as_asked()):
            self._any_failed = True
            note(f"penstock: {child.obituary()}")
        child.forget()

    def _on_signal(self, count: int) -> None:
        self._signals += count
        if self._signals > 1:
            # Asked twice: the person does not want to wait.
            self._kill()
            return
        note("stopping")
        self._stop_before_s = time.monotonic() + STOP_SECONDS_MAX
        for child in self._alive:
            child.stop(signal.SIGTERM)

    def _kill(self) -> None:
        for child in self._alive:
            note(f"penstock: node {child.options.node_id} did not stop in time and is killed; it will recover its log")
            child.stop(signal.SIGKILL)
        self._stop_before_s = time.monotonic() + KILL_SECONDS_MAX

    def _announce(self) -> None:
        self._is_announced = True
        bootstrap = ",".join(child.address for child in self._all)
        say(f"{bold('ready')} {bootstrap}")
        for child in self._all:
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
