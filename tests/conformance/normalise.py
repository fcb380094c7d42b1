"""Two brokers' answers made comparable: ids, times and addresses become words, the rest stays."""

import dataclasses
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from penstock.protocol.batch import HEADER_BYTES, LOG_APPEND_TIME, read_header
from penstock.protocol.records import iterate_records

Difference = tuple[str, Any, Any]
_ABSENT = "(absent)"


def plain(message: Any, topic_names: Mapping[uuid.UUID, str]) -> Any:
    """A decoded answer as dicts and lists. `topic_names` are those whose ids are known."""
    if dataclasses.is_dataclass(message):
        return {
            field.name: _plain_field(field.name, getattr(message, field.name), topic_names)
            for field in dataclasses.fields(message)
        }
    if isinstance(message, tuple):
        return _in_order([plain(item, topic_names) for item in message])
    if isinstance(message, timedelta):
        return round(message.total_seconds() * 1000)
    return message


def _plain_field(name: str, value: Any, topic_names: Mapping[uuid.UUID, str]) -> Any:
    if name == "records":
        return describe_batches(value)
    if name == "error_code":
        return value.name
    rule = _RULES.get(name)
    if rule is not None:
        return rule(value)
    if name == "topic_id":
        return topic_names.get(value, "an unknown id") if value is not None else None
    return plain(value, topic_names)


def _in_order(items: list[Any]) -> list[Any]:
    """Partitions by their index: Kafka's hash tables have them in any order."""
    for name in ("partition_index", "index", "partition"):
        if all(isinstance(item, dict) and name in item for item in items):
            return sorted(items, key=lambda item: int(item[name]))
    return items


def _presence(word: str) -> Callable[[Any], Any]:
    """Keeps none, empty, zero and -1 apart from anything else."""

    def rule(value: Any) -> Any:
        return value if value in (None, "", 0, -1) else word

    return rule


def _log_append_time(value: datetime | None) -> str | None:
    return None if value is None else "a time"


# Sorted by what they are about, since their order means nothing.
def _by_name(items: Any) -> Any:
    return None if items is None else sorted((plain(item, {}) for item in items), key=lambda item: str(item["name"]))


_RULES: dict[str, Callable[[Any], Any]] = {
    "error_message": _presence("a message"),
    "batch_index_error_message": _presence("a message"),
    "host": _presence("a host"),
    "port": _presence("a port"),
    "cluster_id": _presence("an id"),
    "session_id": _presence("an id"),
    "producer_id": lambda producer_id: "an id" if producer_id >= 0 else producer_id,
    "log_dir": _presence("a directory"),
    "total_bytes": _presence("many"),
    "usable_bytes": _presence("many"),
    "finalized_features_epoch": _presence("an epoch"),
    "log_append_time": _log_append_time,
    "configs": _by_name,
    "supported_features": _by_name,
    "finalized_features": _by_name,
}


def describe_batches(data: bytes | None) -> Any:
    """Batches field by field and record by record. A checksum is checked by reading, and left out: it covers times."""
    if data is None:
        return None
    return list(_batches(data))


def _batches(data: bytes) -> Iterator[Any]:
    position = 0
    while position < len(data):
        if len(data) - position < HEADER_BYTES:
            yield "a batch cut short"
            return
        header = read_header(data, position)
        if position + header.size > len(data):
            yield "a batch cut short"
            return
        batch = data[position : position + header.size]
        is_stamped = bool(header.attributes & LOG_APPEND_TIME)
        described = header._asdict()
        del described["crc"]
        if is_stamped:
            described["max_timestamp"] = "a time"
        described["producer_id"] = "an id" if header.producer_id >= 0 else -1
        if header.codec:
            # Compressors differ in their bytes; what counts is what comes out.
            del described["batch_length"]
        described["records"] = [
            (record.offset, "a time" if is_stamped else record.timestamp, record.key, record.value, record.headers)
            for record in iterate_records(batch, header)
        ]
        yield described
        position += header.size


def differences(expected: Any, actual: Any, path: str = "") -> Iterator[Difference]:
    """(path, expected, actual) wherever they differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for key in expected | actual:
            yield from differences(expected.get(key, _ABSENT), actual.get(key, _ABSENT), f"{path}.{key}")
    elif isinstance(expected, list) and isinstance(actual, list):
        keyed = _keyed(expected), _keyed(actual)
        if keyed[0] is not None and keyed[1] is not None:
            yield from differences(keyed[0], keyed[1], path)
        elif len(expected) != len(actual):
            yield path, expected, actual
        else:
            for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(one, other, f"{path}[{index}]")
    elif expected != actual:
        yield path, expected, actual


def _keyed(items: list[Any]) -> dict[str, Any] | None:
    """Lists of settings and of APIs by their names, so that one that is missing does not blame its successors."""
    for name in ("name", "api_key"):
        keys = [item.get(name) if isinstance(item, dict) else None for item in items]
        if items and None not in keys and len(set(keys)) == len(keys):
            return {f"<{key}>": item for key, item in zip(keys, items, strict=True)}
    return None
