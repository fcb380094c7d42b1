"""What goes wrong, when and for how long, chosen by the seed."""

import random
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable
from typing import Any

from penstock.log.log import Log
from tests.simulation.cluster import SimCluster, SimHost
from tests.simulation.network import Network
from tests.simulation.rot import Rot

_GAP_SECONDS = (0.3, 4.0)
_DOWN_SECONDS = (0.2, 6.0)


class Faults:
    def __init__(self, cluster: SimCluster, network: Network, *, is_synced: bool, note: Callable[[str], None]) -> None:
        """`is_synced`: what is acknowledged is on the disks, so that all of them may lose power together."""
        self._cluster = cluster
        self._network = network
        self._scheduler = cluster.scheduler
        self._random = random.Random(cluster.random.getrandbits(64))
        self._is_synced = is_synced
        self._note = note
        self._is_over = False
        self._paused: dict[int, None] = {}
        # Who takes its leave.
        # Which start of theirs is to end.
        self._leaving: dict[int, int] = {}
        self.rot = Rot(cluster, note)
        # The node whose disk has lost something since all replicas were in sync.
        self._tainted: int | None = None
        self.counts: dict[str, int] = {}
        kinds: dict[str, tuple[Callable[[], bool], int]] = {
            "kill": (self._kill, 5),
            "stop": (self._stop, 2),
            "power cut": (self._cut_power, 4),
            "pause": (self._pause, 4),
            "isolate": (self._isolate, 3),
            "one-way cut": (self._cut_one_way, 3),
            "pair cut": (self._cut_pair, 3),
            "slow link": (self._slow, 3),
            "lossy link": (self._lose, 3),
            "strike": (self._strike, 4),
            "disk full": (self._fill_disk, 2),
            "clock jump": (self._jump_clock, 2),
        }
        # What Log.append is, while a strike waits for one.
        self._append: Callable[..., int] | None = None
        if is_synced:
            kinds["blackout"] = (self._black_out, 2)
        else:
            # Where replicas hold what is acknowledged in memory only, a broker that ended without a farewell counts as
            # one that may have lost it. If one has, the others must not seem to.
            for name in ("kill", "strike", "stop", "disk full") if self._random.random() < 0.5 else ("power cut",):
                del kinds[name]
        # Each run has its own mixture: some kinds not at all, others all the time.
        self._kinds = {name: (act, weight * self._random.choice((0, 1, 1, 3))) for name, (act, weight) in kinds.items()}

    @property
    def loses_memory(self) -> bool:
        """Whether a node may lose what was acknowledged, which others still have."""
        return not self._is_synced and "power cut" in self._kinds

    def begin(self) -> None:
        self._plan()
        self.rot.begin(self._is_quiet)

    def _is_quiet(self) -> bool:
        # Who is paused counts as in sync until somebody notices.
        return (
            not self._leaving
            and not self._paused
            and not any(
                host.disk.capacity_bytes is not None or _has_failed(host) for host in self._cluster.hosts.values()
            )
        )

    def _plan(self) -> None:
        if not self._is_over:
            self._scheduler.call_later(self._random.uniform(*_GAP_SECONDS), self._act)

    def _act(self) -> None:
        if self._is_over:
            return
        names = [name for name, (_, weight) in self._kinds.items() if weight]
        if names:
            (name,) = self._random.choices(names, [self._kinds[one][1] for one in names])
            if self._kinds[name][0]():
                self.counts[name] = self.counts.get(name, 0) + 1
        self._plan()

    def _later(self, act: Callable[[], None], seconds: tuple[float, float] = _DOWN_SECONDS) -> None:
        self._scheduler.call_later(self._random.uniform(*seconds), act)

    def _any_up(self) -> SimHost | None:
        up = [host for host in self._cluster.hosts.values() if host.is_up]
        # Leaders and controllers are the more interesting ones.
        controllers = [
            host for host in up if host.is_ready and host.broker is not None and host.broker.controller.is_active
        ]
        if controllers and self._random.random() < 0.3:
            return controllers[0]
        return self._random.choice(up) if up else None

    def _start(self, host: SimHost) -> None:
        if not host.is_up:
            host.start()

    # Nodes

    def _kill(self) -> bool:
        host = self._any_up()
        if host is None or self.rot.spares(host):
            return False
        self._note(f"kill {host.name}")
        host.kill()
        self._paused.pop(host.node_id, None)
        self._later(lambda: self._start(host))
        return True

    def _stop(self) -> bool:
        host = self._any_up()
        if host is None or host.node_id in self._paused or not host.is_ready or self.rot.spares(host):
            return False
        self._note(f"stop {host.name}")
        host.stop_cleanly()
        starts = self._leaving[host.node_id] = host.starts

        def start_when_down() -> None:
            if self._leaving.get(host.node_id) == starts:
                del self._leaving[host.node_id]
            if host.starts != starts:
                # Somebody else was quicker.
                return
            if host.is_up:
                # It hangs while it takes its leave: somebody loses patience.
                host.kill()
            if self._random.random() < 0.3 and self._may_lose(host):
                self._note(f"power cut {host.name} after its clean end")
                host.cut_power(self._random)
            self._start(host)

        self._later(start_when_down, (4.0, 14.0))
        return True

    def _may_lose(self, host: SimHost) -> bool:
        """Where replicas hold what is acknowledged in memory only, one of them may lose it, not two."""
        if self._is_synced or self.rot.spares(host):
            return not self.rot.spares(host)
        if "power cut" not in self._kinds or (self._tainted != host.node_id and not self._all_in_sync()):
            return False
        self._tainted = host.node_id
        return True

    def _all_in_sync(self) -> bool:
        active = [broker for broker in self._cluster.brokers() if broker.controller.is_active]
        if len(active) != 1 or not self._cluster.is_ready:
            return False
        return all(
            len(partition.isr) == len(partition.replicas)
            for topic in active[0].image.topics.values()
            for partition in topic.partitions.values()
        )

    def _cut_power(self) -> bool:
        host = self._any_up()
        if host is None or not self._may_lose(host):
            return False
        self._note(f"power cut {host.name}")
        host.cut_power(self._random)
        self._paused.pop(host.node_id, None)
        self._later(lambda: self._start(host))
        return True

    def _strike(self) -> bool:
        """Hits a leader at the worst moment: right after it has appended something, of which others know nothing or
        only a part."""
        if self._append is not None:
            return False
        names = ["", "__transaction_state", "__transaction_state", "__consumer_offsets"]
        topic, delay_s = self._random.choice(names), self._random.choice((0.0, 0.001, 0.005, 0.02))
        append = self._append = Log.append

        def watched(log: Log, *args: Any) -> int:
            offset = append(log, *args)
            loop = get_running_loop()
            if log.directory.startswith(topic) and loop is not self._scheduler.world:
                self._disarm()
                self._scheduler.call_later(self._random.random() * delay_s, self._hit, loop, log.directory)
            return offset

        Log.append = watched  # type: ignore[method-assign,assignment]
        return True

    def _disarm(self) -> None:
        if self._append is not None:
            Log.append, self._append = self._append, None  # type: ignore[method-assign]

    def _hit(self, loop: AbstractEventLoop, what: str) -> None:
        hosts = [host for host in self._cluster.hosts.values() if host.loop is loop]
        if self._is_over or not hosts:
            return
        (host,) = hosts
        self._note(f"{host.name} is struck, which has appended to {what}")
        if self._random.random() < 0.3 or self.rot.spares(host):
            self._isolate_host(host)
            return
        if self._is_synced and self._random.random() < 0.5:
            host.cut_power(self._random)
        else:
            host.kill()
        self._paused.pop(host.node_id, None)
        self._later(lambda: self._start(host))

    def _black_out(self) -> bool:
        if self.rot.host is not None:
            return False
        self._note("power cut of all")
        for host in self._cluster.hosts.values():
            host.cut_power(self._random)
            self._later(lambda host=host: self._start(host))  # type: ignore[misc]
        self._paused.clear()
        return True

    def _pause(self) -> bool:
        host = self._any_up()
        if host is None or host.node_id in self._paused:
            return False
        loop = host.loop
        assert loop is not None
        self._note(f"pause {host.name}")
        loop.hold()
        self._paused[host.node_id] = None

        def go_on() -> None:
            self._paused.pop(host.node_id, None)
            if not loop.is_dead:
                self._note(f"{host.name} goes on")
                loop.release()

        self._later(go_on, self._random.choice(((0.2, 2.0), (1.0, 8.0), (5.0, 30.0))))
        return True

    def _fill_disk(self) -> bool:
        if self.rot.host is not None:
            return False
        host = self._random.choice(list(self._cluster.hosts.values()))
        self._note(f"disk of {host.name} is full")
        host.disk.capacity_bytes = host.disk.used_bytes() + self._random.randrange(2000)

        def free() -> None:
            self._note(f"disk of {host.name} has space")
            host.disk.capacity_bytes = None
            # A full disk that passes is no reason for a restart, but a node may have ended while it started.
            self._start(host)

        self._later(free)
        return True

    def _jump_clock(self) -> bool:
        host = self._random.choice(list(self._cluster.hosts.values()))
        host.wall_clock_ahead_ms += self._random.choice((-1, 1)) * self._random.randrange(60_000)
        self._note(f"clock of {host.name} jumps")
        return True

    # The network

    def _names(self) -> list[str]:
        return [host.name for host in self._cluster.hosts.values()]

    def _isolate(self) -> bool:
        host = self._any_up()
        if host is None:
            return False
        self._isolate_host(host)
        return True

    def _isolate_host(self, host: SimHost) -> None:
        self._note(f"isolate {host.name}")
        others = [name for name in self._names() if name != host.name]
        pairs = [pair for other in others for pair in ((host.name, other), (other, host.name))]
        self._cut(pairs)

    def _cut_one_way(self) -> bool:
        source, target = self._random.sample(self._names(), 2)
        self._note(f"cut {source} to {target}")
        self._cut([(source, target)])
        return True

    def _cut_pair(self) -> bool:
        """Two do not hear each other, though everybody else hears both; the controller is one of them, perhaps."""
        one = self._any_up()
        if one is None:
            return False
        other = self._random.choice([name for name in self._names() if name != one.name])
        self._note(f"cut {one.name} and {other}")
        self._cut([(one.name, other), (other, one.name)], (3.0, 15.0))
        return True

    def _cut(self, pairs: list[tuple[str, str]], seconds: tuple[float, float] | None = None) -> None:
        for pair in pairs:
            self._network.cut(*pair)

        def restore() -> None:
            self._note("restored " + ", ".join(f"{source}-{target}" for source, target in pairs))
            for pair in pairs:
                self._network.restore(*pair)

        self._later(restore, seconds or self._random.choice(((0.5, 3.0), (3.0, 12.0))))

    def _slow(self) -> bool:
        source, target = self._random.sample(self._names(), 2)
        link = self._network.link(source, target)
        link.delay_s_max = self._random.choice((0.05, 0.5, 1.5))

        self._later(link.mend)
        return True

    def _lose(self) -> bool:
        source, target = self._random.sample(self._names(), 2)
        link = self._network.link(source, target)
        link.loss, link.reset = self._random.choice(((0.1, 0.0), (0.02, 0.02), (0.0, 0.1)))

        self._later(link.mend)
        return True

    # The end

    def heal(self) -> None:
        """Everything is well from here on."""
        self._is_over = True
        self.rot.finish()
        self._disarm()
        self._note("healed")
        self._network.heal()
        for host in self._cluster.hosts.values():
            host.disk.capacity_bytes = None
            if host.loop is not None and host.loop.is_held:
                host.loop.release()
            self._start(host)

    def close(self) -> None:
        self._disarm()

    def keep_healed(self) -> None:
        """Whose process ended when something failed is started again, as a supervisor would."""
        for host in self._cluster.hosts.values():
            self._start(host)


def _has_failed(host: SimHost) -> bool:
    broker = host.broker
    if not host.is_up or broker is None or not hasattr(broker, "quorum"):
        return False
    return broker.quorum._has_failed or any(partition.has_failed for partition in broker.hosting)
