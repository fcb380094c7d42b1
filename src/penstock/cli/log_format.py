"""How log lines look: a sentence for people, or one JSON object a line for machines."""

import json
import logging
import sys
import time

from penstock.cli.failures import Misused

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """time, level, logger, message; `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def formatter(name: str) -> logging.Formatter:
    """Raises Misused."""
    if name not in ("text", "json"):
        raise Misused(f"--log-format is text or json, not '{name}'")
    return JsonFormatter() if name == "json" else logging.Formatter(TEXT)


def log_to_stderr(name: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(name))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
