"""What classic consumers put into the opaque bytes of JoinGroup and SyncGroup: subscription and assignment.

Only groups that mix both protocols look into them. Each opens with its version; later versions than those known here
are read as the latest known, whatever bytes follow, as all of Kafka's clients do.
"""

import struct
from collections.abc import Collection, Mapping
from struct import Struct as Packer
from typing import NamedTuple
from uuid import UUID

from penstock.coordinator.group.requests import TopicsView

_INT16 = Packer(">h")
_INT32 = Packer(">i")
_OWNED_PARTITIONS_SINCE = 1
_RACK_SINCE = 3
_VERSION_MAX = 3


class MalformedProtocol(ValueError):
    """The bytes are no subscription or assignment: the member is no consumer, whatever it says."""


class Subscription(NamedTuple):
    topic_names: frozenset[str]
    owned: dict[str, list[int]]
    """The partitions that the member says it has, by topic name."""
    rack_id: str | None


class Assignment(NamedTuple):
    partitions: dict[str, list[int]]
    has_user_data: bool


class _Reader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def _number(self, packer: Packer) -> int:
        value: int = packer.unpack_from(self._data, self._position)[0]
        self._position += packer.size
        return value

    def count(self) -> int:
        """The length of a list; longer than the bytes that are left it cannot be."""
        count = self.int32()
        if count > len(self._data) - self._position:
            raise MalformedProtocol(f"a list of {count} does not fit")
        return max(count, 0)

    def taken(self, length: int) -> bytes | None:
        if length < 0:
            return None
        start, self._position = self._position, self._position + length
        if self._position > len(self._data):
            raise MalformedProtocol(f"{length} bytes are not there")
        return self._data[start : self._position]

    def text(self) -> str | None:
        data = self.taken(self.int16())
        return None if data is None else data.decode()

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count()):
            topic = self.text() or ""
            found.setdefault(topic, []).extend(self.int32() for _ in range(self.count()))
        return found


def protocol_version(data: bytes) -> int:
    """The version that the member speaks; assignments for it are written in that."""
    version = _Reader(data).int16() if len(data) >= _INT16.size else 0
    return min(max(version, 0), _VERSION_MAX)


def read_subscription(data: bytes) -> Subscription:
    """Raises MalformedProtocol."""
    reader = _Reader(data)
    try:
        version = reader.int16()
        topic_names = frozenset(reader.text() or "" for _ in range(reader.count()))
        reader.taken(reader.int32())
        owned = reader.partitions() if version >= _OWNED_PARTITIONS_SINCE else {}
        rack_id = None
        if version >= _RACK_SINCE:
            reader.int32()
            rack_id = reader.text()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedProtocol(str(error)) from error
    return Subscription(topic_names, owned, rack_id or None)


def read_assignment(data: bytes) -> Assignment:
    """Raises MalformedProtocol."""
    if not data:
        return Assignment({}, has_user_data=False)
    reader = _Reader(data)
    try:
        reader.int16()
        partitions = reader.partitions()
        user_data = reader.taken(reader.int32())
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedProtocol(str(error)) from error
    return Assignment(partitions, has_user_data=bool(user_data))


def write_assignment(partitions: Mapping[UUID, Collection[int]], version: int, topics: TopicsView) -> bytes:
    """Partitions of topics that are gone are left out: the member could do nothing with them."""
    named = [(name, sorted(partitions[topic_id])) for topic_id in partitions if (name := topics.topic_name(topic_id))]
    out = bytearray(_INT16.pack(version) + _INT32.pack(len(named)))
    for name, numbers in named:
        text = name.encode()
        out += _INT16.pack(len(text)) + text + struct.pack(f">{1 + len(numbers)}i", len(numbers), *numbers)
    return bytes(out + _INT32.pack(-1))


def by_topic_id(partitions: Mapping[str, Collection[int]], topics: TopicsView) -> dict[UUID, Collection[int]]:
    """Without topics that are not there."""
    return {
        topic_id: numbers
        for name, numbers in partitions.items()
        if numbers and (topic_id := topics.topic_id(name)) is not None
    }
