"""Where our answers may differ from Apache Kafka's, and why."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.conformance.normalise import differences


class Accepted(NamedTuple):
    case: str
    path: str
    reason: str


# Regular expressions of the whole name of the case, and of the end of the path to the field.
ACCEPTED = [
    Accepted(".*", r"\.<flush\.mode>", "a setting of ours: what acks=all waits for"),
    Accepted(
        ".*",
        r"\.<min\.insync\.replicas>(\.config_source|\.synonyms)",
        "with eligible leader replicas Kafka sets this once for the cluster; that feature is not offered yet",
    ),
    Accepted(
        "describe_broker_configs_that_clients_ask_for",
        r"\[1\]\.v\d\.results\[0\]\.configs",
        "the same, seen from the cluster's defaults",
    ),
    Accepted("(produce|idempotent|transactional)_.*", r"\.error_message", "we say why where Kafka says nothing"),
    Accepted("create_partitions_in_odd_ways", r"\.error_message", "we say why where Kafka says nothing"),
    Accepted(
        "describe_group_configs", r"\.<streams\.[a-z.]+>", "settings of the streams protocol, which is not offered"
    ),
    Accepted(
        "bodies_of_odd_kinds|headers_of_odd_kinds",
        r"\.(an array of -2(\^31)? topics|.* not text|a boolean of 7)",
        "we refuse what is malformed; Kafka reads it as null, as other text, as true",
    ),
    Accepted(
        "compact_lengths_of_odd_kinds",
        r"\.2\^32-1 tagged fields",
        "we refuse what is malformed; Kafka reads a negative number of fields as none",
    ),
    Accepted(
        "create_topics_whose_names_collide",
        r"\[1\]\[0\]\.topics\.<collide_three>\..*",
        "Kafka does not notice that two names of the same request collide",
    ),
    Accepted("create_topics_with_bad_settings", r"<retention\.ms>\.value", "we trim a number before keeping it"),
    Accepted(
        "fetch_with_odd_isolation_levels_and_racks|list_offsets_read_committed",
        r".*",
        "an isolation level that does not exist is an UNKNOWN_SERVER_ERROR in Kafka; we take it for read uncommitted",
    ),
    Accepted(
        "incremental_alter_configs_of_a_topic",
        r"no such operation\[0\]\.v\d\.responses\[0\]\.error_(code|message)",
        "Kafka fails with UNKNOWN_SERVER_ERROR; we say INVALID_REQUEST and why",
    ),
    Accepted(
        "produce_codecs_that_do_not_exist|produce_rubbish_as_compressed_records",
        r"\.(error_code|log_start_offset)",
        "Kafka fails with UNKNOWN_SERVER_ERROR; we say what is wrong with the batch",
    ),
    Accepted(
        "produce_batch_lengths_that_lie|produce_records_that_are_malformed",
        r"\.(length 2147483647|an overlong varint)\.responses.*\.error_code",
        "Kafka fails with UNKNOWN_SERVER_ERROR; we say what is wrong with the batch",
    ),
    Accepted(
        "fetch_within_small_limits",
        r"\[1[23]\]\.responses\[0\]\.partitions\[\d\]\..*",
        "negative limits fail with UNKNOWN_SERVER_ERROR in Kafka; we take them for the smallest ones",
    ),
    Accepted(
        "produce_extreme_timestamps|produce_max_timestamps_that_lie",
        r"\.records\[\d\]\.max_timestamp",
        "batches are kept as they come; Kafka opens them and mends the header",
    ),
    Accepted(
        "metadata_by_topic_id",
        r"\[2\]\.v\d+(\..*)?",
        "neither name nor id: Kafka fails with UNKNOWN_SERVER_ERROR; we say INVALID_REQUEST",
    ),
    Accepted(
        "api_versions_of_the_apis_served",
        r"_features\.<(eligible\.leader\.replicas|group|kraft|share|streams)\.version>",
        "features that are not offered yet: replication and groups come later",
    ),
    Accepted(
        "api_versions_of_the_apis_served",
        r"\.<22>\.max_version",
        "InitProducerId 6, for two-phase commits: Kafka offers it only if unstable versions are allowed",
    ),
    Accepted("init_producer_id_in_every_version", r"\.v6(\..*)?", "the same"),
]


def unexpected_differences(case: str, kafka: Any, penstock: Any, accepted: Sequence[Accepted]) -> list[str]:
    """One line for each, however many versions show it."""
    versions: dict[tuple[str, str], list[str]] = {}
    for path, expected, actual in differences(kafka, penstock):
        if any(re.fullmatch(one.case, case) and re.search(f"(?:{one.path})$", path) for one in accepted):
            continue
        version = re.search(r"\bv\d+\b", path)
        general = re.sub(r"\bv\d+\b", "v*", path, count=1)
        key = general, f"\n    Kafka:    {expected!r}\n    Penstock: {actual!r}"
        versions.setdefault(key, []).append(version[0] if version else "")
    return [f"{path} {' '.join(which)}{what}" for (path, what), which in versions.items()]
