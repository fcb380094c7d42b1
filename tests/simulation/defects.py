"""Defects to be planted in the production code: each must be caught, which shows that the checkers can fail.

Nothing in production knows of them. A defect replaces a function for the time of one run; `caught_by_seed` is one whose
run it spoils, and which is fine without it.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import ErrorCode, Refused
from penstock.broker.appending import Appending
from penstock.broker.broker_life import BrokerLife
from penstock.broker.commits import Commits
from penstock.broker.coordinator_runner import CoordinatorRunner
from penstock.broker.hosting import Hosting
from penstock.broker.quorum_runner import QuorumRunner
from penstock.broker.replica_fetcher import _Lane
from penstock.broker.transaction_coordinator import TransactionCoordinator
from penstock.cluster.metadata import configs as configs_module
from penstock.cluster.metadata.alter_partition import ANY_BROKER_EPOCH
from penstock.cluster.metadata.records import PartitionChangeRecord
from penstock.cluster.partition.follower import Follower
from penstock.cluster.partition.partition import Partition
from penstock.cluster.partition.replication import HighWatermarkAdvanced, Leader
from penstock.cluster.raft.effects import NO_NODE, Sync
from penstock.cluster.raft.elections import Elections
from penstock.cluster.raft.roles import Following
from penstock.cluster.raft.state import QuorumState
from penstock.cluster.raft.stored_log import QUORUM_STATE_FILE
from penstock.coordinator.effects import Send
from penstock.coordinator.transaction.requests import Addition
from penstock.log import log as log_module
from penstock.log.log import Log
from penstock.log.producer_state import Duplicate, ProducerState
from penstock.log.storage import StoredLog
from penstock.testing.sim_disk import SimDisk


@dataclass(frozen=True)
class Defect:
    what: str
    plant: Callable[[], Callable[[], None]]
    caught_by_seed: int


def _replacing(owner: Any, name: str, make: Callable[[Any], Any]) -> Callable[[], Callable[[], None]]:
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


def _passes_on(original: Any) -> Any:
    async def add_partitions(coordinator: Any, addition: Addition) -> Any:
        with contextlib.suppress(Refused):
            node_id = coordinator.shards.node_of(addition.transactional_id)
            if node_id != coordinator._broker.node_id:
                return await coordinator._add_elsewhere(node_id, addition)
        return await original(coordinator, addition)

    return add_partitions


def _forgets_eligible(original: Any) -> Any:
    def ineligible(image: Any, changes: Any) -> list[PartitionChangeRecord]:
        return [
            PartitionChangeRecord(topic_id=one.topic_id, partition_id=one.partition_id, eligible_leader_replicas=())
            for one in original(image, changes)
        ]

    return ineligible


def _raises(original: Any) -> Any:
    def raising(*_: Any) -> Any:
        raise ZeroDivisionError

    return raising


def _stays_locked_out(original: Any) -> Any:
    def make(life: Any, *args: Any, **options: Any) -> None:
        original(life, *args, **{**options, "known_epoch": lambda: -1})

    return make


def _appends_backwards(original: Any) -> Any:
    def append(appending: Any, put_off: Any) -> None:
        original(appending, put_off[::-1])

    return append


def _mixes_up_offsets(original: Any) -> Any:
    def append_all(partition: Any, *args: Any) -> Any:
        return original(partition, *args)[::-1]

    return append_all


def _stays_readable(original: Any) -> Any:
    def resign(partition: Any) -> None:
        partition.leader = partition.on_appended = None

    return resign


def _confirms_unsynced(original: Any) -> Any:
    async def sync(lane: Any) -> None:
        lane._unsynced.clear()

    return sync


def _ignores_voters(original: Any) -> Any:
    def read_voters(state: Any, offset: int) -> None:
        if not isinstance(getattr(state, "_role", None), Following):
            original(state, offset)

    return read_voters


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


def _votes_for_anybody(original: Any) -> Any:
    def may_grant(quorum: Any, request: Any, now_ms: int) -> bool:
        kept = quorum.vote_state
        if not request.pre_vote:
            quorum.vote_state = kept._replace(voted_id=NO_NODE)
        try:
            return bool(original(quorum, request, now_ms))
        finally:
            quorum.vote_state = kept

    return may_grant


def _knows_no_broker_epochs(original: Any) -> Any:
    def check_follower(leader: Any, broker_id: int, broker_epoch: int, leader_epoch: int) -> Any:
        return original(leader, broker_id, ANY_BROKER_EPOCH, leader_epoch)

    return check_follower


def _shrinks_alone(original: Any) -> Any:
    def on_tick(leader: Any, now_ms: int) -> Any:
        effects = original(leader, now_ms)
        for proposal in effects:
            leader.isr = leader._maximal_isr = tuple(broker_id for broker_id, _ in proposal.new_isr)
        return [*effects, *leader._advance(now_ms)]

    return on_tick


def _acts_before_commit(original: Any) -> Any:
    def write(runner: Any) -> None:
        # What goes to partitions is sent at once; who asked is answered when it is committed.
        sent, runner._unsent = runner._unsent, [one for one in runner._unsent if not isinstance(one, Send)]
        original(runner)
        runner._release([one for one in sent if isinstance(one, Send)])

    return write


DEFECTS = {
    "votes-not-synced": Defect(
        "the vote is not on the disk when it is given", _replacing(SimDisk, "write_file", _votes_not_synced), 1011
    ),
    "metadata-not-synced": Defect(
        "a voter says that it has what is not on its disk",
        _replacing(QuorumRunner, "_sync", _metadata_not_synced),
        1009,
    ),
    "truncates-by-high-watermark": Defect(
        "a follower cuts its log at its high watermark",
        _replacing(Follower, "follow", _truncates_by_high_watermark),
        1011,
    ),
    "high-watermark-alone": Defect(
        "the high watermark is the leader's own end",
        _replacing(Leader, "_advance", _high_watermark_of_leader_alone),
        1017,
    ),
    "acks-at-once": Defect("acks=all is answered as acks=1", _replacing(Commits, "is_due", _always(False)), 1005),
    "forgets-producers": Defect(
        "a log comes up without its producers", _replacing(StoredLog, "open", _forgets_producers), 1005
    ),
    "takes-duplicates": Defect("a batch is taken twice", _replacing(ProducerState, "check", _takes_duplicates), 1017),
    "appends-backwards": Defect(
        "requests that come together are appended in another order",
        _replacing(Appending, "_append", _appends_backwards),
        1000,
    ),
    "mixes-up-offsets": Defect(
        "requests that come together are told each other's offsets",
        _replacing(Partition, "append_all", _mixes_up_offsets),
        1000,
    ),
    "ignores-last-stable-offset": Defect(
        "readers of committed records read up to the high watermark",
        _replacing(Log, "last_stable_offset", _ignores_last_stable_offset),
        1017,
    ),
    "forgets-aborts": Defect(
        "aborted transactions are not noted", _replacing(ProducerState, "aborted_by", _always(None)), 1017
    ),
    "loses-markers": Defect(
        "a marker is confirmed and not written", _replacing(Partition, "append_marker", _always(ErrorCode.none)), 1017
    ),
    "commits-offsets-early": Defect(
        "coordinators answer before what they keep is replicated",
        _replacing(CoordinatorRunner, "_is_committed", _always(True)),
        1013,
    ),
    "passes-on": Defect(
        "what a client asks of a node that does not coordinate its transaction is passed on",
        _replacing(TransactionCoordinator, "add_partitions", _passes_on),
        3201819,
    ),
    "forgets-eligible": Defect(
        "another min.insync.replicas makes nobody eligible, as in Kafka",
        _replacing(configs_module, "_changes_of_eligible", _forgets_eligible),
        3201186,
    ),
    "raises": Defect(
        "a request of one who changes settings meets an exception",
        _replacing(configs_module, "_changes_of_eligible", _raises),
        3201186,
    ),
    "stays-locked-out": Defect(
        "a node for which an earlier process was registered meanwhile puts up with that",
        _replacing(BrokerLife, "__init__", _stays_locked_out),
        3201407,
    ),
    "trusts-crashes": Defect(
        "every start counts as one after a clean stop",
        _replacing(Hosting, "_read_clean_shutdown", _trusts_crashes),
        1012,
    ),
    "follows-unsynced": Defect(
        "followers of a synced topic confirm what is not on their disk",
        _replacing(_Lane, "_sync", _confirms_unsynced),
        1019,
    ),
    "votes-twice": Defect(
        "a voter forgets in a term that it has voted", _replacing(Elections, "_may_grant", _votes_for_anybody), 1002
    ),
    "ignores-leader-epochs": Defect(
        "who knows an older leader is served",
        _replacing(Partition, "check_leader_epoch", _always(ErrorCode.none)),
        1007,
    ),
    "ignores-broker-epochs": Defect(
        "a follower's fetch from before its restart counts",
        _replacing(Leader, "check_follower", _knows_no_broker_epochs),
        1011,
    ),
    "shrinks-alone": Defect(
        "who is behind is out of the in-sync replicas before the controller has agreed",
        _replacing(Leader, "on_tick", _shrinks_alone),
        1001,
    ),
    "decides-early": Defect(
        "markers are sent before the decision is replicated",
        _replacing(CoordinatorRunner, "write", _acts_before_commit),
        3011,
    ),
    "trusts-checksums": Defect(
        "a follower takes batches whose checksum is wrong", _replacing(log_module, "crc_is_valid", _always(True)), 1026
    ),
    "ignores-voters": Defect(
        "a follower does not take in who votes from now on",
        _replacing(QuorumState, "_read_voters", _ignores_voters),
        1016,
    ),
    "wakes-between-roles": Defect(
        "who steps down lets readers look before it follows",
        _replacing(Partition, "resign", _stays_readable),
        1017,
    ),
}
