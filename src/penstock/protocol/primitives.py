"""The few wire primitives that all codecs share."""

from penstock.base.ports import Bytes


class Malformed(ValueError):
    """The bytes are not a message of the version they claim to be."""


def read_uvarint(data: Bytes, position: int) -> tuple[int, int]:
    """(value, position after it); at most five bytes, as Kafka's unsigned varint."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
    raise Malformed("a varint is longer than five bytes")


def made_text(name: bytes) -> bytes:
    """The answer repeats a name as text: what is none in it is replaced, as Kafka does. No topic has such a name."""
    return name.decode("utf-8", "replace").encode()


def skip_tagged_fields(data: Bytes, position: int) -> int:
    """The position after a tag section whose fields do not matter here."""
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise Malformed("a tagged field is longer than its message")
    return position


_SMALL = [bytes([value]) for value in range(0x80)]


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
