"""A slice of a partition as Arrow record batches: fetching, parsing and gathering, put together."""

import sys
from collections.abc import Iterator

import pyarrow as pa

from penstock.client.arrow_columns import ArrowColumns
from penstock.client.cluster import Cluster, TopicPartition
from penstock.client.fetching import FetchLimits, PartitionFetcher
from penstock.client.record_columns import Parse, kernel, numpy_kernel, read_columns
from penstock.client.unpacking import Unpacker

# Importing numba takes as long as numpy needs for about this many records.
_RECORDS_WORTH_NUMBA = 1_000_000


_asked_records = 0


def kernel_for(records: int) -> Parse:
    """The faster one for so many records, loading included. What this process read before counts: a process that reads
    many small slices waits for numba once, and not for numpy every time."""
    global _asked_records
    _asked_records += records
    if _asked_records < _RECORDS_WORTH_NUMBA and "penstock.client.record_kernel" not in sys.modules:
        return numpy_kernel()
    return kernel()


def read_slice(
    cluster: Cluster,
    partition: TopicPartition,
    start: int,
    end: int,
    schema: pa.Schema,
    limits: FetchLimits | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records with offsets in [start, end) in order, a fetch at a time. Raises what PartitionFetcher raises."""
    parse, parse_headers = kernel_for(end - start)
    arrow = ArrowColumns(*partition, schema, parse_headers)
    unpacker = Unpacker()
    for fetched in PartitionFetcher(cluster, partition, start, end, limits):
        columns = read_columns(fetched.table, start, end, fetched.aborted, parse, unpacker)
        if columns is not None:
            yield arrow.batch(columns)
