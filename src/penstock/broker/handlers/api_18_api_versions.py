"""ApiVersions (key 18), versions 0-4.

Lists what the router serves, and the feature levels of the cluster (KIP-584). A version that we do not know is answered
in version 0 with UNSUPPORTED_VERSION and the range of this API, so that the client can ask again (KIP-35). Version 4
may show features whose lowest level is 0 (KIP-896); older ones would take that for nonsense.
"""

import re
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.features import SUPPORTED_FEATURES
from penstock.cluster.raft.messages import KRAFT_VERSION_FEATURE
from penstock.cluster.raft.voters import KRAFT_VERSION_RECONFIGURABLE, KRAFT_VERSION_STATIC
from penstock.protocol.messages import Struct

# The quorum's own level is no record of the controller's: a leader asks for it here before it lets a node vote.
_SHOWN_FEATURES = {
    **SUPPORTED_FEATURES,
    KRAFT_VERSION_FEATURE: (KRAFT_VERSION_STATIC, KRAFT_VERSION_RECONFIGURABLE),
}
_VERSION_MAX = 4
# Produce is listed from 0 though it is served from 3, as Kafka does (KAFKA-18659): older librdkafkas take a higher
# minimum for a broker that cannot do compression.
_LISTED_FROM = {0: 0}
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    if context.version >= 3 and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return Struct(error_code=ErrorCode.invalid_request)
    levels = {**broker.image.features, KRAFT_VERSION_FEATURE: broker.quorum.kraft_version}
    return Struct(
        api_keys=[
            Struct(
                api_key=api.key,
                min_version=_LISTED_FROM.get(api.key, api.version_min),
                max_version=api.version_max,
            )
            for api in broker.served_apis
            if not getattr(api, "is_for_brokers", False)
        ],
        supported_features=[
            Struct(name=name, min_version=low, max_version=high)
            for name, (low, high) in _SHOWN_FEATURES.items()
            if low > 0 or context.version >= 4
        ],
        finalized_features_epoch=broker.metadata_offset,
        finalized_features=[
            Struct(name=name, min_version_level=level, max_version_level=level)
            for name, level in levels.items()
            if level > 0
        ],
    )


def unsupported_version() -> Struct:
    own_range = Struct(api_key=18, min_version=0, max_version=_VERSION_MAX)
    return Struct(error_code=ErrorCode.unsupported_version, api_keys=[own_range])


API = Api(18, "ApiVersions", 0, _VERSION_MAX, handle)
