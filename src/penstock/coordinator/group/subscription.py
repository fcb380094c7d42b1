"""The part of a classic consumer's subscription that the coordinator looks into: its topics.

A subscription is opaque to the classic protocol. Only for the offsets that expire or may be deleted does the
coordinator read the topics out of it, by version 0 of the schema, which every later version begins with.
"""

import struct
from struct import Struct as Packer

_INT16 = Packer(">h")
_INT32 = Packer(">i")


def subscribed_topics(subscription: bytes) -> set[str] | None:
    """None where the bytes are no subscription: other programs than consumers may call themselves `consumer`."""
    try:
        (version,) = _INT16.unpack_from(subscription, 0)
        (count,) = _INT32.unpack_from(subscription, 2)
        # Each topic takes two bytes at least, so a count beyond that is no count.
        if version < 0 or not 0 <= count <= len(subscription) // 2:
            return None
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = _INT16.unpack_from(subscription, position)
            end = position + 2 + length
            if length < 0 or end > len(subscription):
                return None
            topics.add(subscription[position + 2 : end].decode())
            position = end
    except (ValueError, struct.error):
        return None
    return topics
