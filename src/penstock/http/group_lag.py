"""How far a group is behind, partition by partition, and who reads what: put together from three answers of the
cluster.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from penstock.http.administration import Administration


class PartitionLag(NamedTuple):
    topic: str
    partition: int
    # None where the group has committed nothing, or the partition has no leader now.
    committed: int | None
    log_end: int | None
    lag: int | None
    member: Any = None


async def group_lags(administration: "Administration", described: Any) -> list[PartitionLag]:
    """Of what the group has committed, and of what its members are assigned."""
    committed = await administration.group_offsets(described.group_id)
    owners = owners_of(described)
    partitions = sorted({*committed, *owners})
    ends = await administration.offsets(partitions, -1)
    return [
        lag_of(key, committed.get(key), ends.get(key), owners.get(key))
        for key in partitions
        if key in ends or key in owners
    ]


def lag_of(key: tuple[str, int], committed: int | None, log_end: int | None, member: Any) -> PartitionLag:
    lag = None if committed is None or log_end is None else max(0, log_end - committed)
    return PartitionLag(*key, committed, log_end, lag, member)


def owners_of(described: Any) -> dict[tuple[str, int], Any]:
    """The member that reads each partition."""
    return {
        (one.topic, one.partition): member
        for member in described.members
        if member.assignment is not None
        for one in member.assignment.topic_partitions
    }
