"""The settings of the group, share and transaction coordinators, and those of a single group."""

from dataclasses import replace

from penstock.base.settings.definition import (
    INT_MAX,
    AtLeast,
    Between,
    OneOf,
    Setting,
    Synonym,
    boolean,
    integer,
    listing,
    long,
    short,
    string,
)

# What a topic's own `segment.bytes` allows: with less, a coordinator's topic could not be made.
_SEGMENT_BYTES = AtLeast(1_048_576)

_OFFSETS = (
    integer("offset.metadata.max.bytes", 4096, "The longest text a consumer may attach to a committed offset."),
    integer("offsets.commit.timeout.ms", 5000, "How long a commit may wait for its replicas.", AtLeast(1)),
    long("offsets.retention.check.interval.ms", 600_000, "How often old offsets are looked for.", AtLeast(1)),
    integer(
        "offsets.retention.minutes", 10_080, "How long the offsets of a group without members are kept.", AtLeast(1)
    ),
    integer("offsets.topic.compression.codec", 0, "The codec of `__consumer_offsets`: 0 none, 1 gzip, 2 snappy, ..."),
    integer("offsets.topic.num.partitions", 50, "The partitions of `__consumer_offsets`.", AtLeast(1)),
    short("offsets.topic.replication.factor", 3, "The replicas of `__consumer_offsets`.", AtLeast(1)),
    integer("offsets.topic.segment.bytes", 104_857_600, "The segment size of `__consumer_offsets`.", _SEGMENT_BYTES),
)

_GROUPS = (
    integer(
        "group.consumer.assignment.interval.ms",
        1000,
        "The least time between two assignments of a group.",
        AtLeast(0),
        dynamic=True,
    ),
    listing("group.consumer.assignors", "uniform,range", "The assignors offered; the first is the default."),
    integer("group.consumer.heartbeat.interval.ms", 5000, "How often members must report.", AtLeast(1)),
    integer("group.consumer.max.assignment.interval.ms", 15_000, "The most a group may ask for.", AtLeast(0)),
    integer("group.consumer.max.heartbeat.interval.ms", 15_000, "The most a group may ask for.", AtLeast(1)),
    integer("group.consumer.max.session.timeout.ms", 60_000, "The most a group may ask for.", AtLeast(1)),
    integer("group.consumer.max.size", INT_MAX, "The most members of a group.", AtLeast(1)),
    string(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether groups change over between the classic and the new protocol.",
        OneOf(("disabled", "downgrade", "upgrade", "bidirectional")),
    ),
    integer("group.consumer.min.assignment.interval.ms", 0, "The least a group may ask for.", AtLeast(0)),
    integer("group.consumer.min.heartbeat.interval.ms", 5000, "The least a group may ask for.", AtLeast(1)),
    integer("group.consumer.min.session.timeout.ms", 45_000, "The least a group may ask for.", AtLeast(1)),
    integer("group.consumer.session.timeout.ms", 45_000, "A member silent for so long is put out.", AtLeast(1)),
    listing(
        "group.coordinator.rebalance.protocols",
        "classic,consumer,share",
        "The group protocols served. Kafka has `streams` as well.",
        OneOf(("consumer", "classic", "share")),
    ),
    integer("group.initial.rebalance.delay.ms", 3000, "How long a new classic group waits for more members."),
    integer("group.max.session.timeout.ms", 1_800_000, "The longest session a classic member may ask for."),
    integer("group.max.size", INT_MAX, "The most members of a classic group.", AtLeast(1)),
    integer("group.min.session.timeout.ms", 6000, "The shortest session a classic member may ask for."),
)

_SHARE_GROUPS = (
    integer(
        "group.share.assignment.interval.ms",
        1000,
        "The least time between two assignments of a share group.",
        AtLeast(0),
        dynamic=True,
    ),
    listing("group.share.assignors", "simple", "The assignors of share groups."),
    integer("group.share.delivery.count.limit", 5, "How often a record is offered.", Between(2, 10)),
    integer("group.share.heartbeat.interval.ms", 5000, "How often members must report.", AtLeast(1)),
    integer("group.share.max.assignment.interval.ms", 15_000, "The most a group may ask for.", AtLeast(0)),
    integer("group.share.max.delivery.count.limit", 10, "The most a group may ask for.", Between(5, 25)),
    integer("group.share.max.heartbeat.interval.ms", 15_000, "The most a group may ask for.", AtLeast(1)),
    integer("group.share.max.partition.max.record.locks", 4000, "The most a group may ask for.", Between(2000, 10_000)),
    integer(
        "group.share.max.record.lock.duration.ms", 60_000, "The most a group may ask for.", Between(30_000, 3_600_000)
    ),
    integer("group.share.max.session.timeout.ms", 60_000, "The most a group may ask for.", AtLeast(1)),
    integer("group.share.max.share.sessions", 2000, "Share sessions remembered per node.", AtLeast(1)),
    integer("group.share.max.size", 200, "The most members of a share group.", Between(1, 1000)),
    integer("group.share.min.assignment.interval.ms", 0, "The least a group may ask for.", AtLeast(0)),
    integer("group.share.min.delivery.count.limit", 2, "The least a group may ask for.", Between(2, 5)),
    integer("group.share.min.heartbeat.interval.ms", 5000, "The least a group may ask for.", AtLeast(1)),
    integer("group.share.min.partition.max.record.locks", 100, "The least a group may ask for.", Between(100, 2000)),
    integer("group.share.min.record.lock.duration.ms", 15_000, "The least a group may ask for.", Between(1000, 30_000)),
    integer("group.share.min.session.timeout.ms", 45_000, "The least a group may ask for.", AtLeast(1)),
    integer("group.share.partition.max.record.locks", 2000, "Records in flight per partition.", Between(100, 10_000)),
    integer(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a consumer may hold a record.",
        Between(1000, 3_600_000),
    ),
    integer("group.share.session.timeout.ms", 45_000, "A member silent for so long is put out.", AtLeast(1)),
    integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "State updates between two snapshots of a share partition.",
        Between(0, 500),
    ),
    short("share.coordinator.state.topic.min.isr", 2, "`min.insync.replicas` of the share state topic.", AtLeast(1)),
    integer("share.coordinator.state.topic.num.partitions", 50, "The partitions of the share state topic.", AtLeast(1)),
    short("share.coordinator.state.topic.replication.factor", 3, "The replicas of the share state topic.", AtLeast(1)),
    integer(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "The segment size of the share state topic.",
        _SEGMENT_BYTES,
    ),
)

_TRANSACTIONS = (
    integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "Taken as from Kafka, but without use: a transaction is aborted as soon as its time is up.",
        AtLeast(1),
    ),
    integer("transaction.max.timeout.ms", 900_000, "The longest transaction a producer may ask for.", AtLeast(1)),
    boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a partition asks the coordinator before it takes the first write of a transaction.",
        dynamic=True,
    ),
    integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often unused transactional ids are looked for.",
        AtLeast(1),
    ),
    integer("transaction.state.log.min.isr", 2, "`min.insync.replicas` of `__transaction_state`.", AtLeast(1)),
    integer("transaction.state.log.num.partitions", 50, "The partitions of `__transaction_state`.", AtLeast(1)),
    short("transaction.state.log.replication.factor", 3, "The replicas of `__transaction_state`.", AtLeast(1)),
    integer(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "The segment size of `__transaction_state`.",
        _SEGMENT_BYTES,
    ),
    boolean(
        "transaction.two.phase.commit.enable",
        False,
        "Whether producers may take part in two-phase commits (KIP-939), whose transactions never time out.",
    ),
    integer("transactional.id.expiration.ms", 604_800_000, "How long an unused transactional id is kept.", AtLeast(1)),
)

COORDINATOR_SETTINGS: tuple[Setting, ...] = (*_OFFSETS, *_GROUPS, *_SHARE_GROUPS, *_TRANSACTIONS)


def _of_a_group(name: str, broker_name: str, rule: AtLeast) -> Setting:
    """A group's own value of what the broker setting says for all."""
    (broker,) = (setting for setting in COORDINATOR_SETTINGS if setting.name == broker_name)
    return replace(broker, name=name, rule=rule, dynamic=True, synonyms=(Synonym(broker_name),))


GROUP_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        _of_a_group("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms", AtLeast(0)),
        _of_a_group("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms", AtLeast(1)),
        _of_a_group("consumer.session.timeout.ms", "group.consumer.session.timeout.ms", AtLeast(1)),
        _of_a_group("share.assignment.interval.ms", "group.share.assignment.interval.ms", AtLeast(0)),
        string(
            "share.auto.offset.reset", "latest", "Where a share group starts: `latest`, `earliest`, `by_duration:P...`."
        ),
        _of_a_group("share.delivery.count.limit", "group.share.delivery.count.limit", AtLeast(2)),
        _of_a_group("share.heartbeat.interval.ms", "group.share.heartbeat.interval.ms", AtLeast(1)),
        string(
            "share.isolation.level",
            "read_uncommitted",
            "Whether a share group sees records of open and aborted transactions.",
            OneOf(("read_committed", "read_uncommitted")),
        ),
        _of_a_group("share.partition.max.record.locks", "group.share.partition.max.record.locks", AtLeast(100)),
        _of_a_group("share.record.lock.duration.ms", "group.share.record.lock.duration.ms", AtLeast(1000)),
        boolean("share.renew.acknowledge.enable", True, "Whether consumers may ask for more time on a record."),
        _of_a_group("share.session.timeout.ms", "group.share.session.timeout.ms", AtLeast(1)),
    )
}
