"""Where our answers may differ from Apache Kafka's, and why."""

import re
from typing import Any, NamedTuple


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
        "api_versions_of_the_apis_served",
        r"_features\.<(eligible\.leader\.replicas|group|kraft|share|streams|transaction)\.version>",
        "features that are not offered yet: replication, groups and transactions come later",
    ),
]


def is_accepted(case: str, path: str, kafka: Any, penstock: Any) -> bool:
    return any(re.fullmatch(one.case, case) and re.search(f"(?:{one.path})$", path) for one in ACCEPTED)
