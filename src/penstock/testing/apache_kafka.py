"""Where Apache Kafka's own jars are, for tests that let Kafka judge our bytes. `scripts/kafka-jars` fetches them."""

import os
import shutil
from pathlib import Path

_VARIABLE = "PENSTOCK_KAFKA_JARS"
_REPOSITORY = Path(__file__).resolve().parents[3]


def kafka_jars() -> str | None:
    """A classpath with all of them (`<directory>/*`), or None when there are none or no Java to run them."""
    if shutil.which("java") is None:
        return None
    named = os.environ.get(_VARIABLE)
    directory = Path(named) if named else _REPOSITORY / ".cache" / "kafka-jars"
    if not any(directory.glob("kafka_2.13-*.jar")):
        return None
    return f"{directory}/*"
