"""The settings of a node, but for those of the coordinators: network, log, cluster.

Kafka has many more. What is here means something to Penstock; its thread counts, JMX, class names and ZooKeeper
settings do not, and asking for one of them is answered with the reason.
"""

from dataclasses import replace

from penstock.base.settings.coordinators import COORDINATOR_SETTINGS
from penstock.base.settings.definition import (
    INT_MAX,
    LONG_MAX,
    AtLeast,
    Between,
    OneOf,
    Setting,
    boolean,
    double,
    integer,
    listing,
    long,
    string,
)
from penstock.base.settings.topics import BROKER_DEFAULTS_OF_TOPICS

_NETWORK = (
    listing(
        "advertised.listeners",
        None,
        "The addresses told to clients, `NAME://host:port`; by default those of `listeners`.",
    ),
    long("connections.max.idle.ms", 600_000, "A connection that says nothing for so long is closed."),
    string("inter.broker.listener.name", None, "The listener by which brokers reach each other."),
    string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "What each listener name means, `NAME:PROTOCOL`.",
    ),
    listing("listeners", "PLAINTEXT://127.0.0.1:9092", "The addresses the node listens on, `NAME://host:port`."),
    integer("max.connection.creation.rate", INT_MAX, "New connections taken per second.", AtLeast(0), dynamic=True),
    integer("max.connections", INT_MAX, "Connections open at a time; more are closed.", AtLeast(0), dynamic=True),
    integer(
        "max.connections.per.ip", INT_MAX, "Connections open at a time from one address.", AtLeast(0), dynamic=True
    ),
    string(
        "max.connections.per.ip.overrides",
        "",
        "Other limits for some addresses: `host:limit,host:limit`.",
        dynamic=True,
    ),
    integer("request.timeout.ms", 30_000, "How long the node waits for an answer of another node."),
    integer(
        "slow.request.log.ms",
        1_000,
        "Requests that take longer are logged, except those that wait by their nature. Penstock's own.",
        AtLeast(1),
    ),
    integer("socket.listen.backlog.size", 50, "Connections waiting to be accepted.", AtLeast(1)),
    integer("socket.receive.buffer.bytes", 102_400, "The kernel's receive buffer per connection; -1: its default."),
    integer("socket.request.max.bytes", 104_857_600, "The largest request taken.", AtLeast(1)),
    integer("socket.send.buffer.bytes", 102_400, "The kernel's send buffer per connection; -1: its default."),
)

_TOPICS_AND_REQUESTS = (
    boolean("auto.create.topics.enable", True, "Whether a topic is made when a client asks for one that is not there."),
    integer("default.replication.factor", 1, "The replicas of a topic created without a number."),
    boolean("delete.topic.enable", True, "Whether topics can be deleted."),
    integer("fetch.max.bytes", 57_671_680, "The most one fetch is answered with.", AtLeast(1024)),
    integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "How many incremental fetch sessions (KIP-227) are remembered.",
        AtLeast(0),
    ),
    integer(
        "max.request.partition.size.limit",
        2000,
        "The most partitions that one answer of DescribeTopicPartitions holds.",
        AtLeast(1),
    ),
    integer("num.partitions", 1, "The partitions of a topic created without a number.", AtLeast(1)),
    integer(
        "producer.id.expiration.ms",
        86_400_000,
        "How long a partition remembers an idempotent producer that writes nothing.",
        AtLeast(1),
        dynamic=True,
    ),
)

_LOG = (
    long(
        "log.cleaner.backoff.ms",
        15_000,
        "How long the cleaner rests when nothing is to clean.",
        AtLeast(0),
        dynamic=True,
    ),
    long("log.cleaner.dedupe.buffer.size", 134_217_728, "Memory for the keys of one compaction.", dynamic=True),
    boolean("log.cleaner.enable", True, "Whether logs are compacted."),
    double(
        "log.cleaner.io.buffer.load.factor",
        "0.9",
        "How full the memory for keys may get, as a share of it, before a compaction ends and another has to go on.",
        Between(0, 1),
        dynamic=True,
    ),
    double(
        "log.cleaner.io.max.bytes.per.second",
        "1.7976931348623157E308",
        "How fast compaction may read and write.",
        dynamic=True,
    ),
    listing("log.dirs", "data", "The directory of all the node's data."),
    long("log.flush.interval.ms", None, "Sync every log at least this often. Without effect so far.", dynamic=True),
    integer(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often the offsets up to which logs are synced are written down.",
        AtLeast(0),
    ),
    long("log.flush.scheduler.interval.ms", LONG_MAX, "The default of `log.flush.interval.ms`."),
    integer(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often the first offsets of logs are written down.",
        AtLeast(0),
    ),
    long("log.retention.check.interval.ms", 300_000, "How often logs are checked for what may go.", AtLeast(1)),
    integer("log.retention.hours", 168, "`log.retention.ms` in hours."),
    integer("log.retention.minutes", None, "`log.retention.ms` in minutes; it goes before the hours."),
    long(
        "log.retention.ms",
        None,
        "Where a topic does not say `retention.ms` itself; it goes before the minutes and hours.",
        dynamic=True,
    ),
    integer("log.roll.hours", 168, "`log.roll.ms` in hours.", AtLeast(1)),
    integer("log.roll.jitter.hours", 0, "`log.roll.jitter.ms` in hours.", AtLeast(0)),
    long(
        "log.roll.jitter.ms",
        None,
        "Where a topic does not say `segment.jitter.ms` itself; it goes before the hours.",
        dynamic=True,
    ),
    long(
        "log.roll.ms", None, "Where a topic does not say `segment.ms` itself; it goes before the hours.", dynamic=True
    ),
)

_CLUSTER = (
    boolean("auto.leader.rebalance.enable", True, "Whether leadership goes back to the preferred replicas."),
    integer(
        "broker.heartbeat.interval.ms",
        1000,
        "How often a broker tells the controller that it lives. Kafka's default is 2000.",
        AtLeast(1),
    ),
    string(
        "broker.rack", None, "Where the node stands. Replicas spread over racks; name the host to spread over hosts."
    ),
    integer(
        "broker.session.timeout.ms",
        3000,
        "A broker silent for so long is fenced. Kafka's default is 9000.",
        AtLeast(1),
    ),
    boolean("controlled.shutdown.enable", True, "Whether a node hands over leadership before it stops."),
    listing("controller.listener.names", "CONTROLLER", "The listeners of the controller."),
    integer("controller.quorum.append.linger.ms", 25, "How long the controller collects writes.", AtLeast(0)),
    listing("controller.quorum.bootstrap.servers", "", "Where to find the controllers, `host:port`."),
    integer("controller.quorum.election.backoff.max.ms", 1000, "The longest pause between elections.", AtLeast(0)),
    integer("controller.quorum.election.timeout.ms", 1000, "How long a candidate waits for votes.", AtLeast(0)),
    integer("controller.quorum.fetch.timeout.ms", 2000, "A quorum silent for so long elects anew.", AtLeast(0)),
    integer("controller.quorum.request.timeout.ms", 2000, "How long one quorum request may take.", AtLeast(0)),
    integer("controller.quorum.retry.backoff.ms", 20, "The pause before a quorum request is repeated.", AtLeast(0)),
    listing("controller.quorum.voters", "", "The controllers, `id@host:port`."),
    long(
        "leader.imbalance.check.interval.seconds", 300, "How often leadership is compared with preference.", AtLeast(1)
    ),
    long(
        "metadata.log.max.record.bytes.between.snapshots",
        20_971_520,
        "A snapshot of the metadata is made after so many bytes of its log.",
        AtLeast(1),
    ),
    long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "A snapshot of the metadata is made at least so often.",
        AtLeast(0),
    ),
    integer("metadata.log.segment.bytes", 1_073_741_824, "Segment size of the metadata log.", AtLeast(8_388_608)),
    integer("node.id", 1, "The node's number in the cluster.", AtLeast(0)),
    integer("num.replica.fetchers", 1, "Connections from a follower to one leader.", AtLeast(1), dynamic=True),
    listing("process.roles", "broker,controller", "What the node is.", OneOf(("broker", "controller"))),
    integer("replica.fetch.backoff.ms", 1000, "The pause after a replica's fetch failed.", AtLeast(0)),
    integer("replica.fetch.max.bytes", 1_048_576, "Bytes per partition of a replica's fetch.", AtLeast(0)),
    integer("replica.fetch.min.bytes", 1, "Bytes for which a replica's fetch waits."),
    integer("replica.fetch.response.max.bytes", 10_485_760, "Bytes of a whole replica's fetch.", AtLeast(0)),
    integer("replica.fetch.wait.max.ms", 500, "How long a replica's fetch waits for bytes."),
    long("replica.high.watermark.checkpoint.interval.ms", 5000, "How often high watermarks are written down."),
    string(
        "replica.selector.class",
        None,
        "How consumers find the replica to read from: RackAwareReplicaSelector sends them to one in their own "
        "`client.rack` (KIP-392). By default they read from the leader.",
    ),
    long("replica.lag.time.max.ms", 30_000, "A follower behind for so long leaves the in-sync replicas."),
    integer("replica.socket.timeout.ms", 30_000, "How long a replica's fetch may take."),
    replace(
        long(
            "unclean.leader.election.interval.ms",
            300_000,
            "How often the controller looks for partitions without a leader that may have an unclean one.",
            AtLeast(1),
        ),
        internal=True,
    ),
)

# Where a person asks for one of these, saying why it is not here helps more than the nearest name would.
NOT_OURS: dict[str, str] = {
    "background.threads": "Penstock has one event loop per process and no thread pools to size",
    "log.cleaner.threads": "one helper process per node compacts, with a lower priority than the node",
    "num.io.threads": "Penstock has one event loop per process and no thread pools to size",
    "num.network.threads": "Penstock has one event loop per process and no thread pools to size",
    "zookeeper.connect": "Penstock keeps its metadata in its own quorum; there is no ZooKeeper",
    "inter.broker.protocol.version": "versions are negotiated; there is nothing to pin",
    "log.message.format.version": "only record batches of format 2 are stored, as in Kafka 4",
    "broker.id": "the name is node.id",
    "log.dir": "the name is log.dirs",
}

BROKER_SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in sorted(
        (*BROKER_DEFAULTS_OF_TOPICS, *_NETWORK, *_TOPICS_AND_REQUESTS, *_LOG, *_CLUSTER, *COORDINATOR_SETTINGS),
        key=lambda setting: setting.name,
    )
}

# Broker settings that say the same in different units: setting one of them dynamically puts the others out of force.
FAMILIES: tuple[tuple[str, ...], ...] = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
