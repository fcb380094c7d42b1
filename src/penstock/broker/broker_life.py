"""This broker in the eyes of the controller: it registers, sends heartbeats, and takes its leave before it stops."""

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
        is_outcast: Callable[[], bool],
    ) -> None:
        """`is_outcast` tells whether the other nodes have nothing to do with this one."""
        self._channel = channel
        self._settings = settings
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._log_directory_id = log_directory_id
        self._features = features
        self._applied_offset = applied_offset
        self._is_outcast = is_outcast
        self._heartbeats: asyncio.Task[None] | None = None
        self._want_shut_down = False
        self._may_shut_down = asyncio.Event()
        self.epoch = -1
        self.is_fenced = True

    async def register(self, host: str, port: int, previous_epoch: int) -> None:
        """Sets `epoch`. `previous_epoch` is what a clean stop left behind, or -1. Raises Refused where the controller
        will never have this node."""
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
            problem = await self._try_to_register(body)
            if problem is None:
                return
            now_s = asyncio.get_running_loop().time()
            if now_s - refused_since_s.setdefault(problem.code, now_s) >= patience_s.get(problem.code, 0):
                raise problem
            await asyncio.sleep(_RETRY_SECONDS)

    async def _try_to_register(self, body: Struct) -> Refused | None:
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
        self._heartbeats = asyncio.get_running_loop().create_task(self._beat())

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

    async def _beat(self) -> None:
        interval_s = self._settings["broker.heartbeat.interval.ms"] / 1000
        while True:
            patience_s = _LEAVE_REQUEST_SECONDS_MAX if self._want_shut_down else 10 * interval_s
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
            if answer.error_code != ErrorCode.none:
                log.warning("the controller refuses a heartbeat: %s", ErrorCode(answer.error_code).name)
            else:
                self.is_fenced = answer.is_fenced
                if answer.should_shut_down:
                    self._may_shut_down.set()
            # Whoever wants to be let in or out asks more often.
            is_waiting = self.is_fenced or self._want_shut_down
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
