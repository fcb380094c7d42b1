"""Where the replicas of new partitions go: in stripes over racks, and over the brokers of each rack in turn.

The first replica, which leads, starts one rack further with each partition; the others follow on the racks after it,
and a rack is used again only when all have had one. Within a rack brokers take turns, fenced ones after all others, and
a fenced broker never leads. Where it all starts is random, so that many small topics do not pile up on one broker.
"""

from collections.abc import Iterable

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Random
from penstock.cluster.metadata.image import BrokerImage


def place_replicas(
    brokers: Iterable[BrokerImage], partition_count: int, replication_factor: int, random: Random
) -> list[tuple[int, ...]]:
    """The replicas of each partition, the preferred leader first. Raises Refused."""
    racks: dict[str, _Rack] = {}
    total = unfenced = 0
    for broker in sorted(brokers, key=lambda broker: broker.id):
        rack = racks.setdefault(broker.rack or "", _Rack())
        (rack.active if broker.is_active else rack.resting).append(broker.id)
        total += 1
        unfenced += broker.is_active
    if unfenced == 0:
        raise _refused(replication_factor, "All brokers are currently fenced or in controlled shutdown.")
    if replication_factor > total:
        raise _refused(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because only {total} broker(s) "
            "are registered.",
        )
    if unfenced == 1 and replication_factor == 1:
        (only,) = (broker_id for rack in racks.values() for broker_id in rack.active)
        return [(only,)] * partition_count
    ordered = [racks[name] for name in sorted(racks)]
    start = int.from_bytes(random.random_bytes(4), "big")
    return [_stripe(ordered, start + partition, replication_factor) for partition in range(partition_count)]


class _Rack:
    __slots__ = ("active", "resting")

    def __init__(self) -> None:
        self.active: list[int] = []
        self.resting: list[int] = []


def _stripe(racks: list[_Rack], turn: int, replication_factor: int) -> tuple[int, ...]:
    """One partition's replicas. `turn` says which rack begins, and how far each rack's brokers have rotated."""
    leading = [rack for rack in racks if rack.active]
    first = leading[turn % len(leading)]
    begin = racks.index(first)
    # Each time all racks have led once, the brokers within the racks move on by one.
    rotation = turn // len(leading)
    queues = [_rotated(racks[(begin + step) % len(racks)], rotation) for step in range(len(racks))]
    chosen: list[int] = []
    depth = 0
    while len(chosen) < replication_factor:
        for queue in queues:
            if depth < len(queue) and len(chosen) < replication_factor:
                chosen.append(queue[depth])
        depth += 1
    return tuple(chosen)


def _rotated(rack: _Rack, rotation: int) -> list[int]:
    shift = rotation % len(rack.active) if rack.active else 0
    return rack.active[shift:] + rack.active[:shift] + rack.resting


def _refused(replication_factor: int, why: str) -> Refused:
    return Refused(
        ErrorCode.invalid_replication_factor, f"Unable to replicate the partition {replication_factor} time(s): {why}"
    )
