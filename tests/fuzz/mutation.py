"""Bytes made wrong, the same way for the same chance."""

import random

# Values that length and count fields are broken with.
EXTREMES = (
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x00\x00\x00", b"\xff\xff", b"\x7f\xff",
    b"\x80\x00", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x00", b"\x01", b"\xff",
    b"\x7f\xff\xff\xff\xff\xff\xff\xff", b"\x80\x00\x00\x00\x00\x00\x00\x00", b"../..", b"\xc3\x28",
)  # fmt: skip


def mutated(data: bytes, chance: random.Random, start: int = 0, others: bytes = b"") -> bytes:
    """Some bytes overwritten, inserted, removed, moved, or the end cut off; `others` is what else may be spliced in."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5))):
        position = chance.randint(start, max(start, len(changed) - 1))
        match chance.randrange(7):
            case 0:
                extreme = chance.choice(EXTREMES)
                changed[position : position + len(extreme)] = extreme
            case 1:
                changed[position:position] = chance.choice(EXTREMES)
            case 2:
                del changed[position : position + chance.randint(1, 8)]
            case 3:
                if position < len(changed):
                    changed[position] ^= 1 << chance.randrange(8)
            case 4:
                if chance.random() < 0.3:
                    del changed[position:]
            case 5:
                changed += changed[position : position + chance.randint(1, 40)]
            case 6:
                if others:
                    taken = chance.randrange(len(others))
                    changed[position:position] = others[taken : taken + chance.randint(1, 40)]
    return bytes(changed)
