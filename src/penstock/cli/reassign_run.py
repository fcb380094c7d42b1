"""A plan of moves carried out: begun at the pace that was asked for, watched to its end, leaders put in place.

The pace is kept by when partitions begin, not by slowing any of them: nothing is left set in the cluster when this
ends early. What has begun then goes on by itself, and a new plan has the rest.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.cli.cluster_state import Place, ask_moving
from penstock.cli.connection import ADMIN_TIMEOUT_S, Cluster
from penstock.cli.failures import Failed
from penstock.cli.printing import note, plural
from penstock.cli.progress import count_progress
from penstock.cli.reassign_plan import Move, Replicas
from penstock.cli.wire import refusal, request
from penstock.protocol.messages import Struct

ELECT_LEADERS, ELECT_LEADERS_VERSION = 43, 2
ALTER_REASSIGNMENTS, ALTER_REASSIGNMENTS_VERSION = 45, 1
_PREFERRED = 0
_TIMEOUT_MS = 30_000
_LOOK_SECONDS = 0.3
# One request's worth.
_PARTITIONS_AT_ONCE = 1_000


def run_moves(
    cluster: Cluster, moves: Sequence[Move], bytes_of: Mapping[Place, int], bytes_per_second_max: float
) -> None:
    waiting = list(moves)
    under_way: set[Place] = set()
    began_s = time.monotonic()
    begun_bytes = 0
    try:
        with count_progress("moving", len(moves)) as advance:
            while waiting or under_way:
                some = _due(waiting, bytes_of, bytes_per_second_max, begun_bytes, time.monotonic() - began_s)
                if some:
                    alter(cluster, {move.place: move.after for move in some})
                    del waiting[: len(some)]
                    begun_bytes += sum(bytes_of[move.place] for move in some)
                    under_way.update(move.place for move in some)
                still = under_way & ask_moving(cluster).keys()
                advance(len(under_way) - len(still))
                under_way = still
                if waiting or under_way:
                    time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        note(
            f"{plural(len(under_way), 'partition')} still moving; {len(waiting)} not begun. "
            "`penstock cluster reassign --status` shows them, --cancel takes them back."
        )
        raise
    _wait_until_seen(cluster, moves)
    elect_preferred(cluster, [move.place for move in moves])


def _wait_until_seen(cluster: Cluster, moves: Sequence[Move]) -> None:
    """The controller has decided; nodes learn of it a moment later."""
    give_up_at = time.monotonic() + ADMIN_TIMEOUT_S
    while time.monotonic() < give_up_at:
        topics = cluster.topics()
        if all(
            move.topic not in topics or tuple(topics[move.topic].partitions[move.partition].replicas) == move.after
            for move in moves
        ):
            return
        time.sleep(_LOOK_SECONDS)


def _due(
    waiting: list[Move], bytes_of: Mapping[Place, int], bytes_per_second_max: float, begun_bytes: int, seconds: float
) -> list[Move]:
    """The next to begin: those whose turn it is at this pace, all of them where there is none."""
    if not bytes_per_second_max:
        return waiting[:_PARTITIONS_AT_ONCE]
    due: list[Move] = []
    for move in waiting[:_PARTITIONS_AT_ONCE]:
        if begun_bytes > bytes_per_second_max * seconds:
            break
        due.append(move)
        begun_bytes += bytes_of[move.place]
    return due


def alter(cluster: Cluster, targets: Mapping[Place, Replicas | None]) -> None:
    """Begins moves to these replicas; None takes back the one under way."""
    by_topic: dict[str, list[Struct]] = {}
    for (topic, index), replicas in targets.items():
        by_topic.setdefault(topic, []).append(Struct(partition_index=index, replicas=replicas))
    body = Struct(
        timeout=_TIMEOUT_MS,
        allow_replication_factor_change=True,
        topics=[Struct(name=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )
    answer = request(cluster, cluster.address, ALTER_REASSIGNMENTS, ALTER_REASSIGNMENTS_VERSION, body)
    problems = [refusal(answer.error_code, answer.error_message)]
    problems += [
        _partition_refusal(topic.name, one) for topic in answer.responses for one in topic.partitions if one.error_code
    ]
    refused = [problem for problem in problems if problem]
    if refused:
        raise Failed("\n  ".join(refused))


def _partition_refusal(topic: str, one: Any) -> str | None:
    if one.error_code == ErrorCode.no_reassignment_in_progress:
        return None
    return f"{topic}-{one.partition_index}: {refusal(one.error_code, one.error_message)}"


def elect_preferred(cluster: Cluster, places: Sequence[Place]) -> None:
    """The first replica leads, where it can."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in places:
        by_topic.setdefault(topic, []).append(index)
    body = Struct(
        election_type=_PREFERRED,
        topic_partitions=[Struct(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
        timeout=_TIMEOUT_MS,
    )
    # confluent-kafka's elect_leaders fails on its own arguments.
    answer = request(cluster, cluster.address, ELECT_LEADERS, ELECT_LEADERS_VERSION, body)
    for topic in answer.replica_election_results:
        for one in topic.partition_result:
            if one.error_code not in (ErrorCode.none, ErrorCode.election_not_needed):
                why = refusal(one.error_code, one.error_message)
                note(f"{topic.topic}-{one.partition_id}: its first replica does not lead: {why}")
