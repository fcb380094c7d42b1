"""Batches that are not stored as they were sent: in another codec, or with another time, where the topic says so."""

from penstock.cluster.partition.validation import unpacked
from penstock.log.config import LogConfig
from penstock.protocol.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    BatchHeader,
    encode_batch,
    patch_times,
    read_header,
)
from penstock.protocol.compression import CODEC_NAMES, GZIP, LZ4, ZSTD, compress


def as_the_topic_wants(
    data: memoryview | bytearray, header: BatchHeader, config: LogConfig, now_ms: int
) -> tuple[memoryview | bytearray, BatchHeader, int]:
    """The batch as the topic wants it, and the time it was given, -1 where its own counts."""
    if config.compression_type != "producer":
        data, header = _recompress(data, header, config)
    if config.timestamp_type == "LogAppendTime":
        patch_times(data, header.attributes | LOG_APPEND_TIME, now_ms)
        return data, read_header(data), now_ms
    if header.attributes & LOG_APPEND_TIME:
        # The client's own time counts here, whatever it says of it.
        patch_times(data, header.attributes & ~LOG_APPEND_TIME, header.max_timestamp)
        header = read_header(data)
    return data, header, -1


def _recompress(
    data: memoryview | bytearray, header: BatchHeader, config: LogConfig
) -> tuple[memoryview | bytearray, BatchHeader]:
    """The batch in the topic's own codec. The records section is packed as a whole, so no record is looked at."""
    codec = 0 if config.compression_type == "uncompressed" else CODEC_NAMES.index(config.compression_type)
    if codec == header.codec:
        return data, header
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    records = unpacked(memoryview(data), header, config)
    batch = encode_batch(
        compress(codec, records, levels.get(codec)),
        record_count=header.record_count,
        attributes=header.attributes & ~CODEC_MASK | codec,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return batch, read_header(batch)
