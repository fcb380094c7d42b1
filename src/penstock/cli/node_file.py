"""The file that says what a node on a real host is: text in, a checked description out.

node_id = 1
roles = ["broker", "controller"]
listen = "0.0.0.0:9092"
advertised = "kafka-1.example.com:9092"
voters = ["1@kafka-1.example.com:9092", "2@kafka-2.example.com:9092", "3@kafka-3.example.com:9092"]
# Instead of voters, for a node that joins a cluster: join = ["kafka-1.example.com:9092"]
rack = "room-a"
data = "/var/lib/penstock"
metrics_port = 9644

[settings]
"log.retention.hours" = 168
"""

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cli.failures import Failed

BROKER, CONTROLLER = "broker", "controller"
_KEYS = {
    "node_id": "a whole number, as 1",
    "roles": 'a list of "broker" and "controller"',
    "listen": 'a text, as "0.0.0.0:9092"',
    "advertised": 'a text, as "kafka-1.example.com:9092"',
    "voters": 'a list of texts, as "1@kafka-1.example.com:9092"',
    "join": 'a list of texts, as "kafka-1.example.com:9092"',
    "rack": "a text",
    "data": 'a text, as "/var/lib/penstock"',
    "metrics_port": "a whole number, as 9644",
    "settings": "a table of settings, as docs/settings.md has them",
}
_NEEDED = ("node_id", "listen", "data")
# What has a key of its own may not be said twice.
_SAID_ELSEWHERE = {
    "node.id": "node_id",
    "broker.id": "node_id",
    "process.roles": "roles",
    "listeners": "listen",
    "advertised.listeners": "advertised",
    "controller.quorum.voters": "voters",
    "controller.quorum.bootstrap.servers": "join",
    "broker.rack": "rack",
    "log.dirs": "data",
    "log.dir": "data",
}
_VOTER = re.compile(r"(\d+)@(.+):(\d+)")


class BadNodeFile(Failed):
    """What is wrong with the file, all of it, a line each."""


@dataclass(frozen=True)
class NodeFile:
    node_id: int
    host: str
    port: int
    data_directory: str
    overrides: Mapping[str, str]
    metrics_port: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_node_file(path: Path) -> NodeFile:
    """Raises Failed."""
    try:
        text = path.read_bytes().decode()
    except OSError as error:
        raise Failed(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise Failed(f"{path} is no text in UTF-8") from error
    return parse_node_file(text, str(path))


def parse_node_file(text: str, name: str) -> NodeFile:
    """Raises BadNodeFile."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadNodeFile(f"{name} is no TOML: {error}") from error
    problems = _problems(document)
    if problems:
        raise BadNodeFile("\n  ".join([f"{name} does not describe a node:", *problems]))
    host, port = _address(document["listen"]) or ("", 0)
    return NodeFile(
        document["node_id"], host, port, document["data"], _overrides(document), document.get("metrics_port")
    )


def _overrides(document: Mapping[str, Any]) -> dict[str, str]:
    overrides = {setting: _text(value) for setting, value in document.get("settings", {}).items()}
    if voters := document.get("voters"):
        # In one order on all nodes: the cluster's id is made of this text.
        overrides["controller.quorum.voters"] = ",".join(sorted(voters, key=lambda voter: int(voter.partition("@")[0])))
    if "join" in document:
        overrides["controller.quorum.bootstrap.servers"] = ",".join(document["join"])
    if "advertised" in document:
        overrides["advertised.listeners"] = f"PLAINTEXT://{document['advertised']}"
    if "rack" in document:
        overrides["broker.rack"] = document["rack"]
    overrides["process.roles"] = ",".join(document.get("roles", (BROKER, CONTROLLER)))
    return overrides


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(_text, value)) if isinstance(value, list) else str(value)


def _problems(document: Mapping[str, Any]) -> list[str]:
    problems = [_unknown(key) for key in document if key not in _KEYS]
    problems += [f"{key} is missing: give {_KEYS[key]}" for key in _NEEDED if key not in document]
    ill_typed = [key for key, value in document.items() if key in _KEYS and not _has_right_type(key, value)]
    problems += [f"{key} must be {_KEYS[key]}" for key in ill_typed]
    for name in document.get("settings", {}) if "settings" not in ill_typed else ():
        if name in _SAID_ELSEWHERE:
            problems.append(f"[settings] {name} is said by the key {_SAID_ELSEWHERE[name]} at the top of the file")
    if problems:
        return problems
    for key in ("listen", "advertised"):
        if key in document and _address(document[key]) is None:
            problems.append(f"{key} must be HOST:PORT, not {document[key]!r}")
    listen = _address(document["listen"])
    if listen is not None and listen[0] in ("0.0.0.0", "::") and "advertised" not in document:
        problems.append(
            f"listen is {document['listen']}, where no client can connect: say with advertised what to tell"
        )
    return problems + _quorum_problems(document)


def _has_right_type(key: str, value: Any) -> bool:
    if key in ("node_id", "metrics_port"):
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if key in ("roles", "voters", "join"):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if key == "settings":
        return isinstance(value, dict) and not any(isinstance(item, dict) for item in value.values())
    return isinstance(value, str) and bool(value)


def _quorum_problems(document: Mapping[str, Any]) -> list[str]:
    roles = document.get("roles", [BROKER, CONTROLLER])
    voters = document.get("voters", [])
    problems = [f"there is no role {role!r}: take broker, controller or both" for role in roles if role not in _ROLES]
    found = {voter: _VOTER.fullmatch(voter) for voter in voters}
    problems += [f"a voter is ID@HOST:PORT, not {voter!r}" for voter, match in found.items() if match is None]
    join = document.get("join", [])
    problems += [f"join has HOST:PORT, not {server!r}" for server in join if _address(server) is None]
    if voters and join:
        problems.append("voters and join exclude each other: voters are fixed, and who joins is made a voter later")
    if problems:
        return problems
    if not roles:
        return ["roles is empty: take broker, controller or both"]
    if BROKER not in roles and not voters and not join:
        return ["a node that only controls needs voters, itself and those who decide with it, or a cluster to join"]
    ids = [int(match[1]) for match in found.values() if match is not None]
    node_id = document["node_id"]
    if len(set(ids)) < len(voters):
        problems.append(f"voters names a node twice: {', '.join(voters)}")
    if CONTROLLER in roles and voters and node_id not in ids:
        problems.append(f'node {node_id} is a controller, but not in voters: add it, or set roles = ["broker"]')
    if CONTROLLER not in roles and not voters and not join:
        problems.append("a broker that is no controller needs voters, who control it, or a cluster to join")
    if CONTROLLER not in roles and node_id in ids:
        problems.append(f'node {node_id} is in voters: its roles must have "controller"')
    return problems


_ROLES = (BROKER, CONTROLLER)


def _unknown(key: str) -> str:
    nearest = difflib.get_close_matches(key, _KEYS, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"the keys are {', '.join(_KEYS)}"
    if "." in key or key in _SAID_ELSEWHERE:
        hint = "Kafka's settings go below [settings], in quotes"
    return f"there is no key {key}; {hint}"


def _address(text: str) -> tuple[str, int] | None:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536):
        return None
    return host.strip("[]"), int(port)
