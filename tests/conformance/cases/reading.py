"""Fetch, fetch sessions, ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

import uuid
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.registry import case
from tests.conformance.cluster import Cluster, versions_of
from tests.conformance.normalise import plain
from tests.conformance.wire import (
    DELETE_RECORDS,
    FETCH,
    FETCH_BY_NAME,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    batch_of,
    fetch_of,
    list_offsets_of,
)

UNKNOWN_ID = uuid.UUID(int=0xABCDEF)
NOW_MS = 1_700_000_000_000


def filled(cluster: Cluster, name: str, partitions: int = 1, batches: int = 3) -> uuid.UUID:
    """A topic of three batches of three records in its first partition."""
    topic_id = cluster.topic(name, partitions)
    for number in range(batches):
        cluster.fill(name, batch_of([b"x" * 50, b"y", None], timestamp_ms=NOW_MS + 1000 * number))
    return topic_id


@case
def fetch_in_every_version(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "fetch-versions", 2)
    return [
        cluster.ask_all_versions(
            FETCH,
            fetch_of("fetch-versions", [(0, offset), (1, 0)], topic_id=topic_id, isolation_level=isolation_level),
        )
        for offset in (0, 4, 9)
        for isolation_level in (0, 1)
    ]


@case
def fetch_offsets_out_of_range(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "fetch-range")
    return [
        cluster.ask_all_versions(FETCH, fetch_of("fetch-range", [(0, offset)], topic_id=topic_id))
        for offset in (-1, -2, 10, 2**62)
    ]


@case
def fetch_unknown_topics_and_partitions(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "fetch-known")
    return [
        cluster.ask_all_versions(FETCH, fetch_of("fetch-unknown", [(0, 0)], topic_id=UNKNOWN_ID)),
        cluster.ask_all_versions(FETCH, fetch_of("", [(0, 0)], topic_id=None)),
        cluster.ask_all_versions(
            FETCH, fetch_of("fetch-known", [(1, 0), (-1, 0), (10**9, 0), (0, 0)], topic_id=topic_id)
        ),
    ]


@case
def fetch_nothing_at_all(cluster: Cluster) -> Any:
    return [
        cluster.ask_all_versions(FETCH, fetch_of("none", [], session=session, min_bytes=1, max_wait_ms=10), first=7)
        for session in [(0, -1), (0, 0), (0, 1), (77, 3), (77, 0), (77, -1), (-5, 2)]
    ]


@case
def fetch_with_leader_epochs(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "fetch-epochs")
    return [
        cluster.ask_all_versions(
            FETCH, fetch_of("fetch-epochs", [(0, 3)], topic_id=topic_id, leader_epoch=epoch), first=9
        )
        for epoch in (-1, 0, 1, 1000, -2)
    ]


@case
def fetch_with_last_fetched_epochs(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "fetch-diverging")
    return [
        cluster.ask_all_versions(
            FETCH,
            fetch_of("fetch-diverging", [(0, offset)], topic_id=topic_id, last_fetched_epoch=epoch),
            first=12,
        )
        for epoch in (0, 1, 5)
        for offset in (3, 9)
    ]


@case
def fetch_within_small_limits(cluster: Cluster) -> Any:
    filled(cluster, "fetch-limits", 2)
    cluster.fill("fetch-limits", batch_of([b"z" * 500]), partition=1)
    answers = []
    for max_bytes, partition_max_bytes in [(0, 0), (1, 1), (10**6, 1), (1, 10**6), (200, 10**6), (300, 300), (-1, -1)]:
        for offsets in ([(0, 0), (1, 0)], [(1, 0), (0, 1)]):
            asked = fetch_of("fetch-limits", offsets, max_bytes=max_bytes, partition_max_bytes=partition_max_bytes)
            answers.append(cluster.ask(FETCH, FETCH_BY_NAME, asked))
    return answers


@case
def fetch_a_partition_twice_in_one_request(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "fetch-twice")
    return [
        cluster.ask(FETCH, version, fetch_of("fetch-twice", [(0, 0), (0, 6)], topic_id=topic_id))
        for version in (FETCH_BY_NAME, 13, 17)
    ]


@case
def fetch_as_a_replica_that_is_none(cluster: Cluster) -> Any:
    filled(cluster, "fetch-spoof")
    answers = []
    for replica_id in (0, 2, 99):
        body = fetch_of("fetch-spoof", [(0, 0)])
        body.replica_id = replica_id
        answers.append(cluster.ask(FETCH, FETCH_BY_NAME, body))
    return answers


@case
def fetch_sessions_in_their_order(cluster: Cluster) -> Any:
    answers = []
    for version in (7, 12, 13, 17, 18):
        name = f"sessions-{version}"
        topic_id = filled(cluster, name, 3)

        def ask(session: tuple[int, int], *offsets: tuple[int, int]) -> Any:
            body = fetch_of(name, offsets, topic_id=topic_id, session=session)  # noqa: B023
            raw = cluster.ask_raw(FETCH, version, body)  # noqa: B023
            answers.append(plain(raw, cluster.topic_names))
            return raw

        session_id = ask((0, 0), (0, 0), (1, 0), (2, 0)).session_id
        ask((session_id, 1))
        ask((session_id, 2), (0, 9))
        ask((session_id, 3))
        cluster.fill(name, batch_of([b"news"]), partition=2)
        ask((session_id, 4))
        ask((session_id, 5), (2, 1))
        ask((session_id, 5))
        ask((session_id, 7))
        ask((session_id + 1, 6))
        ask((session_id, 6), (7, 0))
        ask((session_id, 7), (1, 100))
        ask((session_id, -1))
        ask((session_id, 8))
    return answers


@case
def fetch_sessions_forget(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "forget", 3)
    answers = []
    body = fetch_of("forget", [(0, 0), (1, 0)], topic_id=topic_id, session=(0, 0))
    first = cluster.ask_raw(FETCH, 15, body)
    for epoch, forgotten in [(1, [1]), (2, [7]), (3, [0])]:
        body = fetch_of("forget", [], session=(first.session_id, epoch))
        body.forgotten_topics_data = [Struct(topic="forget", topic_id=topic_id, partitions=forgotten)]
        answers.append(cluster.ask(FETCH, 15, body))
    answers.append(cluster.ask(FETCH, 15, fetch_of("forget", [], session=(first.session_id, 4))))
    return answers


@case
def fetch_sessions_switch_between_names_and_ids(cluster: Cluster) -> Any:
    topic_id = filled(cluster, "switch")
    answers = []
    for before, after in ((12, 13), (13, 12)):
        body = fetch_of("switch", [(0, 0)], topic_id=topic_id, session=(0, 0))
        session_id = cluster.ask_raw(FETCH, before, body).session_id
        body = fetch_of("switch", [(0, 3)], topic_id=topic_id, session=(session_id, 1))
        answers.append(cluster.ask(FETCH, after, body))
    return answers


@case
def fetch_with_odd_isolation_levels_and_racks(cluster: Cluster) -> Any:
    filled(cluster, "isolation")
    answers = []
    for isolation_level in (2, 127, -1):
        body = fetch_of("isolation", [(0, 0)], isolation_level=isolation_level)
        body.rack_id = "a-rack-that-is-not-there"
        answers.append(cluster.ask(FETCH, FETCH_BY_NAME, body))
    return answers


@case
def list_offsets_in_every_version(cluster: Cluster) -> Any:
    filled(cluster, "list-versions", 2)
    return [
        cluster.ask_all_versions(LIST_OFFSETS, list_offsets_of("list-versions", [(0, timestamp), (1, timestamp)]))
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, -100, 0, NOW_MS, NOW_MS + 1, NOW_MS + 1001, NOW_MS + 10**6, 2**62)
    ]


@case
def list_offsets_read_committed(cluster: Cluster) -> Any:
    filled(cluster, "list-committed")
    return [
        cluster.ask_all_versions(
            LIST_OFFSETS, list_offsets_of("list-committed", [(0, timestamp)], isolation_level=level), first=2
        )
        for timestamp in (-1, -3, NOW_MS)
        for level in (1, 2)
    ]


@case
def list_offsets_of_unknown_and_repeated_partitions(cluster: Cluster) -> Any:
    filled(cluster, "list-unknown", 2)
    return [
        cluster.ask_all_versions(LIST_OFFSETS, list_offsets_of("list-nowhere", [(0, -1)])),
        cluster.ask_all_versions(LIST_OFFSETS, list_offsets_of("list-unknown", [(2, -1), (-1, -1), (10**9, -2)])),
        cluster.ask_all_versions(LIST_OFFSETS, list_offsets_of("list-unknown", [(0, -1), (0, -2), (1, -1)])),
        cluster.ask_all_versions(LIST_OFFSETS, list_offsets_of("", [(0, -1)])),
        cluster.ask_all_versions(LIST_OFFSETS, list_offsets_of("../x", [(0, -1)])),
    ]


@case
def list_offsets_with_leader_epochs(cluster: Cluster) -> Any:
    filled(cluster, "list-epochs")
    return [
        cluster.ask_all_versions(
            LIST_OFFSETS, list_offsets_of("list-epochs", [(0, timestamp)], leader_epoch=epoch), first=4
        )
        for epoch in (0, 1, 1000)
        for timestamp in (-1, NOW_MS)
    ]


@case
def list_offsets_as_other_replicas(cluster: Cluster) -> Any:
    filled(cluster, "list-replica")
    answers = []
    for replica_id in (-2, 0, 1, 5):
        body = list_offsets_of("list-replica", [(0, -1)])
        body.replica_id = replica_id
        answers.append(cluster.ask(LIST_OFFSETS, 7, body))
    return answers


@case
def list_offsets_where_times_go_back(cluster: Cluster) -> Any:
    cluster.topic("list-disorder")
    for timestamp in (NOW_MS + 500, NOW_MS, NOW_MS + 900, NOW_MS + 100, -1):
        cluster.fill("list-disorder", batch_of([b"v", b"w"], timestamp_ms=timestamp))
    return [
        cluster.ask(LIST_OFFSETS, 10, list_offsets_of("list-disorder", [(0, timestamp)]))
        for timestamp in (0, NOW_MS, NOW_MS + 101, NOW_MS + 501, NOW_MS + 600, NOW_MS + 901, NOW_MS + 902, -3)
    ]


@case
def list_offsets_of_compressed_and_stamped_batches(cluster: Cluster) -> Any:
    answers = []
    for codec in (1, 4):
        name = f"list-codec-{codec}"
        cluster.topic(name)
        cluster.fill(name, batch_of([b"v"] * 5, timestamp_ms=NOW_MS, codec=codec))
        answers += [
            cluster.ask(LIST_OFFSETS, 10, list_offsets_of(name, [(0, timestamp)]))
            for timestamp in (NOW_MS + 3, -3, NOW_MS + 5)
        ]
    return answers


@case
def list_offsets_without_topics(cluster: Cluster) -> Any:
    return cluster.ask_all_versions(LIST_OFFSETS, Struct(replica_id=-1, topics=[]))


def epochs_of(topic: str, *partitions: tuple[int, int, int], replica_id: int = -1) -> Struct:
    """`partitions` are (partition, current leader epoch, epoch asked about)."""
    asked = [
        Struct(partition=index, current_leader_epoch=current, leader_epoch=epoch)
        for index, current, epoch in partitions
    ]
    return Struct(replica_id=replica_id, topics=[Struct(topic=topic, partitions=asked)])


@case
def offset_for_leader_epoch_in_every_version(cluster: Cluster) -> Any:
    filled(cluster, "epochs", 2)
    return [
        cluster.ask_all_versions(OFFSET_FOR_LEADER_EPOCH, epochs_of("epochs", (0, current, epoch), (1, current, epoch)))
        for current in (-1, 0, 1, 9)
        for epoch in (-1, 0, 1, 2**31 - 1)
    ]


@case
def offset_for_leader_epoch_of_what_is_unknown(cluster: Cluster) -> Any:
    filled(cluster, "epochs-known")
    return [
        cluster.ask_all_versions(OFFSET_FOR_LEADER_EPOCH, epochs_of("epochs-unknown", (0, -1, 0))),
        cluster.ask_all_versions(OFFSET_FOR_LEADER_EPOCH, epochs_of("epochs-known", (7, -1, 0), (-1, -1, 0))),
        cluster.ask_all_versions(OFFSET_FOR_LEADER_EPOCH, epochs_of("epochs-known", (0, -1, 0), replica_id=5), first=3),
        cluster.ask_all_versions(OFFSET_FOR_LEADER_EPOCH, Struct(replica_id=-1, topics=[])),
    ]


def deletion_of(topic: str, *partitions: tuple[int, int]) -> Struct:
    asked = [Struct(partition_index=index, offset=offset) for index, offset in partitions]
    return Struct(topics=[Struct(name=topic, partitions=asked)], timeout=5000)


@case
def delete_records_and_what_is_left(cluster: Cluster) -> Any:
    answers = []
    for version in versions_of(DELETE_RECORDS):
        name = f"trim-{version}"
        topic_id = filled(cluster, name, 2)
        for offset in (4, 4, 2, 10, -2, 9, -1):
            answers.append(cluster.ask(DELETE_RECORDS, version, deletion_of(name, (0, offset))))
            answers.append(cluster.ask(LIST_OFFSETS, 9, list_offsets_of(name, [(0, -2)])))
            answers.append(cluster.ask(FETCH, 15, fetch_of(name, [(0, 5)], topic_id=topic_id)))
        answers.append(cluster.ask(LIST_OFFSETS, 9, list_offsets_of(name, [(0, -3)])))
        cluster.fill(name, batch_of([b"after"]))
        answers.append(cluster.ask(FETCH, 15, fetch_of(name, [(0, 9)], topic_id=topic_id)))
    return answers


@case
def delete_records_of_what_is_unknown(cluster: Cluster) -> Any:
    filled(cluster, "trim-known")
    cluster.topic("trim-compacted", configs={"cleanup.policy": "compact"})
    cluster.topic("trim-both", configs={"cleanup.policy": "compact,delete"})
    return [
        cluster.ask_all_versions(DELETE_RECORDS, body)
        for body in (
            deletion_of("trim-unknown", (0, 0)),
            deletion_of("trim-known", (9, 0), (-1, 0)),
            deletion_of("trim-compacted", (0, 0)),
            deletion_of("trim-both", (0, 0)),
            Struct(topics=[], timeout=1000),
        )
    ]
