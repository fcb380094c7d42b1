"""From a frame to its handler. `APIS` is the one list of what this broker serves."""

import logging

from penstock.broker.api import Answer, Api, HotApi, RequestContext
from penstock.broker.broker import Broker
from penstock.broker.connection import Connection, Deferred
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
    api_32_describe_configs,
    api_33_alter_configs,
    api_35_describe_log_dirs,
    api_37_create_partitions,
    api_42_delete_groups,
    api_44_incremental_alter_configs,
    api_47_offset_delete,
    api_60_describe_cluster,
    api_68_consumer_group_heartbeat,
    api_69_consumer_group_describe,
    api_74_list_config_resources,
    api_75_describe_topic_partitions,
)
from penstock.protocol.frames import HEADER, HEADER_BYTES, body_position, is_flexible, read_client_id
from penstock.protocol.messages import Malformed, Struct, decode_request, encode_response

log = logging.getLogger("penstock.router")

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
    api_32_describe_configs.API,
    api_33_alter_configs.API,
    api_35_describe_log_dirs.API,
    api_37_create_partitions.API,
    api_42_delete_groups.API,
    api_44_incremental_alter_configs.API,
    api_47_offset_delete.API,
    api_60_describe_cluster.API,
    api_68_consumer_group_heartbeat.API,
    api_69_consumer_group_describe.API,
    api_74_list_config_resources.API,
    api_75_describe_topic_partitions.API,
)


class Router:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._apis = {api.key: api for api in APIS}
        # By API key and version; filled as clients ask, because knowing it takes loading the version's schema.
        self._flexible: dict[tuple[int, int], bool] = {}
        broker.served_apis = APIS

    def dispatch(self, connection: Connection, frame: memoryview) -> Answer:
        # Hot: every request comes through here.
        if len(frame) < HEADER_BYTES:
            raise Malformed("the frame is too short for a request header")
        api_key, version, correlation_id, client_id_bytes = HEADER.unpack_from(frame)
        flexible = self._flexible.get((api_key, version))
        if flexible is None:
            refusal = self._first_use(api_key, version, correlation_id)
            if refusal is not None:
                return refusal
            flexible = self._flexible[api_key, version]
        position = body_position(frame, client_id_bytes, flexible)
        api = self._apis[api_key]
        if isinstance(api, HotApi):
            return api.handle_frame(self._broker, connection, version, correlation_id, frame, position)
        context = RequestContext(version, read_client_id(frame, client_id_bytes), connection)
        return self._dispatch_decoded(api, context, correlation_id, frame, position)

    def _first_use(self, api_key: int, version: int, correlation_id: int) -> Answer:
        """Notes whether the version is flexible, or refuses it: by an answer where Kafka has one, else by Malformed."""
        api = self._apis.get(api_key)
        if api is None:
            raise Malformed(f"API key {api_key} is not served")
        if api.version_min <= version <= api.version_max:
            self._flexible[api_key, version] = is_flexible(api_key, version)
            return None
        if api_key == api_18_api_versions.API.key:
            # A client that is newer than we are learns from a version 0 answer what it can speak (KIP-35).
            return [encode_response(api_key, 0, correlation_id, api_18_api_versions.unsupported_version())]
        raise Malformed(f"{api.name} version {version} is not served ({api.version_min} to {api.version_max} are)")

    def _dispatch_decoded(
        self, api: Api, context: RequestContext, correlation_id: int, frame: memoryview, position: int
    ) -> Answer:
        request = decode_request(api.key, context.version, frame, position)
        result = api.handle(self._broker, context, request)
        if isinstance(result, Struct):
            return [encode_response(api.key, context.version, correlation_id, result)]
        deferred = Deferred()
        is_later = False

        def finish(answer: Struct | None, problem: BaseException | None) -> None:
            try:
                if problem is not None:
                    raise problem
                assert answer is not None
                deferred.complete([encode_response(api.key, context.version, correlation_id, answer)])
            except Exception:
                if not is_later:
                    # The connection is waiting for us, and knows what to do with it.
                    raise
                log.exception("%s version %d met a defect in the broker", api.name, context.version)
                deferred.fail("see the error above")

        run_eagerly(result, finish)
        is_later = True
        return deferred
