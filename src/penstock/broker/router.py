"""From a frame to its handler. `APIS` is the one list of what this broker serves."""

import asyncio
import logging
from collections.abc import Coroutine
from struct import Struct as Packer
from time import perf_counter_ns
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Answer, Api, HotApi, RequestContext
from penstock.broker.broker import Broker
from penstock.broker.connection import Connection
from penstock.broker.deferred import Deferred, note_time
from penstock.broker.eager import run_eagerly
from penstock.broker.handlers import (
    api_00_produce,
    api_01_fetch,
    api_02_list_offsets,
    api_03_metadata,
    api_08_offset_commit,
    api_09_offset_fetch,
    api_10_find_coordinator,
    api_11_join_group,
    api_12_heartbeat,
    api_13_leave_group,
    api_14_sync_group,
    api_15_describe_groups,
    api_16_list_groups,
    api_18_api_versions,
    api_19_create_topics,
    api_20_delete_topics,
    api_21_delete_records,
    api_22_init_producer_id,
    api_23_offset_for_leader_epoch,
    api_24_add_partitions_to_txn,
    api_25_add_offsets_to_txn,
    api_26_end_txn,
    api_27_write_txn_markers,
    api_28_txn_offset_commit,
    api_32_describe_configs,
    api_33_alter_configs,
    api_35_describe_log_dirs,
    api_37_create_partitions,
    api_42_delete_groups,
    api_43_elect_leaders,
    api_44_incremental_alter_configs,
    api_45_alter_partition_reassignments,
    api_46_list_partition_reassignments,
    api_47_offset_delete,
    api_52_vote,
    api_53_begin_quorum_epoch,
    api_54_end_quorum_epoch,
    api_55_describe_quorum,
    api_56_alter_partition,
    api_57_update_features,
    api_58_envelope,
    api_59_fetch_snapshot,
    api_60_describe_cluster,
    api_61_describe_producers,
    api_62_broker_registration,
    api_63_broker_heartbeat,
    api_64_unregister_broker,
    api_65_describe_transactions,
    api_66_list_transactions,
    api_67_allocate_producer_ids,
    api_68_consumer_group_heartbeat,
    api_69_consumer_group_describe,
    api_70_controller_registration,
    api_73_assign_replicas_to_dirs,
    api_74_list_config_resources,
    api_75_describe_topic_partitions,
    api_80_add_raft_voter,
    api_81_remove_raft_voter,
    api_82_update_raft_voter,
)
from penstock.broker.metrics import RequestTimes
from penstock.protocol.frames import HEADER, HEADER_BYTES, body_position, is_flexible, read_client_id
from penstock.protocol.messages import Malformed, Struct, decode_request, encode_response

log = logging.getLogger("penstock.router")

_PRODUCE = 0
_ENVELOPE = 58
_FORWARD_SECONDS_MAX = 10.0
_FRAME = Packer(">ii")

APIS: tuple[Api | HotApi, ...] = (
    api_00_produce.API,
    api_01_fetch.API,
    api_02_list_offsets.API,
    api_03_metadata.API,
    api_08_offset_commit.API,
    api_09_offset_fetch.API,
    api_10_find_coordinator.API,
    api_11_join_group.API,
    api_12_heartbeat.API,
    api_13_leave_group.API,
    api_14_sync_group.API,
    api_15_describe_groups.API,
    api_16_list_groups.API,
    api_18_api_versions.API,
    api_19_create_topics.API,
    api_20_delete_topics.API,
    api_21_delete_records.API,
    api_22_init_producer_id.API,
    api_23_offset_for_leader_epoch.API,
    api_24_add_partitions_to_txn.API,
    api_25_add_offsets_to_txn.API,
    api_26_end_txn.API,
    api_27_write_txn_markers.API,
    api_28_txn_offset_commit.API,
    api_32_describe_configs.API,
    api_33_alter_configs.API,
    api_35_describe_log_dirs.API,
    api_37_create_partitions.API,
    api_42_delete_groups.API,
    api_43_elect_leaders.API,
    api_44_incremental_alter_configs.API,
    api_45_alter_partition_reassignments.API,
    api_46_list_partition_reassignments.API,
    api_47_offset_delete.API,
    api_52_vote.API,
    api_53_begin_quorum_epoch.API,
    api_54_end_quorum_epoch.API,
    api_55_describe_quorum.API,
    api_56_alter_partition.API,
    api_57_update_features.API,
    api_58_envelope.API,
    api_59_fetch_snapshot.API,
    api_60_describe_cluster.API,
    api_61_describe_producers.API,
    api_62_broker_registration.API,
    api_63_broker_heartbeat.API,
    api_64_unregister_broker.API,
    api_65_describe_transactions.API,
    api_66_list_transactions.API,
    api_67_allocate_producer_ids.API,
    api_68_consumer_group_heartbeat.API,
    api_69_consumer_group_describe.API,
    api_70_controller_registration.API,
    api_73_assign_replicas_to_dirs.API,
    api_74_list_config_resources.API,
    api_75_describe_topic_partitions.API,
    api_80_add_raft_voter.API,
    api_81_remove_raft_voter.API,
    api_82_update_raft_voter.API,
)


# What a node serves that only controls: the messages that Kafka's schemas list for the controller's listener.
_OF_CONTROLLERS = frozenset(
    (1, 18, 19, 20, 32, 33, 37, 43, 44, 45, 46, 52, 53, 54, 55, 56, 57, 58, 59, 60, 62, 63, 64, 67, 70, 73, 80, 81, 82)
)


class _Used(NamedTuple):
    """A version of an API that somebody speaks."""

    api: Api | HotApi
    is_flexible: bool
    times: RequestTimes


class Router:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        apis = [api for api in APIS if broker.hosts_partitions or api.key in _OF_CONTROLLERS]
        self._apis = {api.key: api for api in apis}
        # By API key and version; filled as clients ask, because knowing it takes loading the version's schema.
        self._used: dict[tuple[int, int], _Used] = {}
        broker.served_apis = [api for api in apis if isinstance(api, HotApi) or not api.is_for_brokers]
        broker.ask_here = self._ask_here
        broker.answer_frame = self._answer_frame
        self._times = {api.key: broker.metrics.times_of(api.key, api.name) for api in APIS}

    def dispatch(self, connection: Connection, frame: memoryview) -> Answer:
        # Hot: every request comes through here.
        if len(frame) < HEADER_BYTES:
            raise Malformed("the frame is too short for a request header")
        api_key, version, correlation_id, client_id_bytes = HEADER.unpack_from(frame)
        used = self._used.get((api_key, version))
        if used is None:
            refusal = self._first_use(api_key, version, correlation_id)
            if refusal is not None:
                return refusal
            used = self._used[api_key, version]
        api, flexible, times = used
        position = body_position(frame, client_id_bytes, flexible)
        started_ns = perf_counter_ns()
        if connection.settle is not None and api_key != _PRODUCE:
            connection.settle()
        if isinstance(api, HotApi):
            answer = api.handle_frame(self._broker, connection, version, correlation_id, frame, position)
        else:
            context = RequestContext(version, read_client_id(frame, client_id_bytes), connection)
            answer = self._dispatch_decoded(api, context, correlation_id, frame, position)
        note_time(answer, times, started_ns)
        return answer

    def _first_use(self, api_key: int, version: int, correlation_id: int) -> Answer:
        """Notes whether the version is flexible, or refuses it: by an answer where Kafka has one, else by Malformed."""
        api = self._apis.get(api_key)
        if api is None:
            raise Malformed(f"API key {api_key} is not served")
        if api.version_min <= version <= api.version_max:
            self._used[api_key, version] = _Used(api, is_flexible(api_key, version), self._times[api_key])
            return None
        if api_key == api_18_api_versions.API.key:
            # A client that is newer than we are learns from a version 0 answer what it can speak (KIP-35).
            return [encode_response(api_key, 0, correlation_id, api_18_api_versions.unsupported_version())]
        raise Malformed(f"{api.name} version {version} is not served ({api.version_min} to {api.version_max} are)")

    def _dispatch_decoded(
        self, api: Api, context: RequestContext, correlation_id: int, frame: memoryview, position: int
    ) -> Answer:
        if api.on_controller and not self._broker.controller.is_active:
            return self._finish_later(api, context, correlation_id, self._forward(bytes(frame)))
        request = decode_request(api.key, context.version, frame, position)
        if self._broker.is_ready.is_set() or api.is_for_brokers or api is api_18_api_versions.API:
            result = api.handle(self._broker, context, request)
        else:
            result = self._handle_when_ready(api, context, request)
        if isinstance(result, Struct):
            return [encode_response(api.key, context.version, correlation_id, result)]
        return self._finish_later(api, context, correlation_id, result)

    def _finish_later(
        self,
        api: Api,
        context: RequestContext,
        correlation_id: int,
        result: Coroutine[Any, None, Struct] | Coroutine[Any, None, bytes],
    ) -> Deferred:
        """`result` is an answer, or the frame of one that another node gave, without its size."""
        deferred = Deferred()
        is_later = False

        def finish(answer: Any, problem: BaseException | None) -> None:
            if isinstance(problem, asyncio.CancelledError):
                deferred.fail("the node stopped before there was an answer")
                return
            try:
                if problem is not None:
                    raise problem
                if isinstance(answer, bytes):
                    deferred.complete([_FRAME.pack(len(answer), correlation_id), answer[4:]])
                else:
                    deferred.complete([encode_response(api.key, context.version, correlation_id, answer)])
            except Exception:
                if isinstance(problem, Refused):
                    # There is no controller to pass it on to; by a closed connection the client learns to ask again.
                    deferred.fail(f"{api.name} could not be passed on: {problem.message}")
                    return
                if not is_later:
                    # The connection is waiting for us, and knows what to do with it.
                    raise
                log.exception("%s version %d met a defect in the broker", api.name, context.version)
                deferred.fail("see the error above")

        run_eagerly(result, finish)
        is_later = True
        return deferred

    async def _handle_when_ready(self, api: Api, context: RequestContext, request: Any) -> Struct:
        await self._broker.is_ready.wait()
        return await self._ask(api, context, request)

    # Between nodes

    async def _forward(self, frame: bytes) -> bytes:
        """The active controller's answer to a client's request. Raises Refused."""
        body = Struct(request_data=frame, request_principal=None, client_host_address=b"")
        answer = await self._broker.channel.request(_ENVELOPE, 0, body, seconds_max=_FORWARD_SECONDS_MAX)
        if answer.error_code:
            raise Refused(ErrorCode(answer.error_code), "the controller refuses what was passed on to it")
        return bytes(answer.response_data)

    async def _answer_frame(self, frame: bytes) -> bytes:
        """The answer's frame, without its size, to a request that another node passed on. Raises Malformed."""
        if len(frame) < HEADER_BYTES:
            raise Malformed("what was passed on is too short for a request")
        api_key, version, correlation_id, client_id_bytes = HEADER.unpack_from(frame)
        api = self._apis.get(api_key)
        if not isinstance(api, Api) or not api.version_min <= version <= api.version_max:
            raise Malformed(f"API key {api_key} version {version} cannot be passed on")
        view = memoryview(frame)
        position = body_position(view, client_id_bytes, is_flexible(api_key, version))
        request = decode_request(api_key, version, view, position)
        answer = await self._ask(api, RequestContext(version, read_client_id(view, client_id_bytes), None), request)
        return bytes(encode_response(api_key, version, correlation_id, answer)[4:])

    async def _ask_here(self, api_key: int, version: int, body: Struct) -> Any:
        api = self._apis[api_key]
        assert isinstance(api, Api)
        return await self._ask(api, RequestContext(version, None, None), body)

    async def _ask(self, api: Api, context: RequestContext, request: Any) -> Struct:
        result: Any = api.handle(self._broker, context, request)
        answer: Struct = result if isinstance(result, Struct) else await result
        return answer
