"""The shell around the controller: it runs on the node that leads the metadata quorum, while it leads.

The controller decides on an image of its own, into which its records are replayed as soon as they are in the log, so
that the next decision sees them. The node's image, which everybody else reads, has only what is committed. When the
lead is lost, the controller and its image are thrown away.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Clock, Random
from penstock.base.settings import NodeSettings
from penstock.broker.connection import Connection
from penstock.broker.quorum_runner import QuorumRunner
from penstock.cluster.metadata.controller import Controller
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import RECOVERED, RECOVERING, ConfigRecord, MetadataRecord, encode_record
from penstock.cluster.metadata.snapshot import copy_of
from penstock.protocol.records import Record, build_batch

log = logging.getLogger("penstock.controller")

T = TypeVar("T")

_PROBE_SECONDS_MAX = 0.3
_PROBE_PAUSE_SECONDS = 0.01
_UNCLEAN_ELECTIONS = "unclean.leader.election.enable"


class ControllerRunner:
    def __init__(
        self, quorum: QuorumRunner, settings: NodeSettings, clock: Clock, random: Random, cluster_id: str
    ) -> None:
        self._quorum = quorum
        self._settings = settings
        self._clock = clock
        self._random = random
        self._cluster_id = cluster_id
        self._loop = asyncio.get_running_loop()
        self._image: MetadataImage | None = None
        self._controller: Controller | None = None
        self._session_timer: asyncio.TimerHandle | None = None
        self._balance_timer: asyncio.TimerHandle | None = None
        self._unclean_timer: asyncio.TimerHandle | None = None
        self._watched: dict[Connection, tuple[int, int]] = {}
        # asyncio keeps only weak references to tasks.
        self._tasks: set[asyncio.Task[None]] = set()
        self.unclean_elections = 0

    @property
    def is_active(self) -> bool:
        return self._controller is not None

    def activate(self, committed: MetadataImage) -> None:
        """This node leads the quorum, and `committed` has all there was before."""
        self._image = copy_of(committed)
        self._controller = Controller(self._image, self._settings, self._random, self._cluster_id)
        self._controller.activate(self._clock.monotonic_ms(), self._quorum.leaders_heard_ms)
        self._schedule_sessions()
        self._schedule_balance()
        self._schedule_unclean()
        # The one before may have died together with brokers that it would have noticed.
        for broker in self._image.brokers.values():
            self._look_after(broker.id, broker.epoch)

    def deactivate(self) -> None:
        self._image = self._controller = None
        for timer in (self._session_timer, self._balance_timer, self._unclean_timer):
            if timer is not None:
                timer.cancel()
        self._session_timer = self._balance_timer = self._unclean_timer = None

    async def decide(self, decide: Callable[[Controller], Decision[T]]) -> T:
        """The answer, once what it rests on is committed and applied here. Raises Refused."""
        controller, image = self._controller, self._image
        if controller is None or image is None:
            raise Refused(ErrorCode.not_controller, "this node is not the active controller")
        # The log may hold control batches of the quorum, which are no records of the image.
        image.end_offset = self._quorum.next_offset
        decision = decide(controller)
        if decision.records:
            committed = self._quorum.propose(self._batch_of(decision.records))
            for record in decision.records:
                image.replay(record)
                self.unclean_elections += getattr(record, "leader_recovery_state", RECOVERED) == RECOVERING
            if any(
                isinstance(record, ConfigRecord) and record.name == _UNCLEAN_ELECTIONS for record in decision.records
            ):
                self._run(self._elect_unclean)
        else:
            committed = self._quorum.applied(self._quorum.next_offset)
        self._schedule_sessions()
        await committed
        return decision.answer

    def _batch_of(self, records: Sequence[MetadataRecord]) -> bytearray:
        now_ms = self._clock.now_ms()
        return build_batch([Record(delta, now_ms, None, encode_record(record)) for delta, record in enumerate(records)])

    # Brokers that are gone

    def watch_connection(self, connection: Connection, broker_id: int, broker_epoch: int) -> None:
        """A broker sends its heartbeats by this connection. If it breaks, and nobody listens at the broker's address
        any more, the broker is dead, and need not be waited for."""
        if self._watched.get(connection) != (broker_id, broker_epoch):
            if connection not in self._watched:
                connection.on_closed.append(lambda: self._connection_lost(connection))
            self._watched[connection] = broker_id, broker_epoch

    def _connection_lost(self, connection: Connection) -> None:
        self._look_after(*self._watched.pop(connection))

    def _look_after(self, broker_id: int, broker_epoch: int) -> None:
        if self._controller is not None:
            self._run(lambda: self._probe(broker_id, broker_epoch))

    async def _probe(self, broker_id: int, broker_epoch: int) -> None:
        broker = self._image.brokers.get(broker_id) if self._image is not None else None
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return
        if await is_gone(broker.host, broker.port):
            log.warning("broker %d is gone: nothing listens at %s:%d", broker_id, broker.host, broker.port)
            await self._decide_quietly(lambda controller: controller.on_connection_lost(broker_id, broker_epoch))

    def _schedule_sessions(self) -> None:
        deadline_ms = None if self._controller is None else self._controller.next_deadline_ms()
        if self._session_timer is not None:
            self._session_timer.cancel()
            self._session_timer = None
        if deadline_ms is not None:
            delay_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            self._session_timer = self._loop.call_later(delay_ms / 1000, self._run, self._end_sessions)

    async def _end_sessions(self) -> None:
        fenced = await self._decide_quietly(lambda controller: controller.on_deadline(self._clock.monotonic_ms()))
        if fenced is not None:
            log.warning("broker %d was silent for too long, and is fenced", fenced)

    # Leaders go back to where they belong

    def _schedule_balance(self) -> None:
        if self._settings["auto.leader.rebalance.enable"]:
            seconds = self._settings["leader.imbalance.check.interval.seconds"]
            self._balance_timer = self._loop.call_later(seconds, self._run, self._balance)

    async def _balance(self) -> None:
        while await self._decide_quietly(lambda controller: controller.elect_preferred()):
            pass
        if self._controller is not None:
            self._schedule_balance()

    # Where a topic allows it, anybody leads rather than nobody

    def _schedule_unclean(self) -> None:
        seconds = self._settings["unclean.leader.election.interval.ms"] / 1000
        self._unclean_timer = self._loop.call_later(seconds, self._run, self._look_for_leaderless)

    async def _look_for_leaderless(self) -> None:
        await self._elect_unclean()
        if self._controller is not None:
            self._schedule_unclean()

    async def _elect_unclean(self) -> None:
        while await self._decide_quietly(lambda controller: controller.elect_unclean()):
            pass

    async def _decide_quietly(self, decide: Callable[[Controller], Decision[T]]) -> T | None:
        try:
            return await self.decide(decide)
        except Refused:
            # Another node has the lead, and will see to it.
            return None

    def _run(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        task = self._loop.create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def is_gone(host: str, port: int) -> bool:
    """Whether nothing listens there. Slow or out of reach is not gone: that is for its session to decide."""
    try:
        async with asyncio.timeout(_PROBE_SECONDS_MAX):
            while True:
                await _until_broken(host, port)
                await asyncio.sleep(_PROBE_PAUSE_SECONDS)
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


async def _until_broken(host: str, port: int) -> None:
    """The kernel closes the port of a process that was killed last, so it may still take a connection; then it breaks
    that too."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            await reader.read(1)
        finally:
            writer.close()
    except ConnectionResetError:
        return
