"""Partitions for the tests of this room."""

import uuid

from penstock.cluster.partition.partition import Partition
from penstock.log.config import LogConfig
from penstock.log.log import Log
from penstock.testing.sim_disk import SimDisk

NOW_MS = 1_700_000_000_000


def make_partition(
    disk: SimDisk,
    config: LogConfig | None = None,
    *,
    index: int = 0,
    replicas: tuple[int, ...] = (1,),
    is_clean: bool = True,
    recovery_point: int = 0,
) -> Partition:
    def open_log(partition: Partition) -> Log:
        return Log.open(
            disk,
            partition.name,
            partition.config,
            topic_id=partition.topic_id,
            recovery_point=recovery_point,
            clean=is_clean,
            log_start_offset=0,
            now_ms=NOW_MS,
        )

    return Partition(
        "t",
        uuid.UUID(int=7),
        index,
        config or LogConfig(),
        replicas=replicas,
        isr=(1,),
        leader_epoch=3,
        open_log=open_log,
    )
