"""The five codecs of record batches, bounded: a batch never unpacks to more than the caller allows.

snappy is framed as the xerial library does (what Java's clients write); plain raw snappy, which some clients send,
is read too. lz4 is the standard frame format.
"""

import struct
import zlib

import cramjam
import lz4.frame
import zstandard

from penstock.base.ports import Bytes

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_LZ4_HEADER = struct.Struct("<IBB")
_LZ4_BLOCK = struct.Struct("<I")
_LZ4_MAGIC = 0x184D2204
# Version 1, blocks that do not refer to each other, nothing else.
_LZ4_PLAIN_FLAGS = 0x60
_LZ4_CONTENT_SIZE = 0x08
_LZ4_BLOCK_BYTES = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}


class CorruptCompression(ValueError):
    """The bytes are not what the codec writes, or unpack to more than is allowed."""


def compress(codec: int, data: Bytes, level: int | None = None) -> bytes | bytearray | memoryview:
    """`level` is the codec's own scale; None is its default. snappy has none."""
    match codec:
        case 0:
            return data
        case 1:
            packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case 2:
            return _compress_xerial(memoryview(data))
        case 3:
            packed: bytes = lz4.frame.compress(
                data, compression_level=0 if level is None else level, block_size=lz4.frame.BLOCKSIZE_MAX64KB
            )
            return packed
        case 4:
            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)
    raise CorruptCompression(f"there is no codec {codec}")


def decompress(codec: int, data: Bytes, size_max: int) -> bytes:
    try:
        match codec:
            case 0:
                return bytes(data)
            case 1:
                return _decompress_gzip(data, size_max)
            case 2:
                return _decompress_snappy(memoryview(data), size_max)
            case 3:
                return _decompress_lz4(data, size_max)
            case 4:
                return _decompress_zstd(data, size_max)
    except (zlib.error, RuntimeError, zstandard.ZstdError, cramjam.DecompressionError, struct.error, EOFError) as error:
        raise CorruptCompression(f"these are not {CODEC_NAMES[codec]} bytes: {error}") from error
    raise CorruptCompression(f"there is no codec {codec}")


class UnpacksTooLarge(CorruptCompression):
    """More than the caller allows; it was noticed on the way, not after."""


def _too_large(size_max: int) -> UnpacksTooLarge:
    return UnpacksTooLarge(f"the batch unpacks to more than {size_max} bytes")


def _decompress_gzip(data: Bytes, size_max: int) -> bytes:
    result = bytearray()
    rest: Bytes = data
    # Several members in a row are one stream, to Java as well.
    while rest:
        unpacker = zlib.decompressobj(31)
        result += unpacker.decompress(rest, size_max - len(result) + 1)
        if len(result) > size_max:
            raise _too_large(size_max)
        if not unpacker.eof:
            raise CorruptCompression("the gzip stream is cut short")
        rest = unpacker.unused_data
    return bytes(result)


def _decompress_lz4(data: Bytes, size_max: int) -> bytes:
    unpacker = lz4.frame.LZ4FrameDecompressor()
    result: bytes = unpacker.decompress(bytes(data), max_length=size_max + 1)
    if len(result) > size_max:
        raise _too_large(size_max)
    if not unpacker.eof or unpacker.unused_data:
        raise CorruptCompression("the lz4 frame is cut short, or something follows it")
    return result


def _lz4_content_size(frame: memoryview) -> int:
    return int.from_bytes(frame[_LZ4_HEADER.size : _LZ4_HEADER.size + 8], "little")


def unpack_lz4_into(frame: memoryview, out: memoryview) -> int | None:
    """How many bytes it wrote to `out`, block by block: the frame library takes three times as long, for it copies them
    twice. None where that one has to be asked, with `decompress`: blocks that refer to others, checksums of their own
    (Kafka's clients write neither), not enough room, and everything that looks wrong."""
    if len(frame) < _LZ4_HEADER.size + 1:
        return None
    magic, flags, block_code = _LZ4_HEADER.unpack_from(frame)
    if magic != _LZ4_MAGIC or flags & ~_LZ4_CONTENT_SIZE != _LZ4_PLAIN_FLAGS or block_code not in _LZ4_BLOCK_BYTES:
        return None
    block_bytes_max = _LZ4_BLOCK_BYTES[block_code]
    has_content_size = flags & _LZ4_CONTENT_SIZE
    # One byte is a checksum of this header, at which nobody needs to look: the batch has one of all its bytes.
    position = _LZ4_HEADER.size + (9 if has_content_size else 1)
    size = 0
    try:
        while True:
            (length,) = _LZ4_BLOCK.unpack_from(frame, position)
            position += 4
            if not length:
                is_whole = position == len(frame) and (not has_content_size or size == _lz4_content_size(frame))
                return size if is_whole else None
            stored, length = length >> 31, length & 0x7FFF_FFFF
            block = frame[position : position + length]
            position += length
            room = min(block_bytes_max, len(out) - size)
            if len(block) != length:
                return None
            if stored:
                if length > room:
                    return None
                out[size : size + length] = block
                size += length
            else:
                size += cramjam.lz4.decompress_block_into(block, out[size : size + room], output_len=room)
    except (struct.error, cramjam.DecompressionError):
        return None


def _decompress_zstd(data: Bytes, size_max: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(bytes(data), read_across_frames=True) as reader:
        result = reader.read(size_max + 1)
    if len(result) > size_max:
        raise _too_large(size_max)
    return result


def _compress_xerial(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block)) + block
    return bytes(out)


def _decompress_snappy(data: memoryview, size_max: int) -> bytes:
    if bytes(data[:8]) != _XERIAL_MAGIC:
        return _decompress_snappy_block(data, size_max)
    out = bytearray()
    position = 16
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position)
        position += 4
        if length < 0 or position + length > len(data):
            raise CorruptCompression("a snappy block is cut short")
        out += _decompress_snappy_block(data[position : position + length], size_max - len(out))
        position += length
    return bytes(out)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes:
    # The block opens with its unpacked length, so a bomb is seen before anything is allocated.
    if cramjam.snappy.decompress_raw_len(block) > size_max:
        raise _too_large(size_max)
    return bytes(cramjam.snappy.decompress_raw(block))
