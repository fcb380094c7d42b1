"""Topics and settings: Metadata, CreateTopics, DeleteTopics, CreatePartitions, the config APIs, DescribeCluster and so
on."""

import uuid
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.registry import case
from tests.conformance.cluster import APIS_BY_KEY, Cluster, versions_of
from tests.conformance.normalise import plain
from tests.conformance.wire import (
    ALTER_CONFIGS,
    API_VERSIONS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
    DESCRIBE_TOPIC_PARTITIONS,
    INCREMENTAL_ALTER_CONFIGS,
    INIT_PRODUCER_ID,
    LIST_CONFIG_RESOURCES,
    METADATA,
    batch_of,
    create_topic_of,
)
from tests.e2e.node import wait_until

UNKNOWN_ID = uuid.UUID(int=0xABCDEF)
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
BAD_NAMES = ["", ".", "..", "/", "a/b", "../etc", "a b", "ä", "a\x00b", "x" * 250, "a:b", "a\nb"]
GOOD_NAMES = ["x" * 249, "a.b-c_d", "...", "A", "0"]


def metadata_of(*names: str, create: bool = False, operations: bool = False) -> Struct:
    return Struct(
        topics=[Struct(name=name, topic_id=None) for name in names],
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=operations,
        include_topic_authorized_operations=operations,
    )


@case
def metadata_of_a_topic_in_every_version(cluster: Cluster) -> Any:
    cluster.topic("metadata-versions", 3)
    return [
        cluster.ask_all_versions(METADATA, metadata_of("metadata-versions", operations=operations))
        for operations in (False, True)
    ]


@case
def metadata_of_unknown_topics(cluster: Cluster) -> Any:
    # Versions before 4 create what is not there.
    return cluster.ask_all_versions(METADATA, metadata_of("metadata-nowhere", "metadata-nowhere-2"), first=4)


@case
def metadata_of_topics_with_bad_names(cluster: Cluster) -> Any:
    return [
        cluster.ask(METADATA, version, metadata_of(name, create=create))
        for version in (1, 4, 9, 12, 13)
        for create in (False, True)
        for name in BAD_NAMES
    ]


@case
def metadata_by_topic_id(cluster: Cluster) -> Any:
    topic_id = cluster.topic("metadata-id", 2)

    def ask(*topics: Struct) -> Any:
        return cluster.ask_all_versions(
            METADATA, Struct(topics=list(topics), allow_auto_topic_creation=False), first=10
        )

    return [
        ask(Struct(name=None, topic_id=topic_id)),
        ask(Struct(name=None, topic_id=UNKNOWN_ID)),
        ask(Struct(name=None, topic_id=None)),
        ask(Struct(name="metadata-id", topic_id=topic_id)),
        ask(Struct(name=None, topic_id=topic_id), Struct(name="metadata-id", topic_id=None)),
    ]


@case
def metadata_of_no_topics(cluster: Cluster) -> Any:
    return cluster.ask_all_versions(METADATA, Struct(topics=[], allow_auto_topic_creation=False), first=1)


@case
def metadata_of_a_topic_twice(cluster: Cluster) -> Any:
    cluster.topic("metadata-twice")
    return cluster.ask(METADATA, 12, metadata_of("metadata-twice", "metadata-twice"))


def created(cluster: Cluster, *bodies: Struct, version: int = 7) -> list[Any]:
    return [cluster.ask(CREATE_TOPICS, version, body) for body in bodies]


@case
def create_topics_in_every_version(cluster: Cluster) -> Any:
    answers = []
    for version in versions_of(CREATE_TOPICS):
        body = create_topic_of(f"create-{version}", 3, configs={"retention.ms": "1000", "cleanup.policy": "compact"})
        raw = cluster.ask_raw(CREATE_TOPICS, version, body)
        for topic in raw.topics:
            if getattr(topic, "topic_id", None):
                cluster.topic_names[topic.topic_id] = f"the id of {topic.name}"
        answers.append(plain(raw, cluster.topic_names))
        answers += created(cluster, body, version=version)
        cluster.wait_for_leaders(f"create-{version}", 3)
        answers.append(cluster.ask(METADATA, 9, metadata_of(f"create-{version}")))
    return answers


@case
def create_topics_with_odd_numbers(cluster: Cluster) -> Any:
    answers = []
    for version in (2, 4, 7):
        for partitions, replication_factor in [
            (0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, -2), (1, 2), (1, 32767), (-1, -1), (-5, -5),
        ]:  # fmt: skip
            body = create_topic_of(
                f"odd-{version}-{partitions}-{replication_factor}", partitions, replication_factor=replication_factor
            )
            body.validate_only = True
            answers.append(cluster.ask(CREATE_TOPICS, version, body))
    return answers


@case
def create_topics_with_names_of_all_kinds(cluster: Cluster) -> Any:
    return [
        cluster.ask(CREATE_TOPICS, version, create_topic_of(name))
        for version in (2, 7)
        for name in [*BAD_NAMES, *GOOD_NAMES]
    ]


@case
def create_topics_whose_names_collide(cluster: Cluster) -> Any:
    answers = created(
        cluster,
        create_topic_of("collide.one"),
        create_topic_of("collide_one"),
        create_topic_of("collide_two.a"),
        create_topic_of("collide.two_a"),
    )
    both = create_topic_of("collide.three")
    both.topics += create_topic_of("collide_three").topics
    return [answers, created(cluster, both)]


@case
def create_topics_with_one_name_twice(cluster: Cluster) -> Any:
    body = create_topic_of("twice")
    body.topics += create_topic_of("twice", 2).topics + create_topic_of("once").topics
    return [cluster.ask(CREATE_TOPICS, version, body) for version in (2, 5, 7)]


@case
def create_topics_with_bad_settings(cluster: Cluster) -> Any:
    answers = {}
    for name, value in [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", None),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("cleanup.policy", "burn"),
        ("cleanup.policy", "compact,delete"),
        ("cleanup.policy", ""),
        ("compression.type", "rar"),
        ("min.insync.replicas", "0"),
        ("max.message.bytes", "-1"),
        ("segment.bytes", "10"),
        ("message.timestamp.type", "Never"),
        ("preallocate", "perhaps"),
        ("min.cleanable.dirty.ratio", "2"),
        ("", "1"),
        ("retention.ms", " 1000 "),
    ]:
        body = create_topic_of("bad-setting", configs={name: value})
        body.validate_only = True
        answers[f"{name}={value}"] = [cluster.ask(CREATE_TOPICS, version, body) for version in (4, 5, 7)]
    return answers


@case
def create_topics_with_assignments(cluster: Cluster) -> Any:
    answers = {}
    kinds: list[tuple[str, list[tuple[int, list[int]]], int, int]] = [
        ("plain", [(0, [1]), (1, [1])], -1, -1),
        ("with counts", [(0, [1])], 1, 1),
        ("gap", [(0, [1]), (2, [1])], -1, -1),
        ("twice", [(0, [1]), (0, [1])], -1, -1),
        ("no replicas", [(0, [])], -1, -1),
        ("same replica twice", [(0, [1, 1])], -1, -1),
        ("unknown broker", [(0, [7])], -1, -1),
        ("unequal", [(0, [1]), (1, [1, 2])], -1, -1),
        ("negative", [(-1, [1])], -1, -1),
    ]
    for name, assignments, partitions, factor in kinds:
        body = create_topic_of(f"assigned-{name.replace(' ', '-')}", partitions, replication_factor=factor)
        body.topics[0].assignments = [Struct(partition_index=index, broker_ids=ids) for index, ids in assignments]
        answers[name] = created(cluster, body)
    return answers


@case
def create_no_topics(cluster: Cluster) -> Any:
    return cluster.ask_all_versions(CREATE_TOPICS, Struct(topics=[], timeout=1000))


@case
def create_topics_only_to_validate(cluster: Cluster) -> Any:
    body = create_topic_of("validated", 2)
    body.validate_only = True
    return [cluster.ask_all_versions(CREATE_TOPICS, body), cluster.ask(METADATA, 9, metadata_of("validated"))]


@case
def create_internal_topics(cluster: Cluster) -> Any:
    body = create_topic_of("__cluster_metadata")
    body.validate_only = True
    return created(cluster, body)


@case
def delete_topics_in_every_version(cluster: Cluster) -> Any:
    answers = []
    for version in versions_of(DELETE_TOPICS):
        name = f"delete-{version}"
        cluster.topic(name)
        body = Struct(topic_names=[name], topics=[Struct(name=name, topic_id=None)], timeout=30_000)
        answers.append(cluster.ask(DELETE_TOPICS, version, body))
        cluster.wait_until_gone(name)
        answers.append(cluster.ask(DELETE_TOPICS, version, body))
    return answers


@case
def delete_topics_by_id_and_in_odd_ways(cluster: Cluster) -> Any:
    first, second = cluster.topic("delete-by-id"), cluster.topic("delete-both")
    answers = {}
    for name, topics in {
        "unknown id": [Struct(name=None, topic_id=UNKNOWN_ID)],
        "neither": [Struct(name=None, topic_id=None)],
        "both": [Struct(name="delete-both", topic_id=second)],
        "id and name of one topic": [
            Struct(name=None, topic_id=second), Struct(name="delete-both", topic_id=None)
        ],
        "by id": [Struct(name=None, topic_id=first)],
        "name twice": [Struct(name="delete-nowhere", topic_id=None)] * 2,
        "bad names": [Struct(name=name, topic_id=None) for name in ("", "..", "a/b")],
        "none": [],
    }.items():  # fmt: skip
        answers[name] = cluster.ask(DELETE_TOPICS, 6, Struct(topics=topics, timeout=30_000))
    return answers


@case
def create_partitions_in_every_version(cluster: Cluster) -> Any:
    answers = []
    for version in versions_of(CREATE_PARTITIONS):
        name = f"grow-{version}"
        cluster.topic(name, 2)
        for validate_only in (True, False):
            for count in (0, -1, 1, 2, 4):
                body = Struct(
                    topics=[Struct(name=name, count=count, assignments=None)], timeout=5000, validate_only=validate_only
                )
                answers.append(cluster.ask(CREATE_PARTITIONS, version, body))
        cluster.wait_for_leaders(name, 4)
        answers.append(cluster.ask(METADATA, 9, metadata_of(name)))
    return answers


@case
def create_partitions_in_odd_ways(cluster: Cluster) -> Any:
    cluster.topic("grow-odd", 1)
    answers = {}
    for name, topics in {
        "unknown": [Struct(name="grow-nowhere", count=3, assignments=None)],
        "bad name": [Struct(name="..", count=3, assignments=None)],
        "twice": [Struct(name="grow-odd", count=3, assignments=None)] * 2,
        "assigned": [Struct(name="grow-odd", count=2, assignments=[Struct(broker_ids=[1])])],
        "too few assigned": [Struct(name="grow-odd", count=4, assignments=[Struct(broker_ids=[1])])],
        "too many assigned": [Struct(name="grow-odd", count=2, assignments=[Struct(broker_ids=[1])] * 2)],
        "unknown broker": [Struct(name="grow-odd", count=2, assignments=[Struct(broker_ids=[9])])],
        "two replicas": [Struct(name="grow-odd", count=2, assignments=[Struct(broker_ids=[1, 1])])],
        "no replicas": [Struct(name="grow-odd", count=2, assignments=[Struct(broker_ids=[])])],
        "none": [],
    }.items():
        answers[name] = cluster.ask(CREATE_PARTITIONS, 3, Struct(topics=topics, timeout=5000, validate_only=True))
    return answers


def configs_of(resource_type: int, name: str, keys: list[str] | None = None, **options: bool) -> Struct:
    resource = Struct(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    return Struct(resources=[resource], **options)


@case
def describe_topic_configs_in_every_version(cluster: Cluster) -> Any:
    cluster.topic("described", configs={"retention.ms": "5000", "compression.type": "zstd"})
    return cluster.ask_all_versions(DESCRIBE_CONFIGS, configs_of(TOPIC, "described", include_synonyms=True))


@case
def describe_chosen_configs(cluster: Cluster) -> Any:
    cluster.topic("chosen")
    return [
        cluster.ask(DESCRIBE_CONFIGS, 4, configs_of(TOPIC, "chosen", keys))
        for keys in (["retention.ms"], [], ["nonsense"], ["retention.ms", "retention.ms"])
    ]


@case
def describe_configs_of_what_is_unknown(cluster: Cluster) -> Any:
    return [
        cluster.ask_all_versions(DESCRIBE_CONFIGS, configs_of(resource_type, name, []))
        for resource_type, name in [
            (TOPIC, "described-nowhere"), (TOPIC, ".."), (TOPIC, ""), (BROKER, "99"), (BROKER, "x"), (0, "a"), (1, "a"),
            (3, "a"), (77, "a"), (BROKER_LOGGER, ""), (BROKER_LOGGER, "9"), (GROUP, ""),
        ]
    ]  # fmt: skip


@case
def describe_broker_configs_that_clients_ask_for(cluster: Cluster) -> Any:
    keys = ["message.max.bytes", "num.partitions", "auto.create.topics.enable", "log.retention.ms", "compression.type"]
    keys += ["default.replication.factor", "log.segment.bytes", "min.insync.replicas", "offsets.retention.minutes"]
    return [
        cluster.ask_all_versions(DESCRIBE_CONFIGS, configs_of(BROKER, name, keys, include_synonyms=True))
        for name in ("1", "")
    ]


@case
def describe_group_configs(cluster: Cluster) -> Any:
    return cluster.ask(DESCRIBE_CONFIGS, 4, configs_of(GROUP, "some-group"))


def incremental_of(resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> Struct:
    configs = [Struct(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = Struct(resource_type=resource_type, resource_name=name, configs=configs)
    return Struct(resources=[resource], validate_only=False)


def dynamic_configs(cluster: Cluster, name: str) -> Any:
    """What is set on the topic itself. Kafka's image follows the controller a moment later, so: once it has settled."""
    seen: list[Any] = []

    def is_settled() -> bool:
        (result,) = cluster.ask_raw(DESCRIBE_CONFIGS, 4, configs_of(TOPIC, name)).results
        seen.append({entry.name: entry.value for entry in result.configs if entry.config_source == 1})
        return len(seen) > 10 and len({str(one) for one in seen[-10:]}) == 1

    wait_until(is_settled, "settings have settled")
    return seen[-1]


@case
def incremental_alter_configs_of_a_topic(cluster: Cluster) -> Any:
    cluster.topic("altered")
    answers: dict[str, Any] = {}
    kinds: dict[str, list[tuple[str, int, str | None]]] = {
        "set": [("retention.ms", SET, "1000"), ("cleanup.policy", SET, "compact")],
        "append": [("cleanup.policy", APPEND, "delete")],
        "append again": [("cleanup.policy", APPEND, "delete")],
        "subtract": [("cleanup.policy", SUBTRACT, "compact")],
        "append to what is no list": [("retention.ms", APPEND, "1")],
        "delete": [("retention.ms", DELETE, None)],
        "delete what is not set": [("segment.ms", DELETE, None)],
        "set to null": [("retention.ms", SET, None)],
        "unknown": [("no.such.setting", SET, "1")],
        "delete unknown": [("no.such.setting", DELETE, None)],
        "bad value": [("retention.ms", SET, "soon")],
        "good and bad": [("retention.ms", SET, "2000"), ("segment.bytes", SET, "x")],
        "one key twice": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
        "no such operation": [("retention.ms", 9, "1")],
        "nothing": [],
    }
    for name, changes in kinds.items():
        answer = cluster.ask_all_versions(INCREMENTAL_ALTER_CONFIGS, incremental_of(TOPIC, "altered", *changes))
        answers[name] = [answer, dynamic_configs(cluster, "altered")]
    return answers


@case
def incremental_alter_configs_of_what_is_unknown(cluster: Cluster) -> Any:
    answers = [
        cluster.ask(INCREMENTAL_ALTER_CONFIGS, 1, incremental_of(resource_type, name, (key, SET, value)))
        for resource_type, name, key, value in [
            (TOPIC, "altered-nowhere", "retention.ms", "1"),
            (TOPIC, "..", "retention.ms", "1"),
            (TOPIC, "", "retention.ms", "1"),
            (BROKER, "99", "log.retention.ms", "1"),
            (BROKER, "x", "log.retention.ms", "1"),
            (BROKER, "1", "node.id", "5"),
            (BROKER, "1", "no.such.setting", "5"),
            (0, "a", "b", "c"),
            (77, "a", "b", "c"),
        ]
    ]
    cluster.topic("altered-twice")
    twice = incremental_of(TOPIC, "altered-twice", ("retention.ms", SET, "1"))
    twice.resources = twice.resources * 2
    return [answers, cluster.ask(INCREMENTAL_ALTER_CONFIGS, 1, twice)]


@case
def alter_configs_in_every_version(cluster: Cluster) -> Any:
    cluster.topic("replaced", configs={"retention.ms": "5000"})
    answers: dict[str, Any] = {}
    kinds: dict[str, dict[str, str | None]] = {
        "replace": {"segment.ms": "60000"},
        "nothing": {},
        "unknown": {"no.such.setting": "1"},
        "bad": {"retention.ms": "soon"},
        "null": {"retention.ms": None},
    }
    for name, settings in kinds.items():
        configs = [Struct(name=key, value=value) for key, value in settings.items()]
        resource = Struct(resource_type=TOPIC, resource_name="replaced", configs=configs)
        answer = cluster.ask_all_versions(ALTER_CONFIGS, Struct(resources=[resource], validate_only=False))
        answers[name] = [answer, dynamic_configs(cluster, "replaced")]
    return answers


@case
def describe_cluster_in_every_version(cluster: Cluster) -> Any:
    return [
        cluster.ask_all_versions(
            DESCRIBE_CLUSTER,
            Struct(
                include_cluster_authorized_operations=operations,
                endpoint_type=endpoint_type,
                include_fenced_brokers=fenced,
            ),
            first=0 if endpoint_type == 1 else 1,
        )
        for operations in (False, True)
        for endpoint_type in (1, 2, 0, 7)
        for fenced in (False, True)
    ]


@case
def describe_log_dirs_of_some_topics(cluster: Cluster) -> Any:
    cluster.topic("log-dirs", 2)
    cluster.fill("log-dirs", batch_of([b"v" * 100]))

    def ask(*topics: Struct) -> Any:
        return cluster.ask_all_versions(DESCRIBE_LOG_DIRS, Struct(topics=list(topics)))

    return [
        ask(Struct(topic="log-dirs", partitions=[0, 1])),
        ask(Struct(topic="log-dirs", partitions=[7])),
        ask(Struct(topic="log-dirs-nowhere", partitions=[0])),
        ask(),
    ]


@case
def describe_topic_partitions_by_pages(cluster: Cluster) -> Any:
    cluster.topic("pages-a", 3)
    cluster.topic("pages-b", 2)

    def ask(limit: int, cursor: Struct | None, *names: str) -> Any:
        body = Struct(topics=[Struct(name=name) for name in names], response_partition_limit=limit, cursor=cursor)
        return cluster.ask(DESCRIBE_TOPIC_PARTITIONS, 0, body)

    both = ("pages-b", "pages-a")
    return [
        ask(2000, None, *both),
        ask(1, None, *both),
        ask(2, None, *both),
        ask(3, None, *both),
        ask(4, None, *both),
        ask(2, Struct(topic_name="pages-a", partition_index=2), *both),
        ask(2000, Struct(topic_name="pages-b", partition_index=1), *both),
        ask(2000, Struct(topic_name="pages-b", partition_index=7), *both),
        ask(2000, Struct(topic_name="pages-a", partition_index=-1), *both),
        ask(2000, Struct(topic_name="pages-c", partition_index=0), *both),
        ask(0, None, *both),
        ask(-1, None, *both),
        ask(2000, None, "pages-nowhere", "pages-a"),
        ask(2000, None, ".."),
        ask(2000, None, "pages-a", "pages-a"),
    ]


@case
def init_producer_id_in_every_version(cluster: Cluster) -> Any:
    # Without a transactional id; with one it takes a coordinator.
    cluster.new_producer()
    return [
        cluster.ask_all_versions(
            INIT_PRODUCER_ID,
            Struct(
                transactional_id=transactional_id,
                transaction_timeout=timeout,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            ),
        )
        for transactional_id, timeout, producer_id, producer_epoch in [
            (None, 1000, -1, -1), (None, 0, -1, -1), (None, -1, -1, -1), (None, 1000, 5, 0), (None, 1000, 5, -1),
            (None, 1000, -1, 5), ("", 1000, -1, -1), (None, 2**31 - 1, -1, -1),
        ]
    ]  # fmt: skip


@case
def api_versions_of_the_apis_served(cluster: Cluster) -> Any:
    answers = {}
    for version in versions_of(API_VERSIONS):
        body = Struct(client_software_name="some-client", client_software_version="1.0")
        answer = cluster.ask(API_VERSIONS, version, body)
        answer["api_keys"] = [api for api in answer["api_keys"] if api["api_key"] in APIS_BY_KEY]
        answers[f"v{version}"] = answer
    return answers


@case
def api_versions_from_clients_with_odd_names(cluster: Cluster) -> Any:
    return [
        cluster.ask(
            API_VERSIONS, version, Struct(client_software_name=name, client_software_version=software_version)
        ).get("error_code")
        for version in (3, 4)
        for name, software_version in [("", "1"), ("a", ""), ("a b", "1"), ("-a", "1"), ("a-", "1"), ("a.b-c", "1.0-x")]
    ]


@case
def list_config_resources_of_each_type(cluster: Cluster) -> Any:
    cluster.topic("listed")
    answers: dict[str, Any] = {}
    for version in versions_of(LIST_CONFIG_RESOURCES):
        for types in ([BROKER], [BROKER_LOGGER], [CLIENT_METRICS], [GROUP], [BROKER, BROKER], [0], [77]):
            answers[f"v{version} {types}"] = cluster.ask(LIST_CONFIG_RESOURCES, version, Struct(resource_types=types))
        listed = cluster.ask(LIST_CONFIG_RESOURCES, version, Struct(resource_types=[TOPIC]))["config_resources"]
        answers[f"v{version} has the topic"] = "listed" in [resource["resource_name"] for resource in listed]
    return answers
