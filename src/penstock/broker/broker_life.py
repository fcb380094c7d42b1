"""This broker in the eyes of the controller: it registers, sends heartbeats, and takes its leave before it stops.

A process that was stopped for a while (SIGSTOP, a paused machine) goes on as if nothing had happened, and may long have
been replaced. So it is in doubt about itself until a heartbeat that it sent afterwards has told it that it is not
fenced; and who was fenced is let in again only when it has read so. That nobody hears from the controller for a
while is no doubt: then nobody was replaced either, or this node is cut off, which it cannot tell, as in Kafka.

What the process before this one sent when it wanted to be let in may arrive after it was killed, and after this one was
let in: then the metadata know the wrong one of the two. So who is not the one that they know asks to be let in again,
and is refused as long as the other one lives.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from penstock.base.errors import ErrorCode, Refused
from penstock.base.settings import NodeSettings
from penstock.broker.controller_channel import ControllerChannel
from penstock.protocol.messages import Struct

log = logging.getLogger("penstock.life")

_BROKER_REGISTRATION, _REGISTRATION_VERSION = 62, 4
_BROKER_HEARTBEAT, _HEARTBEAT_VERSION = 63, 1
_REGISTRATION_SECONDS_MAX = 60.0
_REGISTRATION_REQUEST_SECONDS_MAX = 3.0
_RETRY_SECONDS = 0.1
_LEAVE_REQUEST_SECONDS_MAX = 1.0
_PLAINTEXT = 0
_NO_EPOCH = -1
# A controller that stood still with this node is given so long to notice, before its word counts.
_DOUBT_SECONDS_MIN = 0.1


class BrokerLife:
    def __init__(
        self,
        channel: ControllerChannel,
        settings: NodeSettings,
        *,
        node_id: int,
        cluster_id: str,
        incarnation_id: UUID,
        log_directory_id: UUID,
        features: list[Struct],
        applied_offset: Callable[[], int],
        known_epoch: Callable[[], int],
        is_outcast: Callable[[], bool],
    ) -> None:
        """`known_epoch` is by which the metadata know this node, -1 where they do not. `is_outcast` tells whether the
        other nodes have nothing to do with this one."""
        self._channel = channel
        self._settings = settings
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._log_directory_id = log_directory_id
        self._features = features
        self._applied_offset = applied_offset
        self._known_epoch = known_epoch
        self._is_outcast = is_outcast
        self._address = ("", 0)
        self._heartbeats: asyncio.Task[None] | None = None
        self._want_shut_down = False
        self._may_shut_down = asyncio.Event()
        # Of half a session nobody takes notice.
        self._standstill_s = settings["broker.session.timeout.ms"] / 2000
        self._clock: asyncio.TimerHandle | None = None
        self._seen_s = 0.0
        self._doubtful_since_s = float("-inf")
        self._unfenced_s = 0.0
        self.epoch = _NO_EPOCH
        self.is_fenced = True

    async def register(self, host: str, port: int, previous_epoch: int) -> None:
        """Sets `epoch`. `previous_epoch` is what a clean stop left behind, or -1. Raises Refused where the controller
        will never have this node."""
        self._address = host, port
        # Since when it is refused for which reason. The session of a node that was killed has to end before it may come
        # again, and a new controller gives it another one.
        refused_since_s: dict[ErrorCode, float] = {}
        patience_s = {
            ErrorCode.request_timed_out: _REGISTRATION_SECONDS_MAX,
            # The controller's disk is full: somebody may make room, or another node take over.
            ErrorCode.kafka_storage_error: _REGISTRATION_SECONDS_MAX,
            ErrorCode.duplicate_broker_registration: 3 * self._settings["broker.session.timeout.ms"] / 1000,
        }
        while True:
            problem = await self._try_to_register(previous_epoch)
            if problem is None:
                return
            now_s = asyncio.get_running_loop().time()
            if now_s - refused_since_s.setdefault(problem.code, now_s) >= patience_s.get(problem.code, 0):
                raise problem
            await asyncio.sleep(_RETRY_SECONDS)

    async def _try_to_register(self, previous_epoch: int) -> Refused | None:
        host, port = self._address
        body = Struct(
            broker_id=self._node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[Struct(name="PLAINTEXT", host=host, port=port, security_protocol=_PLAINTEXT)],
            features=self._features,
            rack=self._settings["broker.rack"],
            is_migrating_zk_broker=False,
            log_dirs=[self._log_directory_id],
            previous_broker_epoch=previous_epoch,
        )
        try:
            answer = await self._channel.request(
                _BROKER_REGISTRATION, _REGISTRATION_VERSION, body, seconds_max=_REGISTRATION_REQUEST_SECONDS_MAX
            )
        except Refused as problem:
            if not self._is_outcast():
                return problem
            code = ErrorCode.inconsistent_cluster_id
        else:
            if answer.error_code == ErrorCode.none:
                self.epoch = answer.broker_epoch
                return None
            code = ErrorCode(answer.error_code)
        return Refused(code, _REFUSALS.get(code, f"the controller refuses this node: {code.name}"))

    def start(self) -> None:
        """Heartbeats from now on. The broker is unfenced once it has read the metadata that tells of it."""
        self._seen_s = asyncio.get_running_loop().time()
        self._heartbeats = asyncio.get_running_loop().create_task(self._beat())
        self._watch_clock()

    @property
    def is_in_doubt(self) -> bool:
        """Whether it stood still for so long that another may have taken its place, and has not heard since that none
        has."""
        self._look_at_clock()
        return self._unfenced_s < self._doubtful_since_s + _DOUBT_SECONDS_MIN

    def _look_at_clock(self) -> None:
        """Whoever looks first after a standstill notices it: a request may be served before any timer is."""
        if self._heartbeats is None:
            # It does not live yet.
            return
        now_s = asyncio.get_running_loop().time()
        if now_s - self._seen_s > self._standstill_s:
            log.warning("stood still for %.1f s, and asks the controller what has become of it", now_s - self._seen_s)
            self._doubtful_since_s = now_s
        self._seen_s = now_s

    def _watch_clock(self) -> None:
        self._look_at_clock()
        self._clock = asyncio.get_running_loop().call_later(self._standstill_s / 4, self._watch_clock)

    async def take_leave(self, seconds_max: float) -> bool:
        """Lets the controller move leaders away; whether it has."""
        if self._heartbeats is None:
            return False
        self._want_shut_down = True
        self._heartbeats.cancel()
        self._heartbeats = asyncio.get_running_loop().create_task(self._beat())
        try:
            async with asyncio.timeout(seconds_max):
                await self._may_shut_down.wait()
        except TimeoutError:
            return False
        finally:
            self._heartbeats.cancel()
        return True

    def stop(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        if self._clock is not None:
            self._clock.cancel()

    async def _beat(self) -> None:
        interval_s = self._settings["broker.heartbeat.interval.ms"] / 1000
        while True:
            patience_s = _LEAVE_REQUEST_SECONDS_MAX if self._want_shut_down else 10 * interval_s
            sent_s = asyncio.get_running_loop().time()
            try:
                answer = await self._channel.request(
                    _BROKER_HEARTBEAT, _HEARTBEAT_VERSION, self._heartbeat(), seconds_max=patience_s
                )
            except Refused as problem:
                log.warning("no heartbeat reached the controller: %s", problem)
                if self._want_shut_down:
                    # The others have gone too: there is nobody to take leave of.
                    self._may_shut_down.set()
                continue
            if answer.error_code == ErrorCode.stale_broker_epoch and self._known_epoch() > self.epoch:
                self.is_fenced = True
                # Not after a clean stop, whatever it was before: who was let in meanwhile may have written.
                refusal = await self._try_to_register(_NO_EPOCH)
                if refusal is not None:
                    log.warning("somebody else was registered as this node: %s", refusal)
                    await asyncio.sleep(interval_s)
                    continue
                log.warning("the node before this one was registered again, later than it; that is put right")
            elif answer.error_code != ErrorCode.none:
                log.warning("the controller refuses a heartbeat: %s", ErrorCode(answer.error_code).name)
            else:
                self.is_fenced = answer.is_fenced
                if not answer.is_fenced:
                    self._unfenced_s = sent_s
                if answer.should_shut_down:
                    self._may_shut_down.set()
            # Whoever wants to be let in or out asks more often.
            is_waiting = self.is_fenced or self._want_shut_down or self.is_in_doubt
            await asyncio.sleep(min(interval_s, 0.02) if is_waiting else interval_s)

    def _heartbeat(self) -> Struct:
        return Struct(
            broker_id=self._node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._applied_offset() - 1,
            want_fence=False,
            want_shut_down=self._want_shut_down,
            offline_log_dirs=[],
        )


_REFUSALS = {
    ErrorCode.inconsistent_cluster_id: "the data directory belongs to another cluster than the one this node asks to "
    "join: check controller.quorum.voters, or choose another directory with --data",
    ErrorCode.duplicate_broker_registration: "another node with the same id is running: give this one an id of its own",
    ErrorCode.kafka_storage_error: "the controller cannot write: see its log, and whether its disk is full",
}
