"""lz4 frames unpacked straight into a buffer hold what the frame library finds in them."""

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.compression import LZ4, CorruptCompression, compress, decompress, unpack_lz4_into

ROOM = 1 << 20

contents = st.builds(
    lambda parts, times: b"".join(parts) * times, st.lists(st.binary(max_size=3_000), max_size=6), st.integers(0, 40)
)


def unpacked(frame: bytes, room: int = ROOM) -> bytes | None:
    out = bytearray(room)
    size = unpack_lz4_into(memoryview(frame), memoryview(out))
    return None if size is None else bytes(out[:size])


def by_library(frame: bytes) -> bytes | str:
    try:
        return decompress(LZ4, frame, ROOM)
    except CorruptCompression as error:
        return str(error).rpartition("ERROR_")[2]


@settings(deadline=None)
@given(content=contents)
def test_what_this_project_packs_is_unpacked_straight(content: bytes) -> None:
    assert unpacked(bytes(compress(LZ4, content))) == content


@settings(deadline=None)
@given(
    content=contents,
    block_size=st.sampled_from([4, 5, 6, 7]),
    linked=st.booleans(),
    checksum=st.booleans(),
    block_checksum=st.booleans(),
    store_size=st.booleans(),
)
def test_frames_of_every_kind_are_unpacked_or_left_to_the_library(
    content: bytes, block_size: int, linked: bool, checksum: bool, block_checksum: bool, store_size: bool
) -> None:
    frame = lz4.frame.compress(
        content,
        block_size=block_size,
        block_linked=linked,
        content_checksum=checksum,
        block_checksum=block_checksum,
        store_size=store_size,
    )
    # The library writes what fits into one block as a frame of blocks that stand alone.
    needs_library = checksum or block_checksum or lz4.frame.get_frame_info(frame)["block_linked"]
    assert unpacked(frame) == (None if needs_library else content)
    assert decompress(LZ4, frame, ROOM) == content


@settings(deadline=None)
@given(content=contents, store_size=st.booleans(), data=st.data())
def test_damaged_frames_are_never_unpacked_to_what_the_library_refuses(
    content: bytes, store_size: bool, data: st.DataObject
) -> None:
    frame = bytearray(lz4.frame.compress(content, block_linked=False, store_size=store_size))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(frame[: data.draw(st.integers(0, len(frame)))])
    found = unpacked(cut)
    # The header's checksum is the one thing that only the library looks at.
    assert found is None or by_library(cut) in (found, "headerChecksum_invalid")


@pytest.mark.parametrize("room", [0, 1, 99_999])
def test_too_little_room_is_left_to_the_library(room: int) -> None:
    for content in (bytes(100_000), bytes(range(256)) * 391):
        assert unpacked(bytes(compress(LZ4, content)), room) is None
