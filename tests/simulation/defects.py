"""Defects to be planted in the production code: each must be caught, which shows that the checkers can fail.

Nothing in production knows of them. A defect replaces a function for the time of one run; `caught_by_seed` is one whose
run it spoils, and which is fine without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.commits import Commits
from penstock.broker.controller_runner import ControllerRunner
from penstock.broker.coordinator_runner import CoordinatorRunner
from penstock.broker.hosting import Hosting
from penstock.broker.quorum_runner import QuorumRunner
from penstock.broker.replica_fetcher import _Lane
from penstock.broker.replication import Replication
from penstock.cluster.partition.follower import Follower
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.replication import HighWatermarkAdvanced, Leader
from penstock.cluster.raft.effects import Sync
from penstock.cluster.raft.elections import Elections
from penstock.cluster.raft.stored_log import QUORUM_STATE_FILE
from penstock.log.log import Log
from penstock.log.producer_state import Duplicate, ProducerState
from penstock.log.storage import StoredLog
from penstock.testing.sim_disk import SimDisk


@dataclass(frozen=True)
class Defect:
    what: str
    plant: Callable[[], Callable[[], None]]
    caught_by_seed: int


def _replacing(owner: type, name: str, make: Callable[[Any], Any]) -> Callable[[], Callable[[], None]]:
    """`make` gets the function as it is, and gives the defective one."""

    def plant() -> Callable[[], None]:
        original = owner.__dict__[name]
        setattr(owner, name, make(original.__func__ if isinstance(original, classmethod) else original))
        return lambda: setattr(owner, name, original)

    return plant


def _votes_not_synced(original: Any) -> Any:
    def write_file(disk: Any, path: str, data: bytes, *, durable: bool = True) -> None:
        original(disk, path, data, durable=durable and path != QUORUM_STATE_FILE)

    return write_file


def _metadata_not_synced(original: Any) -> Any:
    def sync(runner: Any, effect: Sync) -> None:
        flush = runner._log.flush()

        def done() -> None:
            runner._log.mark_flushed(flush)
            runner._step(lambda: runner._quorum.synced(effect, runner._clock.monotonic_ms()))

        runner._loop.call_soon(done)

    return sync


def _truncates_by_high_watermark(original: Any) -> Any:
    def follow(follower: Any, leader_id: int, leader_epoch: int) -> None:
        is_news = leader_epoch > follower.leader_epoch
        original(follower, leader_id, leader_epoch)
        if is_news and follower.high_watermark < follower._log.log_end_offset:
            follower._log.truncate_to(follower.high_watermark, 0)

    return follow


def _no_fencing_of_followers(original: Any) -> Any:
    def check_follower(leader: Any, broker_id: int, broker_epoch: int, leader_epoch: int) -> ErrorCode:
        return ErrorCode.none if broker_id in leader.followers else ErrorCode.not_leader_or_follower

    return check_follower


def _isr_shrinks_at_once(original: Any) -> Any:
    def on_tick(leader: Any, now_ms: int) -> Any:
        effects = original(leader, now_ms)
        for effect in effects:
            leader.isr = leader._maximal_isr = tuple(broker_id for broker_id, _ in effect.new_isr)
        return [*effects, *leader._advance(now_ms)]

    return on_tick


def _high_watermark_of_leader_alone(original: Any) -> Any:
    def advance(leader: Any, now_ms: int) -> Any:
        if not leader.is_leading or leader.log_end_offset <= leader.high_watermark:
            return []
        leader.high_watermark = leader.log_end_offset
        return [HighWatermarkAdvanced(leader.high_watermark), *leader._acknowledge()]

    return advance


def _forgets_producers(original: Any) -> Any:
    def open_log(cls: Any, *args: Any, **options: Any) -> Any:
        log = original(cls, *args, **options)
        log._producers = None
        return log

    return classmethod(open_log)


def _takes_duplicates(original: Any) -> Any:
    def check(state: Any, header: Any) -> Any:
        verdict = original(state, header)
        return None if isinstance(verdict, Duplicate) else verdict

    return check


def _votes_twice(original: Any) -> Any:
    def may_grant(quorum: Any, request: Any, now_ms: int) -> bool:
        kept = quorum.vote_state
        quorum.vote_state = kept._replace(voted_id=-1, voted_directory_id=None)
        try:
            return bool(original(quorum, request, now_ms))
        finally:
            quorum.vote_state = kept

    return may_grant


def _decides_before_commit(original: Any) -> Any:
    async def decide(runner: Any, decision: Any) -> Any:
        applied = runner._quorum.applied
        propose = runner._quorum.propose

        def propose_without_waiting(batch: bytearray) -> Any:
            future = propose(batch)
            future.add_done_callback(lambda done: done.exception())
            return applied(0)

        runner._quorum.propose = propose_without_waiting
        try:
            return await original(runner, decision)
        finally:
            del runner._quorum.propose

    return decide


def _wakes_readers_between_roles(original: Any) -> Any:
    def resign(replication: Any, partition: Any) -> None:
        original(replication, partition)
        replication._wake(partition)

    return resign


def _always(value: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return lambda *args, **options: value

    return make


async def _nothing(*args: Any) -> None:
    return None


DEFECTS = {
    "votes-not-synced": Defect(
        "the vote is not on the disk when it is given", _replacing(SimDisk, "write_file", _votes_not_synced), 0
    ),
    "votes-twice": Defect("a voter votes for everybody who asks", _replacing(Elections, "_may_grant", _votes_twice), 0),
    "metadata-not-synced": Defect(
        "a voter says that it has what is not on its disk", _replacing(QuorumRunner, "_sync", _metadata_not_synced), 0
    ),
    "decides-before-commit": Defect(
        "the controller answers before its decision is committed",
        _replacing(ControllerRunner, "decide", _decides_before_commit),
        0,
    ),
    "truncates-by-high-watermark": Defect(
        "a follower cuts its log at its high watermark", _replacing(Follower, "follow", _truncates_by_high_watermark), 0
    ),
    "no-fencing": Defect(
        "followers of any epoch are believed", _replacing(Leader, "check_follower", _no_fencing_of_followers), 0
    ),
    "shrinks-at-once": Defect(
        "the ISR shrinks before the controller agrees", _replacing(Leader, "on_tick", _isr_shrinks_at_once), 0
    ),
    "high-watermark-alone": Defect(
        "the high watermark is the leader's own end", _replacing(Leader, "_advance", _high_watermark_of_leader_alone), 0
    ),
    "acks-at-once": Defect("acks=all is answered as acks=1", _replacing(Commits, "is_due", _always(False)), 0),
    "forgets-producers": Defect(
        "a log comes up without its producers", _replacing(StoredLog, "open", _forgets_producers), 0
    ),
    "takes-duplicates": Defect("a batch is taken twice", _replacing(ProducerState, "check", _takes_duplicates), 0),
    "ignores-last-stable-offset": Defect(
        "readers of committed records read up to the high watermark",
        _replacing(Log, "last_stable_offset", lambda _: lambda log, high_watermark: high_watermark),
        0,
    ),
    "forgets-aborts": Defect(
        "aborted transactions are not noted", _replacing(ProducerState, "aborted_by", _always(None)), 0
    ),
    "loses-markers": Defect(
        "a marker is confirmed and not written", _replacing(Partition, "append_marker", _always(ErrorCode.none)), 0
    ),
    "commits-offsets-early": Defect(
        "coordinators answer before what they keep is replicated",
        _replacing(CoordinatorRunner, "_is_committed", _always(True)),
        0,
    ),
    "trusts-crashes": Defect(
        "every start counts as one after a clean stop",
        _replacing(
            Hosting, "_read_clean_shutdown", lambda original: lambda hosting: (True, max(0, original(hosting)[1]))
        ),
        0,
    ),
    "follows-unsynced": Defect(
        "followers of a synced topic confirm what is not on their disk",
        _replacing(_Lane, "_sync", lambda _: _nothing),
        0,
    ),
    "wakes-between-roles": Defect(
        "who steps down lets readers look before it follows",
        _replacing(Replication, "_resign", _wakes_readers_between_roles),
        0,
    ),
}
