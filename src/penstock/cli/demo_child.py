"""The demo as `penstock up` sees it: a process of its own that starts when the nodes are ready and ends before them."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.cli.printing import note

# Spark takes some seconds to end by itself.
_STOP_SECONDS_MAX = 15.0


class DemoChild:
    def __init__(self, bootstrap: str, directory: Path) -> None:
        """Says why, and does nothing, where Spark is not installed."""
        self._process: subprocess.Popen[bytes] | None = None
        if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
            note("no demo: it needs Spark. pip install 'penstock[spark]' brings it; --no-demo keeps this quiet.")
            return
        demo = directory / "demo"
        demo.mkdir(exist_ok=True)
        # Spark brings processes of its own: a session for them all, so that they can be ended together.
        with (demo / "demo.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.pipeline.demo", bootstrap, str(demo)],
                stdin=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            note("penstock: the demo did not stop in time and is killed")
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._process.wait()
