"""Consumer groups at their size: 1,000 members on 1,000 partitions, in both protocols, and offset commits.

Members are those of `bench.group_members`: raw requests from one process. While they come together another process asks
the broker for its versions all the time, to see how long a rebalance keeps it from serving others. On a busy machine
that includes what the scheduler lets the broker and the asking process wait, so the CPU time that the broker took in
one such wait stands beside it: a turn of its event loop cannot have taken more.

A classic group that is new waits for more members as long as its settings say (`group.initial.rebalance.delay.ms`, 3 s,
and again while some still come): the goal is for the rebalance of all the members that follows, which waits for nobody
but them. Commits are synced by Penstock before they are answered, and by Kafka not.
"""

from collections.abc import Iterator

from bench import group_commits, wire
from bench.figures import Figure, Goal, Sample, no_more_than
from bench.group_members import MembersPlan
from bench.session import Session

_TOPIC_PARTITIONS = 1_000
# A connection's commits are answered one after the other, each when it is kept: many members commit at a time.
_COMMIT_CONNECTIONS = 100
_COMMITS_IN_FLIGHT = 5
_COMMITS_PER_SECOND_MIN = Goal(20_000, is_lower_bound=True, is_absolute=True)

FIGURES = (
    Figure("groups.classic.first", "1,000 new classic members (3 s delay twice)", "raw", "s"),
    Figure("groups.classic.again", "1,000 classic members rebalance", "raw", "s", no_more_than(5)),
    Figure("groups.classic.wait", "the longest anyone waits meanwhile", "raw", "ms", no_more_than(20)),
    Figure("groups.classic.work", "of that, the broker at work", "raw", "ms", no_more_than(20)),
    Figure("groups.consumer.first", "1,000 new members, new protocol", "raw", "s", no_more_than(5)),
    Figure("groups.consumer.wait", "the longest anyone waits meanwhile, new protocol", "raw", "ms", no_more_than(20)),
    Figure("groups.consumer.work", "of that, the broker at work", "raw", "ms", no_more_than(20)),
    Figure("groups.commits.single", "offset commits, one per request", "raw", "commits/s", _COMMITS_PER_SECOND_MIN),
    Figure("groups.commits.many", "offset commits, 10 per request", "raw", "commits/s"),
)


def measure(session: Session) -> Iterator[tuple[str, Sample]]:
    port = session.shared().port
    topic = wire.make_topic(port, "groups", _TOPIC_PARTITIONS)
    for protocol in ("classic", "consumer"):
        plan = MembersPlan(
            port=port,
            protocol=protocol,
            group_id=f"bench-{protocol}",
            topic=topic.name,
            topic_id=str(topic.topic_id),
            partitions=_TOPIC_PARTITIONS,
            members=session.sizes.group_members,
            timeout_seconds=120,
        )
        settled, pings = session.group_settles(plan)
        note = f"generation {settled['generations']:.0f}, {settled['cpu_seconds']:.1f} s of the client's CPU"
        yield f"groups.{protocol}.first", Sample(settled["first_seconds"], note=note)
        if protocol == "classic":
            yield "groups.classic.again", Sample(settled["again_seconds"])
        note = f"of {pings['count']:.0f} round trips, p50 {pings['p50_ms']:.2f} ms, p99 {pings['p99_ms']:.1f} ms"
        yield f"groups.{protocol}.wait", Sample(pings["max_ms"], note=note)
        if "work_max_ms" in pings:
            note = f"in the longest wait {pings['longest_work_ms']:.1f} ms"
            yield f"groups.{protocol}.work", Sample(pings["work_max_ms"], note=note)
    for key, offsets in (("single", 1), ("many", 10)):
        replayed = group_commits.CommitReplay(
            port=port,
            topic=topic.name,
            offsets_per_request=offsets,
            requests=session.sizes.group_commits // offsets,
            connections=_COMMIT_CONNECTIONS,
            in_flight_max=_COMMITS_IN_FLIGHT,
        )
        yield f"groups.commits.{key}", session.committed(replayed)
