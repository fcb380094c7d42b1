"""How Protobuf values say which message of their schema they are, in Confluent's framing."""

from penstock.protocol.primitives import Malformed, read_uvarint


def message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes of the message, from the outermost in (zigzag varints, the count first), and where they end. Raises
    Malformed."""
    try:
        count, position = _read_zigzag(data, 0)
        if not count:
            # Short for the first message.
            return (0,), position
        path = []
        for _ in range(count):
            index, position = _read_zigzag(data, position)
            path.append(index)
    except IndexError:
        raise Malformed("the path to its message is cut off") from None
    if not path or min(path) < 0:
        raise Malformed("the path to its message makes no sense")
    return tuple(path), position


def _read_zigzag(data: bytes, position: int) -> tuple[int, int]:
    number, position = read_uvarint(data, position)
    return number >> 1 ^ -(number & 1), position
