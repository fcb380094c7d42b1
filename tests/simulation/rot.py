"""Bits that rot: what was written long ago reads otherwise, on one replica's disk, and an operator who puts that right.

A leader hands out what it has; that it is whole, clients and followers find out by the checksums. What these do not
cover, a batch's offset and leader epoch, stays sound here: nobody could tell. So that a sound copy is left, one node
has rot at a time; another has what it spoils, in sync or eligible to lead, and nobody else ends without a farewell
until the copy that was spoilt is whole and in sync again. A node that recovers from a crash may cut its log there, and
one such node the others can do without.
"""

import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.partition.partition import Partition
from penstock.log.segment import LOG_SUFFIX
from penstock.protocol.batch import HEADER_BYTES, MAGIC, BatchHeader, crc_is_valid, read_header
from penstock.testing.sim_disk import SimDisk
from tests.simulation.cluster import SimCluster, SimHost
from tests.simulation.history import Violation

_LIKELIHOOD = 0.15
_FIRST_SECONDS = (1.0, 12.0)
_VISIT_SECONDS = (2.0, 12.0)
_LOOK_SECONDS = 0.5
_PATIENCE_SECONDS = 8.0
_LENGTH_AND_MAGIC = (8, 9, 10, 11, 16)
_CHECKSUM_POSITION = 17


class _Spot(NamedTuple):
    """A batch that may rot."""

    host: SimHost
    partition: Partition
    path: str
    position: int
    header: BatchHeader


class Rot:
    def __init__(self, cluster: SimCluster, note: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._note = note
        # Of its own, so that runs without it are what they would be if there were no such thing.
        self._random = random.Random(f"rot {cluster.scheduler.seed}")
        self.is_on = self._random.random() < _LIKELIHOOD
        self._is_over = False
        self.count = 0
        # Whose disk it is, and of which partition.
        self.host: SimHost | None = None
        self._place: tuple[str, int] = ("", 0)
        self._visit_at_s = 0.0
        # Of a visit: by when the node has stopped, and whether it is being started.
        self._stopped_by_s: float | None = None
        self._is_starting = False

    def begin(self, is_quiet: Callable[[], bool]) -> None:
        """`is_quiet`: nothing is under way by which a node might end."""
        if self.is_on:
            self._is_quiet = is_quiet
            self._cluster.scheduler.call_later(self._random.uniform(*_FIRST_SECONDS), self._look)

    def spares(self, host: SimHost) -> bool:
        """Whether this node must not end without a farewell now."""
        return self.host is not None and self.host is not host

    def _look(self) -> None:
        if self.host is None:
            if not self._is_over and self._is_quiet():
                self._spoil()
        else:
            self._check_others()
            self._end_if_mended()
            if self.host is not None and (self._is_over or self._cluster.scheduler.now_s >= self._visit_at_s):
                self._visit()
        self._cluster.scheduler.call_later(_LOOK_SECONDS, self._look)

    # Spoiling

    def _spoil(self) -> None:
        spots = list(self._spots())
        if not spots:
            return
        # Where somebody is behind its leader it will be asked for it: there it matters most.
        wanted = [spot for spot in spots if self._is_wanted(spot)]
        spot = self._random.choice(wanted if wanted and self._random.random() < 0.8 else spots)
        self._flip(spot)
        self.host, self._place = spot.host, (spot.partition.topic, spot.partition.index)
        self._cluster.rotten.add(self._place)
        self._visit_at_s = self._cluster.scheduler.now_s + self._random.uniform(*_VISIT_SECONDS)
        self.count += 1
        self._note(f"rot in {spot.path} of {spot.host.name}, in the batch at {spot.header.base_offset}")

    def _spots(self) -> Iterator[_Spot]:
        """Batches that are committed, and not the last of their log."""
        for host in self._cluster.hosts.values():
            for partition in host.broker.hosting if host.is_ready and host.broker is not None else ():
                state = self._state(partition.topic, partition.index)
                log = partition.loaded_log
                if log is None or not log.is_loaded or state is None or partition.has_failed:
                    continue
                if host.node_id in state.isr and self._has_sound_copy(partition, state, host):
                    for segment in (one for one in log.segments if one.size):
                        for position, header in _batches(host.disk.read_file(segment.file.path)):
                            is_last = header.last_offset + 1 >= log.log_end_offset
                            if header.last_offset < partition.high_watermark and not is_last:
                                yield _Spot(host, partition, segment.file.path, position, header)

    def _has_sound_copy(self, partition: Partition, state: PartitionImage, but: SimHost) -> bool:
        for node_id in state.isr:
            host = self._cluster.hosts[node_id]
            if host is but or host.broker is None or not host.is_ready:
                continue
            other = host.broker.topics_by_name.get(partition.topic.encode(), {}).get(partition.index)
            if other is not None and other.topic_id == partition.topic_id and not other.has_failed:
                return True
        return False

    def _is_wanted(self, spot: _Spot) -> bool:
        leader = spot.partition.leader
        return leader is not None and any(
            broker_id not in leader.isr and leader.followers[broker_id].log_end_offset <= spot.header.base_offset
            for broker_id in leader.followers
        )

    def _flip(self, spot: _Spot) -> None:
        disk, size, chance = spot.host.disk, spot.header.size, self._random
        if chance.random() < 0.2:
            positions = [chance.choice(_LENGTH_AND_MAGIC)]
        else:
            # So few that no checksum misses them.
            positions = chance.sample(range(_CHECKSUM_POSITION, size), chance.randint(1, 3))
        for position in positions:
            disk.flip_bit(spot.path, spot.position + position, chance.randrange(8))
        data = disk.read_file(spot.path)
        starts = {position for position, _ in _batches(data)}
        length = read_header(data, spot.position).size
        if length != size and spot.position + length in starts | {len(data)}:
            # A length that leads to another batch: what it leaps over nobody would miss.
            disk.flip_bit(spot.path, spot.position + 8, 7)

    # Looking

    def _state(self, topic: str, index: int) -> PartitionImage | None:
        """As the controller has it, if there is one that is not of the past."""
        active = [broker for broker in self._cluster.brokers() if broker.controller.is_active]
        controller = max(active, key=lambda broker: broker.quorum.epoch, default=None)
        if controller is None or any(
            broker.quorum.epoch > controller.quorum.epoch for broker in self._cluster.brokers()
        ):
            return None
        loop = self._cluster.hosts[controller.node_id].loop
        image = controller.image.topics.get(topic)
        return None if image is None or loop is None or loop.is_held else image.partitions.get(index)

    def _check_others(self) -> None:
        """9: a follower takes no batch whose checksum is wrong."""
        for host in self._cluster.hosts.values():
            for partition in host.broker.hosting if host.is_ready and host.broker is not None else ():
                is_here = host is self.host and (partition.topic, partition.index) == self._place
                if not is_here and not partition.has_failed and partition.loaded_log is not None:
                    where = damage_in(host.disk, partition.name)
                    if where is not None:
                        raise Violation(9, "checksums", f"{host.name} holds a damaged batch: {where}")

    def _end_if_mended(self) -> None:
        host, (topic, index) = self.host, self._place
        assert host is not None
        state = self._state(topic, index)
        if state is None or host.broker is None or not host.is_ready or self._stopped_by_s is not None:
            return
        partition = host.broker.topics_by_name.get(topic.encode(), {}).get(index)
        if host.node_id in state.replicas:
            if host.node_id not in state.isr or damage_in(host.disk, f"{topic}-{index}") is not None:
                return
            if partition is None or partition.loaded_log is None:
                return
        elif partition is not None:
            # It has yet to hear that the partition was taken away from it.
            return
        self._note(f"{topic}-{index} is whole again on {host.name}")
        self.host = None

    # The remedy

    def finish(self) -> None:
        """There is no more of it, and what there is is put right as soon as it can be."""
        self._is_over = True

    def _visit(self) -> None:
        """What an operator does: while others have all that is committed, the node is stopped, the directory of the
        partition removed, the node started. After a clean stop that takes two starts, since the first one refuses."""
        host, (topic, index) = self.host, self._place
        assert host is not None
        if self._is_starting:
            if not host.is_up:
                host.start()
            self._is_starting = not host.is_ready
        elif self._stopped_by_s is not None:
            if not host.is_up or self._cluster.scheduler.now_s >= self._stopped_by_s:
                if self._is_time_for(host):
                    self._remove(host)
                else:
                    # What the others had when the node was asked to stop, they may have lost since.
                    self._is_starting, self._stopped_by_s = True, None
        elif self._is_time_for(host):
            if host.is_ready and self._random.random() < 0.5:
                self._note(f"{host.name} is stopped for {topic}-{index}, which has rotted")
                host.stop_cleanly()
                self._stopped_by_s = self._cluster.scheduler.now_s + _PATIENCE_SECONDS
            else:
                self._remove(host)

    def _is_time_for(self, host: SimHost) -> bool:
        topic, index = self._place
        state = self._state(topic, index)
        if state is None or not {*state.isr, *state.eligible_leader_replicas} - {host.node_id}:
            return False
        # Recovery may have cut it, retention dropped it.
        return damage_in(host.disk, f"{topic}-{index}") is not None

    def _remove(self, host: SimHost) -> None:
        topic, index = self._place
        host.kill()
        self._note(f"{topic}-{index} is removed from {host.name}")
        host.disk.remove(f"{topic}-{index}")
        host.start()
        self._is_starting, self._stopped_by_s = True, None


def damage_in(disk: SimDisk, directory: str) -> str | None:
    """Where a log holds something else than whole batches."""
    for name in disk.list(directory):
        if name.endswith(LOG_SUFFIX):
            path = f"{directory}/{name}"
            data = disk.read_file(path)
            end = _whole_bytes(data)
            if end < len(data):
                return f"{path} at byte {end}"
    return None


# Most files are as they were when they were last looked at.
@lru_cache(maxsize=1000)
def _whole_bytes(data: bytes) -> int:
    """Up to where there are whole batches."""
    end = 0
    for position, header in _batches(data):
        end = position + header.size
    return end


def _batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Those that are whole, up to the first that is not."""
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = read_header(data, position)
        is_whole = header.magic == MAGIC and HEADER_BYTES <= header.size <= len(data) - position
        if not is_whole or not crc_is_valid(data, header, position):
            return
        yield position, header
        position += header.size
