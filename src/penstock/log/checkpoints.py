"""Kafka's small text files, parsed and formatted; reading and writing them is the caller's.

Checkpoints have a version line (0), a line with the number of entries, then one entry a line:
    topic partition offset   in {recovery-point,log-start,replication,cleaner}-offset-checkpoint
    epoch start_offset       in leader-epoch-checkpoint
`partition.metadata` ties a partition's directory to its topic id; `meta.properties` ties a data directory to its node.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
CLEANER_OFFSETS_FILE = "cleaner-offset-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"
META_PROPERTIES_FILE = "meta.properties"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"

TopicPartition = tuple[str, int]


class BadCheckpoint(ValueError):
    """A text file of the data directory does not hold what it must; the message says which, and what to do."""


def format_checkpoint(entries: Iterable[tuple[Any, ...]]) -> bytes:
    lines = [" ".join(map(str, entry)) for entry in entries]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def parse_checkpoint(data: bytes, path: str, columns: tuple[Callable[[str], Any], ...]) -> list[tuple[Any, ...]]:
    """The entries, each column made by its function. An empty file is one that was never written, as in Kafka."""
    lines = _text(data, path).splitlines()
    if len(lines) < 2:
        if not lines or lines[0] == "0":
            return []
        raise BadCheckpoint(_complaint(path, f"its first line is {lines[0]!r}, not the version 0"))
    if lines[0] != "0":
        raise BadCheckpoint(_complaint(path, f"its version is {lines[0]!r}; only 0 is known"))
    entries = []
    for line in lines[2:]:
        parts = line.split()
        if len(parts) != len(columns):
            raise BadCheckpoint(_complaint(path, f"the line {line!r} has not {len(columns)} columns"))
        try:
            entries.append(tuple(column(part) for column, part in zip(columns, parts, strict=True)))
        except ValueError as error:
            raise BadCheckpoint(_complaint(path, f"the line {line!r} holds something else than numbers")) from error
    if lines[1] != str(len(entries)):
        raise BadCheckpoint(_complaint(path, f"it announces {lines[1]} entries and holds {len(entries)}"))
    return entries


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    return format_checkpoint((topic, partition, offset) for (topic, partition), offset in offsets.items())


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    return {(topic, partition): offset for topic, partition, offset in parse_checkpoint(data, path, (str, int, int))}


def format_topic_id(topic_id: UUID) -> str:
    """As Kafka prints it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> UUID:
    """Raises ValueError."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not 16 bytes in base64") from error


def format_partition_metadata(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes, path: str) -> UUID:
    values = dict(line.split(": ", 1) for line in _text(data, path).splitlines() if ": " in line)
    if values.get("version") != "0":
        raise BadCheckpoint(_complaint(path, "it has no line `version: 0`"))
    try:
        return parse_topic_id(values["topic_id"].strip())
    except KeyError as error:
        raise BadCheckpoint(_complaint(path, "it names no topic_id")) from error
    except ValueError as error:
        raise BadCheckpoint(_complaint(path, f"its topic_id is no topic id: {error}")) from error


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose data directory this is."""

    cluster_id: str
    node_id: int
    directory_id: str


def format_meta_properties(meta: MetaProperties) -> bytes:
    lines = (
        f"cluster.id={meta.cluster_id}",
        f"directory.id={meta.directory_id}",
        f"node.id={meta.node_id}",
        "version=1",
    )
    return "".join(line + "\n" for line in lines).encode()


def parse_meta_properties(data: bytes, path: str) -> MetaProperties:
    values: dict[str, str] = {}
    for line in _text(data, path).splitlines():
        name, separator, value = line.partition("=")
        if separator and not line.startswith(("#", "!")):
            values[name.strip()] = value.strip()
    if values.get("version") != "1":
        raise BadCheckpoint(_complaint(path, f"its version is {values.get('version')!r}; only 1 is known"))
    try:
        return MetaProperties(values["cluster.id"], int(values["node.id"]), values["directory.id"])
    except KeyError as error:
        raise BadCheckpoint(_complaint(path, f"it names no {error.args[0]}")) from error
    except ValueError as error:
        raise BadCheckpoint(_complaint(path, f"its node.id is {values['node.id']!r}, not a number")) from error


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadCheckpoint(_complaint(path, "it is not text")) from error


def _complaint(path: str, what: str) -> str:
    return f"{path} cannot be read: {what}. Restore the file, or move it away to have it made anew."
