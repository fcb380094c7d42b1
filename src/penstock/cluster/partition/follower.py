"""The follower's side of one partition's replication: it asks its leader for what comes at the end of its log, and
makes its log equal to the leader's.

- Each fetch says which leader epoch wrote the last batch here. Where that does not match the leader's log, the answer
  says where the two part (KIP-595), and the follower truncates there. The high watermark is no reason to truncate: it
  lags, and cutting by it loses what was acknowledged (KIP-101).
- A log of which a crash may have taken the beginning, and whose leader's begins earlier, is copied anew: it must not be
  elected, and have the others drop what it has lost.
- An answer counts only if nothing has changed since the question: neither the leader's epoch nor the end of the log.

The caller's duties: `follow` with each change of leader or leader epoch; remove the paths that are returned when no
fetch can still be reading them; a DiskError that is raised ends the replica, as in any use of the log. Deadlines go by
`now_ms`, which never goes back; what the log notes (when a producer last wrote, when a segment began) by `wall_ms`.
"""

from typing import NamedTuple, Protocol

from penstock.base.errors import ErrorCode, Refused
from penstock.base.ports import Bytes
from penstock.protocol.batch import HEADER_BYTES, read_header

NO_LEADER = -1
_NO_EPOCH = -1
# How long a throttled replica waits before it looks whether it may go on.
_THROTTLE_PAUSE_MS = 100
# The pause after a first error; each one after it is twice as long as the one before.
FIRST_BACKOFF_MS = 10


class ReplicaLog(Protocol):
    """What a follower needs of its log; `penstock.log.log.Log` is one."""

    log_start_offset: int
    log_end_offset: int
    may_lack_beginning: bool

    @property
    def latest_epoch(self) -> int: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]: ...

    def append_as_follower(self, data: bytes | memoryview, now_ms: int, /) -> None: ...

    def truncate_to(self, offset: int, now_ms: int, /) -> list[str]: ...

    def truncate_fully_and_start_at(self, offset: int, now_ms: int, /) -> list[str]: ...

    def advance_log_start(self, offset: int) -> list[str]: ...


class FetchPosition(NamedTuple):
    """One partition of a fetch request."""

    leader_epoch: int
    fetch_offset: int
    # The leader epoch of the last batch here; -1 when there is none.
    last_fetched_epoch: int
    log_start_offset: int


class FetchedPartition(NamedTuple):
    """One partition of a fetch answer."""

    error_code: ErrorCode = ErrorCode.none
    high_watermark: int = -1
    log_start_offset: int = -1
    records: Bytes = b""
    # (epoch, end offset) where the two logs part.
    diverging_epoch: tuple[int, int] | None = None


class Follower:
    def __init__(self, log: ReplicaLog, high_watermark: int, *, backoff_ms: int) -> None:
        """`backoff_ms` is the longest pause between tries."""
        self._log = log
        self._backoff_ms_max = backoff_ms
        self._next_backoff_ms = FIRST_BACKOFF_MS
        self._retry_at_ms: int | None = None
        self.high_watermark = min(high_watermark, log.log_end_offset)
        self.leader_id = NO_LEADER
        self.leader_epoch = _NO_EPOCH
        # Whether the leader must be asked for its first and last offsets (ListOffsets) before anything else.
        self.wants_offsets = False
        # Named in follower.replication.throttled.replicas (KIP-73).
        self.is_throttled = False
        # Whether it had all that was committed when the leader last answered: then it is not held back.
        self.is_caught_up = False

    def follow(self, leader_id: int, leader_epoch: int) -> None:
        """The metadata names a leader, or NO_LEADER. An epoch that is older than the one known is no news."""
        if leader_epoch < self.leader_epoch:
            return
        if (leader_id, leader_epoch) != (self.leader_id, self.leader_epoch):
            self.leader_id = leader_id
            self.leader_epoch = leader_epoch
            # Not after a first fetch: by that the leader would learn that everything is here.
            self.wants_offsets = self._log.may_lack_beginning
            self._be_hopeful()

    # Questions

    def position(self, now_ms: int, *, quota_is_exceeded: bool = False) -> FetchPosition | None:
        """What to ask the leader next; None while there is no leader or it is too early to try again. `wants_offsets`
        goes first."""
        if self.leader_id == NO_LEADER or self.wants_offsets:
            return None
        if self._retry_at_ms is not None and now_ms < self._retry_at_ms:
            return None
        if quota_is_exceeded and self.is_throttled and not self.is_caught_up:
            self._retry_at_ms = now_ms + _THROTTLE_PAUSE_MS
            return None
        log = self._log
        return FetchPosition(self.leader_epoch, log.log_end_offset, log.latest_epoch, log.log_start_offset)

    @property
    def retry_at_ms(self) -> int | None:
        return self._retry_at_ms

    def back_off(self, now_ms: int) -> None:
        """Briefly at first: mostly the leader is about to learn from the metadata what we know already, and writes that
        wait for us should not wait for long."""
        pause_ms = min(self._next_backoff_ms, self._backoff_ms_max)
        self._retry_at_ms = now_ms + pause_ms
        self._next_backoff_ms = 2 * pause_ms

    def _be_hopeful(self) -> None:
        self._retry_at_ms = None
        self._next_backoff_ms = FIRST_BACKOFF_MS

    # Answers

    def on_answer(self, asked: FetchPosition, answer: FetchedPartition, now_ms: int, *, wall_ms: int) -> list[str]:
        """Paths to be removed are returned. Raises DiskError."""
        log = self._log
        if asked.leader_epoch != self.leader_epoch or asked.fetch_offset != log.log_end_offset or self.wants_offsets:
            return []
        self._retry_at_ms = None
        if answer.error_code:
            self._on_error(answer.error_code, now_ms)
            return []
        self._be_hopeful()
        if answer.diverging_epoch is not None:
            return self._truncate(*answer.diverging_epoch, wall_ms)
        doomed: list[str] = []
        if answer.records:
            doomed = self._make_room_for(answer.records, wall_ms)
            end_offset = log.log_end_offset
            try:
                log.append_as_follower(memoryview(answer.records), wall_ms)
                is_damaged = log.log_end_offset == end_offset
            except Refused:
                is_damaged = True
            if is_damaged:
                # On the way, or on the leader's disk; a first batch that is cut short has a damaged length. What was
                # whole is kept, the rest is asked for again.
                self.back_off(now_ms)
        self.is_caught_up = answer.high_watermark <= log.log_end_offset
        # The log may have become shorter: by making room, where what was to come is damaged.
        self.high_watermark = min(max(self.high_watermark, answer.high_watermark), log.log_end_offset)
        return doomed + self._advance_log_start(answer.log_start_offset)

    def _make_room_for(self, records: Bytes, wall_ms: int) -> list[str]:
        """The leader's log may begin in the middle of a batch, of which it keeps the whole. Ours does the same."""
        log = self._log
        if log.log_start_offset < log.log_end_offset or len(records) < HEADER_BYTES:
            return []
        first = read_header(memoryview(records))
        if first.base_offset < log.log_end_offset <= first.last_offset:
            return log.truncate_fully_and_start_at(first.base_offset, wall_ms)
        return []

    def _on_error(self, error: ErrorCode, now_ms: int) -> None:
        if error is ErrorCode.offset_out_of_range:
            self.wants_offsets = True
        else:
            # Leadership is moving, or something is wrong over there: the metadata or time will help.
            self.back_off(now_ms)

    def _advance_log_start(self, leader_start_offset: int) -> list[str]:
        offset = min(leader_start_offset, self.high_watermark)
        return self._log.advance_log_start(offset) if offset > self._log.log_start_offset else []

    def _truncate(self, epoch: int, end_offset: int, wall_ms: int) -> list[str]:
        """The leader's largest epoch not above our last one is `epoch`, and ends at `end_offset` there."""
        log = self._log
        own_epoch, own_end_offset = log.end_offset_for_epoch(epoch)
        if own_epoch == epoch:
            # With the same epoch on both sides the logs agree up to where the shorter one of it ends.
            offset = min(end_offset, own_end_offset, log.log_end_offset)
        elif own_epoch == _NO_EPOCH:
            offset = min(end_offset, log.log_end_offset)
        else:
            # We do not know that epoch: everything after the one before it has to go, and the leader is asked again.
            offset = min(own_end_offset, log.log_end_offset)
        doomed = log.truncate_to(offset, wall_ms)
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        return doomed

    def on_leader_offsets(
        self, leader_epoch: int, start_offset: int, end_offset: int, now_ms: int, *, wall_ms: int
    ) -> list[str]:
        """The leader's log goes from `start_offset` to `end_offset`; asked for since ours ends outside of it, or it is
        not sure that it has its beginning. Paths to be removed are returned. Raises DiskError."""
        log = self._log
        if leader_epoch != self.leader_epoch or not self.wants_offsets:
            return []
        self.wants_offsets = False
        doomed: list[str] = []
        if log.may_lack_beginning:
            log.may_lack_beginning = False
            if start_offset < log.log_start_offset:
                doomed = log.truncate_fully_and_start_at(start_offset, wall_ms)
                self.high_watermark = start_offset
            return doomed
        if end_offset < log.log_end_offset:
            doomed = log.truncate_to(end_offset, wall_ms)
        if start_offset > log.log_end_offset:
            # Nothing of ours is left over there: we have been away for longer than the topic's retention.
            doomed += log.truncate_fully_and_start_at(start_offset, wall_ms)
            self.high_watermark = start_offset
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        # If neither was the case something else is wrong, and must not be tried in a tight loop.
        self.back_off(now_ms)
        return doomed
