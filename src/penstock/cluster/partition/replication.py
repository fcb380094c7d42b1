"""The leader's side of one partition's replication: how far each follower has come, what is committed, who is in sync.

- The high watermark is the smallest log end of the in-sync replicas. It never goes back while one leads, and stands
  still while the ISR is smaller than `min.insync.replicas` (KIP-966), for then those who left stay eligible to lead.
  Where the topic asks for it (`must_sync`), it is the smallest log end that is on the disk: followers fetch from what
  they have synced, and this node counts with what `on_synced` told.
- While a wider ISR is proposed, the newcomer counts already; while a narrower one is, nobody has left yet. So the high
  watermark is right whether or not the controller has agreed (KIP-497).
- A follower joins the ISR when it has all that is committed and all from before this leader's time, and is the
  incarnation that is registered (KIP-903). It leaves when it did not catch up for `replica.lag.time.max.ms`.

The caller's duties: perform the effects of each call in order; `lead` with each change of the partition's metadata
while this node leads it, `resign` when it no longer does; `check_follower` before reading for a follower, and
`on_fetch` when its position was found not to diverge; `on_append` after each append; `on_tick` at `next_deadline_ms`;
with `must_sync`, a sync after `lead` and after each append, and `on_synced` when it is done.
A proposal that got no answer is answered with an error.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.base.errors import ErrorCode
from penstock.cluster.metadata.alter_partition import ANY_BROKER_EPOCH, AlteredPartition
from penstock.cluster.metadata.image import BrokerImage
from penstock.cluster.metadata.partition_image import PartitionImage
from penstock.cluster.metadata.records import RECOVERED

_UNKNOWN_OFFSET = -1
_NO_EPOCH = -1
_LONG_AGO_MS = -(2**62)


class ProposeIsr(NamedTuple):
    """To be sent to the controller as AlterPartition."""

    leader_epoch: int
    partition_epoch: int
    # (broker id, broker epoch)
    new_isr: tuple[tuple[int, int], ...]
    leader_recovery_state: int = RECOVERED


class HighWatermarkAdvanced(NamedTuple):
    """Readers up to there may go on; followers learn it with their next answer."""

    offset: int


class Acknowledge(NamedTuple):
    """The `acks=all` write that waits under this token is decided."""

    token: Any
    error_code: ErrorCode


class BeginEpoch(NamedTuple):
    """To be noted in the log before anything is appended, so that followers find where they parted from us."""

    leader_epoch: int
    start_offset: int


Effect = ProposeIsr | HighWatermarkAdvanced | Acknowledge | BeginEpoch


class FollowerState:
    """What the leader knows of one other replica."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.forget()

    def forget(self) -> None:
        self.log_end_offset = _UNKNOWN_OFFSET
        self.log_start_offset = _UNKNOWN_OFFSET
        # When it last had everything there was.
        self.last_caught_up_ms = _LONG_AGO_MS
        self.last_fetch_ms = _LONG_AGO_MS
        # Our end when it fetched last: having reached that counts as having been caught up then.
        self.last_fetch_leader_end = _UNKNOWN_OFFSET
        # None before its first fetch.
        self.broker_epoch: int | None = None

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max


class Leader:
    def __init__(
        self,
        broker_id: int,
        brokers: Mapping[int, BrokerImage],
        *,
        lag_ms_max: int,
        isr_min: int,
        contacts: Mapping[int, int] | None = None,
    ) -> None:
        """`brokers` are those of the metadata image, as it is at any time; `isr_min` is `min.insync.replicas`.
        `contacts` says when each broker last fetched anything at all: a follower that is at the end of the log need not
        say so with each fetch."""
        self._broker_id = broker_id
        self._brokers = brokers
        self._contacts = contacts if contacts is not None else {}
        self._lag_ms_max = lag_ms_max
        # To be set before `lead`: another one may be the reason for a new epoch.
        self.isr_min = isr_min
        self._waiting: deque[tuple[int, Any]] = deque()
        self._pending: ProposeIsr | None = None
        # The ISR that counts for the high watermark: with those who are proposed to join.
        self._maximal_isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        self.isr: tuple[int, ...] = ()
        self.leader_epoch = _NO_EPOCH
        self.partition_epoch = _NO_EPOCH
        self.epoch_start_offset = _UNKNOWN_OFFSET
        self.log_end_offset = 0
        self.high_watermark = 0
        # Whether what is not on the disk is not committed; may change at any time, with the topic's settings.
        self.must_sync = False
        self._synced_offset = 0

    @property
    def is_leading(self) -> bool:
        return self.leader_epoch != _NO_EPOCH

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < min(self.isr_min, len(self.followers) + 1)

    # Leadership

    def lead(self, partition: PartitionImage, log_end_offset: int, high_watermark: int, now_ms: int) -> list[Effect]:
        """The metadata says that this node leads. Log end and high watermark count where it did not lead before."""
        if partition.leader_epoch < self.leader_epoch or partition.partition_epoch < self.partition_epoch:
            # The controller's answer to a proposal was here first.
            return []
        effects: list[Effect] = []
        was_leading = self.is_leading
        is_news = partition.partition_epoch > self.partition_epoch
        others = [one for one in partition.replicas if one != self._broker_id]
        self.followers = {one: self.followers.get(one) or FollowerState(one) for one in others}
        if not was_leading:
            self.log_end_offset = log_end_offset
            self.high_watermark = min(high_watermark, log_end_offset)
            self._synced_offset = self.high_watermark
        if partition.leader_epoch > self.leader_epoch:
            self.leader_epoch = partition.leader_epoch
            self.epoch_start_offset = self.log_end_offset
            effects.append(BeginEpoch(self.leader_epoch, self.log_end_offset))
            self._begin_again(partition.isr, now_ms, was_leading=was_leading)
        self.partition_epoch = partition.partition_epoch
        if is_news:
            # Whatever was proposed rests on an older partition epoch: refused, or contained in this.
            self._commit_isr(partition.isr)
        effects += self._advance(now_ms)
        return effects

    def _begin_again(self, isr: tuple[int, ...], now_ms: int, *, was_leading: bool) -> None:
        for follower in self.followers.values():
            if not was_leading:
                follower.forget()
            is_in_sync = follower.broker_id in isr
            follower.last_fetch_leader_end = self.log_end_offset if was_leading else _UNKNOWN_OFFSET
            follower.last_fetch_ms = now_ms if was_leading and is_in_sync else _LONG_AGO_MS
            # A member of the ISR has the time to show up; others do not hold the high watermark back.
            follower.last_caught_up_ms = now_ms if is_in_sync else _LONG_AGO_MS

    def _commit_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = self._maximal_isr = isr
        self._pending = None

    def resign(self) -> list[Effect]:
        """This node no longer leads. Who waits for an acknowledgement must ask the new leader."""
        effects: list[Effect] = [Acknowledge(token, ErrorCode.not_leader_or_follower) for _, token in self._waiting]
        self._waiting.clear()
        self._commit_isr(())
        self.followers = {}
        self.leader_epoch = _NO_EPOCH
        return effects

    def reconfigure(self, *, lag_ms_max: int, isr_min: int, now_ms: int) -> list[Effect]:
        self._lag_ms_max = lag_ms_max
        self.isr_min = isr_min
        return self._advance(now_ms)

    # Appends

    def on_append(self, log_end_offset: int, now_ms: int) -> list[Effect]:
        for follower in self.followers.values():
            if follower.log_end_offset >= self.log_end_offset:
                # Up to now it had everything, as of when it was last heard of.
                contact_ms = self._contacts.get(follower.broker_id, _LONG_AGO_MS)
                follower.last_caught_up_ms = max(follower.last_caught_up_ms, contact_ms)
        self.log_end_offset = log_end_offset
        return self._advance(now_ms)

    def on_synced(self, offset: int, now_ms: int) -> list[Effect]:
        """What lies before `offset` is on the disk here."""
        if offset <= self._synced_offset:
            return []
        self._synced_offset = offset
        return self._advance(now_ms)

    def acknowledge_at(self, offset: int, token: Any) -> list[Effect]:
        """An `acks=all` write that ends before `offset` waits for everybody in sync. To be called in the order of the
        appends."""
        self._waiting.append((offset, token))
        return self._acknowledge()

    def _acknowledge(self) -> list[Effect]:
        waiting = self._waiting
        if not waiting or waiting[0][0] > self.high_watermark:
            return []
        enough = len(self._maximal_isr) >= min(self.isr_min, len(self.followers) + 1)
        error = ErrorCode.none if enough else ErrorCode.not_enough_replicas_after_append
        effects: list[Effect] = []
        while waiting and waiting[0][0] <= self.high_watermark:
            effects.append(Acknowledge(waiting.popleft()[1], error))
        return effects

    def _advance(self, now_ms: int) -> list[Effect]:
        # Every append and every follower's fetch comes through here.
        if not self.is_leading or self.is_under_min_isr:
            return []
        end_offset = self.log_end_offset
        committed = min(end_offset, self._synced_offset) if self.must_sync else end_offset
        for follower in self.followers.values():
            if follower.log_end_offset < committed and (
                follower.broker_id in self._maximal_isr
                # Who is about to join is waited for, else a fast producer could keep it out for ever.
                or (follower.is_caught_up(end_offset, now_ms, self._lag_ms_max) and self._is_eligible(follower))
            ):
                committed = follower.log_end_offset
        if committed <= self.high_watermark:
            return []
        self.high_watermark = committed
        return [HighWatermarkAdvanced(committed), *self._acknowledge()]

    # Followers

    def check_follower(self, broker_id: int, broker_epoch: int, leader_epoch: int) -> ErrorCode:
        """Whether that broker may fetch as a follower; `leader_epoch` is the one it knows, -1 for none."""
        if not self.is_leading:
            return ErrorCode.not_leader_or_follower
        if leader_epoch not in (_NO_EPOCH, self.leader_epoch):
            is_old = leader_epoch < self.leader_epoch
            return ErrorCode.fenced_leader_epoch if is_old else ErrorCode.unknown_leader_epoch
        if broker_id not in self.followers:
            # One that a reassignment adds may know of it before we do: it asks again.
            return ErrorCode.unknown_leader_epoch if leader_epoch >= 0 else ErrorCode.not_leader_or_follower
        registered = self._brokers.get(broker_id)
        if registered is not None and broker_epoch != ANY_BROKER_EPOCH and broker_epoch < registered.epoch:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none

    def on_fetch(
        self, broker_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> list[Effect]:
        """A follower asks for what comes at `fetch_offset`: it has everything before."""
        follower = self.followers[broker_id]
        end_offset = self.log_end_offset
        if fetch_offset >= end_offset:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, now_ms)
        elif fetch_offset >= follower.last_fetch_leader_end:
            follower.last_caught_up_ms = max(follower.last_caught_up_ms, follower.last_fetch_ms)
        has_moved = follower.log_end_offset != fetch_offset
        follower.log_end_offset = fetch_offset
        follower.log_start_offset = log_start_offset
        follower.last_fetch_leader_end = max(end_offset, follower.last_fetch_leader_end)
        follower.last_fetch_ms = now_ms
        follower.broker_epoch = broker_epoch
        effects = self.let_join(broker_id)
        if has_moved:
            effects += self._advance(now_ms)
        return effects

    def let_join(self, broker_id: int) -> list[Effect]:
        """Proposes the follower for the ISR, if it may join: for one that fetches, while it is not in the ISR."""
        follower = self.followers[broker_id]
        if broker_id in self.isr or not self._may_join(follower):
            return []
        proposal = self._propose((*self.isr, broker_id))
        self._maximal_isr = (*self.isr, broker_id)
        return [proposal]

    def _may_join(self, follower: FollowerState) -> bool:
        return (
            self._pending is None
            and follower.log_end_offset >= self.high_watermark
            # What an earlier leader committed may lie beyond our high watermark, but not beyond where we began.
            and follower.log_end_offset >= self.epoch_start_offset
            and self._is_eligible(follower)
        )

    def _is_eligible(self, follower: FollowerState) -> bool:
        registered = self._brokers.get(follower.broker_id)
        return (
            registered is not None
            and registered.is_active
            and follower.broker_epoch in (ANY_BROKER_EPOCH, registered.epoch)
        )

    def _propose(self, isr: tuple[int, ...]) -> ProposeIsr:
        members = tuple((one, self._epoch_of(one)) for one in isr)
        self._pending = ProposeIsr(self.leader_epoch, self.partition_epoch, members)
        return self._pending

    def _epoch_of(self, broker_id: int) -> int:
        if broker_id == self._broker_id:
            registered = self._brokers.get(broker_id)
            return ANY_BROKER_EPOCH if registered is None else registered.epoch
        # A member that has not fetched from us yet: if it was restarted, the controller has taken it out, and the
        # proposal fails by the partition epoch.
        epoch = self.followers[broker_id].broker_epoch if broker_id in self.followers else None
        return ANY_BROKER_EPOCH if epoch is None else epoch

    # Time

    def next_deadline_ms(self) -> int | None:
        """When a member of the ISR will have been behind for too long; None while all are at the end of the log."""
        if not self.is_leading or self._pending is not None:
            return None
        behind = [
            one.last_caught_up_ms for one in self._in_sync_followers() if one.log_end_offset < self.log_end_offset
        ]
        return min(behind) + self._lag_ms_max + 1 if behind else None

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Proposes an ISR without those who are too far behind, if there are any."""
        if not self.is_leading or self._pending is not None:
            return []
        late = [
            one.broker_id
            for one in self._in_sync_followers()
            if not one.is_caught_up(self.log_end_offset, now_ms, self._lag_ms_max)
        ]
        return [self._propose(tuple(one for one in self.isr if one not in late))] if late else []

    def _in_sync_followers(self) -> list[FollowerState]:
        return [self.followers[one] for one in self.isr if one in self.followers]

    # The controller's answers

    def on_altered(self, proposal: ProposeIsr, answer: AlteredPartition | ErrorCode, now_ms: int) -> list[Effect]:
        """An error other than the partition's own: the question is asked again."""
        if proposal is not self._pending:
            # The metadata was here first, and has overtaken it.
            return []
        error = answer if isinstance(answer, ErrorCode) else answer.error_code
        if isinstance(answer, AlteredPartition) and not error:
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return []
            self.partition_epoch = answer.partition_epoch
            self._commit_isr(tuple(answer.isr))
            return self._advance(now_ms)
        if error in _NOT_APPLIED:
            self._commit_isr(self.isr)
            return self._advance(now_ms)
        if error in _AWAIT_METADATA:
            return []
        return [proposal]

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest first offset of all living replicas: what lies before is gone for good (DeleteRecords)."""
        living = (one for one in self.followers.values() if self._is_alive(one.broker_id))
        return min([log_start_offset, *(one.log_start_offset for one in living)])

    def _is_alive(self, broker_id: int) -> bool:
        registered = self._brokers.get(broker_id)
        return registered is not None and not registered.fenced


# The controller has seen the partition as we do, and has not done it.
_NOT_APPLIED = frozenset({ErrorCode.ineligible_replica, ErrorCode.operation_not_attempted})
# The metadata will tell; until then the proposal counts as being under way, which is the safe side.
_AWAIT_METADATA = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.invalid_update_version,
        ErrorCode.invalid_request,
        ErrorCode.new_leader_elected,
    }
)
