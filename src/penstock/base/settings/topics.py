"""The settings of a topic, and the broker-wide settings that give their defaults.

Each topic setting names the broker setting that stands in for it. Where both have the same type, bounds and default,
only the topic's is declared here and the broker's is derived from it, so the two cannot drift apart.
"""

from dataclasses import replace

from penstock.base.settings.definition import (
    LONG_MAX,
    AtLeast,
    Between,
    InvalidConfig,
    OneOf,
    Setting,
    Synonym,
    ThrottledReplicas,
    boolean,
    double,
    integer,
    listing,
    long,
    string,
)

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _with_defaults_from(broker_name: str, setting: Setting) -> Setting:
    return replace(setting, synonyms=(Synonym(broker_name),))


_SAME_ON_THE_BROKER = (
    _with_defaults_from(
        "log.cleanup.policy",
        listing(
            "cleanup.policy",
            "delete",
            "What becomes of old segments: `delete` drops them by age and size, `compact` keeps the last value of "
            "each key, both together do both. An empty list keeps everything.",
            OneOf(("compact", "delete")),
        ),
    ),
    _with_defaults_from(
        "compression.type",
        string(
            "compression.type",
            "producer",
            "How batches are stored: `producer` keeps what the producer sent; a codec recompresses to it.",
            OneOf(CODECS),
        ),
    ),
    _with_defaults_from(
        "compression.gzip.level",
        integer("compression.gzip.level", -1, "The level when gzip is used to recompress.", Between(1, 9, -1)),
    ),
    _with_defaults_from(
        "compression.lz4.level",
        integer("compression.lz4.level", 9, "The level when lz4 is used to recompress.", Between(1, 17)),
    ),
    _with_defaults_from(
        "compression.zstd.level",
        integer("compression.zstd.level", 3, "The level when zstd is used to recompress.", Between(-131072, 22)),
    ),
    _with_defaults_from(
        "log.cleaner.delete.retention.ms",
        long("delete.retention.ms", 86_400_000, "How long a compacted topic keeps tombstones.", AtLeast(0)),
    ),
    _with_defaults_from(
        "log.segment.delete.delay.ms",
        long("file.delete.delay.ms", 60_000, "How long a deleted segment's file stays on the disk.", AtLeast(0)),
    ),
    _with_defaults_from(
        "log.flush.interval.messages",
        long(
            "flush.messages",
            LONG_MAX,
            "Sync a log after this many records. Without effect so far: `flush.mode` says when logs are synced.",
            AtLeast(1),
        ),
    ),
    _with_defaults_from(
        "log.flush.mode",
        string(
            "flush.mode",
            "auto",
            "When `acks=all` is answered: `ack` only after the log is synced to the disk, `none` once the in-sync "
            "replicas hold it in memory, `auto` is `ack` for a topic with one replica and `none` with more. Ours, "
            "not Kafka's.",
            OneOf(("auto", "ack", "none")),
        ),
    ),
    _with_defaults_from(
        "log.index.interval.bytes",
        integer("index.interval.bytes", 4096, "About how many log bytes lie between two index entries.", AtLeast(0)),
    ),
    _with_defaults_from(
        "log.local.retention.bytes",
        long(
            "local.retention.bytes",
            -2,
            "How much a partition keeps on the local disk when it is tiered; -2 means `retention.bytes`.",
            AtLeast(-2),
        ),
    ),
    _with_defaults_from(
        "log.local.retention.ms",
        long(
            "local.retention.ms",
            -2,
            "How long segments stay on the local disk when they are tiered; -2 means `retention.ms`.",
            AtLeast(-2),
        ),
    ),
    _with_defaults_from(
        "log.cleaner.max.compaction.lag.ms",
        long("max.compaction.lag.ms", LONG_MAX, "The longest a record waits for compaction.", AtLeast(1)),
    ),
    _with_defaults_from(
        "message.max.bytes",
        integer("max.message.bytes", 1_048_588, "The largest record batch taken, as it is on the wire.", AtLeast(0)),
    ),
    _with_defaults_from(
        "log.message.timestamp.after.max.ms",
        long(
            "message.timestamp.after.max.ms",
            _HOUR_MS,
            "How far in the future a record's own timestamp may lie; further is refused.",
            AtLeast(0),
        ),
    ),
    _with_defaults_from(
        "log.message.timestamp.before.max.ms",
        long(
            "message.timestamp.before.max.ms",
            LONG_MAX,
            "How far in the past a record's own timestamp may lie; further is refused.",
            AtLeast(0),
        ),
    ),
    _with_defaults_from(
        "log.message.timestamp.type",
        string(
            "message.timestamp.type",
            "CreateTime",
            "Whose clock stamps records: the producer's or the broker's.",
            OneOf(("CreateTime", "LogAppendTime")),
        ),
    ),
    _with_defaults_from(
        "log.cleaner.min.cleanable.ratio",
        double(
            "min.cleanable.dirty.ratio",
            "0.5",
            "A log is compacted once this share of it has not been compacted yet.",
            Between(0, 1),
        ),
    ),
    _with_defaults_from(
        "log.cleaner.min.compaction.lag.ms",
        long("min.compaction.lag.ms", 0, "The shortest time a record stays uncompacted.", AtLeast(0)),
    ),
    _with_defaults_from(
        "min.insync.replicas",
        integer("min.insync.replicas", 1, "With fewer replicas in sync, `acks=all` writes are refused.", AtLeast(1)),
    ),
    _with_defaults_from(
        "log.preallocate",
        boolean(
            "preallocate",
            False,
            "Whether segment files are made at their full size. Without effect: space is reserved as they grow.",
        ),
    ),
    _with_defaults_from(
        "log.retention.bytes",
        long("retention.bytes", -1, "The size past which a partition drops its oldest segments; -1: no limit."),
    ),
    _with_defaults_from(
        "log.segment.bytes",
        integer("segment.bytes", 1_073_741_824, "The size at which a segment is closed.", AtLeast(1_048_576)),
    ),
    _with_defaults_from(
        "log.index.size.max.bytes",
        integer("segment.index.bytes", 10_485_760, "The index size at which a segment is closed.", AtLeast(4)),
    ),
    _with_defaults_from(
        "unclean.leader.election.enable",
        boolean(
            "unclean.leader.election.enable",
            False,
            "Whether a replica that is not in sync may lead when no other is left. It loses records.",
        ),
    ),
)

# These have several broker settings behind them, in different units, which are declared among the broker settings.
_BY_SEVERAL_NAMES = (
    replace(
        long(
            "flush.ms",
            LONG_MAX,
            "Sync a partition's log at least this often. Without effect so far, as `flush.messages`.",
            AtLeast(0),
        ),
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
    replace(
        long("retention.ms", 604_800_000, "The age at which segments are dropped; -1: never.", AtLeast(-1)),
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
    ),
    replace(
        long("segment.jitter.ms", 0, "At most this much is taken off `segment.ms`, at random.", AtLeast(0)),
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    ),
    replace(
        long("segment.ms", 604_800_000, "The age at which a segment is closed even if it is small.", AtLeast(1)),
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    ),
)

_ONLY_OF_TOPICS = (
    replace(
        integer("internal.segment.bytes", None, "`segment.bytes` without its lower bound, for tests.", AtLeast(1)),
        internal=True,
    ),
    listing(
        "follower.replication.throttled.replicas",
        "",
        "The replicas whose fetching is throttled while partitions move.",
        ThrottledReplicas(),
    ),
    listing(
        "leader.replication.throttled.replicas",
        "",
        "The replicas whose serving is throttled while partitions move.",
        ThrottledReplicas(),
    ),
    boolean("remote.log.copy.disable", False, "Stops further tiering of a tiered topic; what is tiered stays."),
    boolean("remote.log.delete.on.disable", False, "Drops the tiered data when tiering is switched off."),
    boolean("remote.storage.enable", False, "Whether closed segments go to object storage."),
)

TOPIC_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in sorted(
        (*_SAME_ON_THE_BROKER, *_BY_SEVERAL_NAMES, *_ONLY_OF_TOPICS), key=lambda setting: setting.name
    )
}

BROKER_DEFAULTS_OF_TOPICS = tuple(
    replace(
        setting,
        name=setting.synonyms[0].name,
        doc=f"Where a topic does not say `{setting.name}` itself: {setting.doc[0].lower()}{setting.doc[1:]}",
        dynamic=True,
        synonyms=(),
    )
    for setting in _SAME_ON_THE_BROKER
)


def check_topic_overrides(overrides: dict[str, str]) -> None:
    """Whether these may be a topic's settings, one by one and together. Raises InvalidConfig."""
    values = {}
    for name, text in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        values[name] = setting.parse(text)
    lag_min = values.get("min.compaction.lag.ms", 0)
    lag_max = values.get("max.compaction.lag.ms", LONG_MAX)
    if lag_min > lag_max:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({lag_min}) > max.compaction.lag.ms ({lag_max})"
        )
    if values.get("remote.storage.enable"):
        raise InvalidConfig(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
