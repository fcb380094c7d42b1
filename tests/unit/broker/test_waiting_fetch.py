"""Fetches that wait: who is told of what, once."""

import asyncio
from types import SimpleNamespace
from typing import cast

from penstock.broker.fetch.waiting import WaitingCommittedFetch
from penstock.cluster.partition.partition import Partition


async def test_a_fetch_that_names_a_partition_twice_is_finished_once() -> None:
    partition = SimpleNamespace(append_listeners=None, last_stable_offset=0)
    finished: list[bool] = []

    def finish(is_time_up: bool) -> None:
        finished.append(is_time_up)
        waiting.give_up()

    waiting = WaitingCommittedFetch(
        asyncio.get_running_loop(), [cast(Partition, partition)] * 2, bytes_missing=1, wait_ms_max=60_000, finish=finish
    )
    partition.last_stable_offset = 5
    # As Partition.tell_readers does: those that listened when the append came, whatever becomes of them meanwhile.
    for listener in tuple(partition.append_listeners):
        listener(100)
    assert finished == [False]
    assert partition.append_listeners is None
