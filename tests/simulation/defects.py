"""Defects to be planted in the production code: each must be caught, which shows that the checkers can fail.

Nothing in production knows of them. A defect replaces a function for the time of one run; `caught_by_seed` is one whose
run it spoils, and which is fine without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode
from penstock.broker.commits import Commits
from penstock.broker.coordinator_runner import CoordinatorRunner
from penstock.broker.hosting import Hosting
from penstock.broker.quorum_runner import QuorumRunner
from penstock.broker.replica_fetcher import _Lane
from penstock.cluster.partition.follower import Follower
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.replication import HighWatermarkAdvanced, Leader
from penstock.cluster.raft.effects import Sync
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


def _stays_readable(original: Any) -> Any:
    def resign(partition: Any) -> None:
        partition.leader = partition.on_appended = None

    return resign


def _confirms_unsynced(original: Any) -> Any:
    async def sync(lane: Any) -> None:
        lane._unsynced.clear()

    return sync


def _always(value: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        return lambda *args, **options: value

    return make


def _trusts_crashes(original: Any) -> Any:
    def read_clean_shutdown(hosting: Any) -> tuple[bool, int]:
        return True, max(0, original(hosting)[1])

    return read_clean_shutdown


def _ignores_last_stable_offset(original: Any) -> Any:
    def last_stable_offset(log: Any, high_watermark: int) -> int:
        return high_watermark

    return last_stable_offset


DEFECTS = {
    "votes-not-synced": Defect(
        "the vote is not on the disk when it is given", _replacing(SimDisk, "write_file", _votes_not_synced), 3
    ),
    "metadata-not-synced": Defect(
        "a voter says that it has what is not on its disk", _replacing(QuorumRunner, "_sync", _metadata_not_synced), 3
    ),
    "truncates-by-high-watermark": Defect(
        "a follower cuts its log at its high watermark",
        _replacing(Follower, "follow", _truncates_by_high_watermark),
        1000,
    ),
    "high-watermark-alone": Defect(
        "the high watermark is the leader's own end",
        _replacing(Leader, "_advance", _high_watermark_of_leader_alone),
        1000,
    ),
    "acks-at-once": Defect("acks=all is answered as acks=1", _replacing(Commits, "is_due", _always(False)), 1002),
    "forgets-producers": Defect(
        "a log comes up without its producers", _replacing(StoredLog, "open", _forgets_producers), 3
    ),
    "takes-duplicates": Defect("a batch is taken twice", _replacing(ProducerState, "check", _takes_duplicates), 1000),
    "ignores-last-stable-offset": Defect(
        "readers of committed records read up to the high watermark",
        _replacing(Log, "last_stable_offset", _ignores_last_stable_offset),
        1000,
    ),
    "forgets-aborts": Defect(
        "aborted transactions are not noted", _replacing(ProducerState, "aborted_by", _always(None)), 1000
    ),
    "loses-markers": Defect(
        "a marker is confirmed and not written", _replacing(Partition, "append_marker", _always(ErrorCode.none)), 1000
    ),
    "commits-offsets-early": Defect(
        "coordinators answer before what they keep is replicated",
        _replacing(CoordinatorRunner, "_is_committed", _always(True)),
        1002,
    ),
    "trusts-crashes": Defect(
        "every start counts as one after a clean stop",
        _replacing(Hosting, "_read_clean_shutdown", _trusts_crashes),
        1000,
    ),
    "follows-unsynced": Defect(
        "followers of a synced topic confirm what is not on their disk",
        _replacing(_Lane, "_sync", _confirms_unsynced),
        3,
    ),
    "wakes-between-roles": Defect(
        "who steps down lets readers look before it follows",
        _replacing(Partition, "resign", _stays_readable),
        2,
    ),
}
