"""The process of one node, a child of `penstock up`. It imports no typer, rich or confluent-kafka: fast starts count.

It gets its options as JSON, and a socket whose other end `up` holds. Over that it says, in lines of JSON, that it is
ready or why it refuses to start. The socket closing means that `up` is gone, however it went: the node ends too.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker.node import OpenDisk

# How long a node whose parent vanished may take to close its log properly.
ORPHAN_STOP_SECONDS_MAX = 20
LOG_BYTES_MAX = 10 * 1024 * 1024
LOG_FILES_KEPT = 2


def main(open_disk: "OpenDisk | None" = None) -> None:
    """`open_disk`: tests run nodes on disks that can lose power."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    channel = socket.socket(fileno=options.pop("channel_fd"))
    threading.Thread(target=end_with_parent, args=(channel,), daemon=True).start()
    log_to(options.pop("log_path"), options.pop("log_format"))
    from penstock.broker.node import NodeConfig, StartRefused, run
    from penstock.broker.ports import RealDisk

    def tell(**message: str) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    try:
        run(
            NodeConfig(**options),
            on_ready=lambda address: tell(ready=address),
            on_metrics=lambda address: tell(metrics=address),
            open_disk=open_disk or RealDisk,
        )
    except StartRefused as refusal:
        tell(refused=str(refusal))
        sys.exit(1)


def end_with_parent(channel: socket.socket) -> None:
    # A parent that was killed before it had read what we told resets the channel.
    with contextlib.suppress(ConnectionError):
        channel.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_STOP_SECONDS_MAX)
    os._exit(1)


def log_to(path: str, log_format: str) -> None:
    import logging
    from logging.handlers import RotatingFileHandler

    from penstock.cli.log_format import formatter

    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES_MAX, backupCount=LOG_FILES_KEPT)
    handler.setFormatter(formatter(log_format))
    logging.basicConfig(handlers=[handler], level=logging.INFO)


if __name__ == "__main__":
    main()
