"""The features of the cluster (KIP-584): which levels this version can do, and how a level is changed (UpdateFeatures).

A level in force is one that every registered broker can do. `metadata.version` says which record schemas the metadata
log has; a log opens with the levels of a new cluster.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.base.errors import ErrorCode, Refused
from penstock.cluster.metadata.decision import Decision
from penstock.cluster.metadata.image import MetadataImage
from penstock.cluster.metadata.records import ClearElrRecord, FeatureLevelRecord, MetadataRecord

METADATA_VERSION_FEATURE = "metadata.version"
# Kafka 4.3's level (4.3-IV0), whose record schemas ours are.
METADATA_VERSION = 30
ELR_FEATURE = "eligible.leader.replicas.version"
# With level 2 clients leave it to brokers to add partitions, and have an epoch per transaction (KIP-890).
TRANSACTION_VERSION_FEATURE = "transaction.version"

# What this version of Penstock can do, lowest and highest level.
SUPPORTED_FEATURES: dict[str, tuple[int, int]] = {
    METADATA_VERSION_FEATURE: (7, METADATA_VERSION),
    ELR_FEATURE: (0, 1),
    TRANSACTION_VERSION_FEATURE: (0, 2),
}


class UpgradeType(enum.IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    feature: str
    max_version_level: int
    upgrade_type: int = UpgradeType.UPGRADE


@dataclass(frozen=True, slots=True)
class UpdatedFeature:
    feature: str
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


def opening_records(image: MetadataImage) -> list[MetadataRecord]:
    """What a metadata log opens with; nothing where it has been opened."""
    if METADATA_VERSION_FEATURE in image.features:
        return []
    return [FeatureLevelRecord(name=name, feature_level=high) for name, (_, high) in SUPPORTED_FEATURES.items()]


def has_elr(image: MetadataImage) -> bool:
    return image.features.get(ELR_FEATURE, 0) > 0


def update_features(
    image: MetadataImage, requested: Sequence[FeatureUpdate], *, validate_only: bool
) -> Decision[list[UpdatedFeature]]:
    """All or nothing, as in Kafka: where one is refused, none is changed."""
    records: list[MetadataRecord] = []
    answer = []
    for update in requested:
        try:
            records += _update(image, update)
        except Refused as refused:
            answer.append(UpdatedFeature(update.feature, refused.code, refused.message))
        else:
            answer.append(UpdatedFeature(update.feature))
    if validate_only or any(one.error_code for one in answer):
        records = []
    return Decision(answer, records)


def _update(image: MetadataImage, update: FeatureUpdate) -> list[MetadataRecord]:
    name, level = update.feature, update.max_version_level
    present = image.features.get(name, 0)
    if name not in SUPPORTED_FEATURES:
        raise _invalid(name, level, "The controller does not support the given feature.")
    if update.upgrade_type not in UpgradeType.__members__.values():
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    _check_supported(image, name, level)
    if level < present and update.upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(
            name,
            level,
            f"Can't downgrade the version of this feature from {present} to {level} without setting the upgrade type "
            "to either safe or unsafe downgrade.",
        )
    if level > present and update.upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")
    if level == present:
        return []
    if name == METADATA_VERSION_FEATURE and level < present:
        # Older schemas would need the whole log written anew.
        raise _invalid(name, level, "Downgrades of metadata.version are not supported in this version of Penstock.")
    records: list[MetadataRecord] = [FeatureLevelRecord(name=name, feature_level=level)]
    if name == ELR_FEATURE and level == 0:
        records.append(ClearElrRecord(topic_name=""))
    return records


def _check_supported(image: MetadataImage, name: str, level: int) -> None:
    low, high = SUPPORTED_FEATURES[name]
    if level and not low <= level <= high:
        raise _invalid(name, level, f"Local controller only supports versions {low}-{high}")
    for broker in sorted(image.brokers.values(), key=lambda broker: broker.id):
        low, high = broker.features.get(name, (0, 0))
        if level and not low <= level <= high:
            if high == 0:
                raise _invalid(name, level, f"Broker {broker.id} does not support this feature.")
            raise _invalid(name, level, f"Broker {broker.id} only supports versions {low}-{high}")


def _invalid(name: str, level: int, why: str) -> Refused:
    return Refused(ErrorCode.invalid_update_version, f"Invalid update version {level} for feature {name}. {why}")
