"""The HTTP process of `penstock up`: how it is started (HttpChild), and what runs in it (main)."""

import json
import socket
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.cli.children import Child, NodeChild
from penstock.http.options import CONSOLE_PORT, REGISTRY_PORT, REST_PORT, HttpOptions


class HttpChild(Child):
    def __init__(self, nodes: Sequence[NodeChild], host: str, port: int, directory: Path, log_format: str) -> None:
        """`port` serves everything; 0 for the conventional ports."""
        self.options = HttpOptions(
            ",".join(node.address for node in nodes),
            host,
            port or CONSOLE_PORT,
            port or REGISTRY_PORT,
            port or REST_PORT,
            broker_metrics={str(node.options.node_id): node.metrics_address for node in nodes if node.metrics_address},
        )
        address = f"{host}:{self.options.console_port}"
        super().__init__("http", "penstock.cli.http_child", asdict(self.options), address, directory, log_format)

    def announcement(self) -> str:
        options = self.options
        return (
            f"  console   http://{options.host}:{options.console_port}/\n"
            f"  registry  http://{options.host}:{options.registry_port}\n"
            f"  REST      http://{options.host}:{options.rest_port}/openapi"
        )


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    channel = socket.socket(fileno=options.pop("channel_fd"))
    from penstock.cli.node import end_with_parent, log_to

    threading.Thread(target=end_with_parent, args=(channel,), daemon=True).start()
    log_to(options.pop("log_path"), options.pop("log_format"))
    from penstock.http.process import HttpRefused, run

    def tell(**message: str) -> None:
        channel.sendall(json.dumps(message).encode() + b"\n")

    parsed = HttpOptions(**options)
    try:
        run(parsed, on_ready=lambda: tell(ready=f"{parsed.host}:{parsed.console_port}"))
    except HttpRefused as refusal:
        tell(refused=str(refusal))
        sys.exit(1)


if __name__ == "__main__":
    main()
