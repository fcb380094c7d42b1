"""UpdateFeatures (key 57), versions 0-2.

Raises or lowers the levels of cluster features (KIP-584), all that are asked for or none. Version 0 says "may be
lowered" where later ones name the kind of downgrade; version 2 has one answer for all features.
"""

from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.api import Api, Broker, RequestContext
from penstock.cluster.metadata.features import FeatureUpdate, UpdatedFeature, UpgradeType
from penstock.protocol.messages import Struct


async def handle(broker: Broker, context: RequestContext, request: Any) -> Struct:
    updates = [FeatureUpdate(one.feature, one.max_version_level, _upgrade_type(one)) for one in request.feature_updates]
    validate_only = getattr(request, "validate_only", False)
    try:
        answer = await broker.decide(
            lambda controller: controller.update_features(updates, validate_only=validate_only)
        )
    except Refused as refused:
        return Struct(error_code=refused.code, error_message=refused.message)
    refused_one = next((one for one in answer if one.error_code), None)
    if refused_one is None:
        # Kafka's message for "no error", which other answers leave out.
        return Struct(
            error_code=ErrorCode.none,
            results=[UpdatedFeature(one.feature, error_message="NONE") for one in answer],
        )
    message = "The update failed for all features since the following feature had an error: "
    return Struct(error_code=refused_one.error_code, error_message=f"{message}{refused_one.error_message}")


def _upgrade_type(update: Any) -> int:
    if hasattr(update, "upgrade_type"):
        return int(update.upgrade_type)
    return UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE


API = Api(57, "UpdateFeatures", 0, 2, handle, on_controller=True)
