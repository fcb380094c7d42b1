"""All partitions that this node follows from one leader: one fetch is under way at a time, in one session (KIP-227).

A request names only the partitions whose position has changed since it was last sent, and the answer only those with
news: so a thousand idle partitions cost one empty request per `replica.fetch.wait.max.ms`.

The caller's duties: send what `next_request` gives, to be answered before `rest_ends_ms`, and hand in the answer, or
`on_failure`; ask again after each of these, after `add`, `remove` and `changed`, and at `next_deadline_ms`; after each
request give up those that `take_failed` names; fetch the leader's offsets for those that `wanting_offsets` names, hand
them to the follower, and say `changed`.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from penstock.base.errors import ErrorCode
from penstock.base.ports import DiskError, DiskFull
from penstock.cluster.partition.follower import FetchedPartition, FetchPosition, Follower

Key = tuple[UUID, int]

_NO_SESSION = 0
_FULL = 0
_EPOCH_MAX = 2**31 - 1


class FetchBody(NamedTuple):
    session_id: int
    session_epoch: int
    partitions: list[tuple[Key, FetchPosition]]
    forgotten: list[Key]


class Taken(NamedTuple):
    """What came of an answer: files to be removed, replicas whose disk failed, which are followed no more, and those
    for whom there was no space, which are tried again."""

    doomed: dict[Key, list[str]]
    failed: dict[Key, DiskError]
    full: dict[Key, DiskFull]


class Fetcher:
    def __init__(self, *, backoff_ms: int) -> None:
        self._backoff_ms = backoff_ms
        self._followers: dict[Key, Follower] = {}
        self._session_id = _NO_SESSION
        self._session_epoch = _FULL
        # What the leader knows by this session.
        self._sent: dict[Key, FetchPosition] = {}
        # What may have another position than was sent; what has none for now, because it waits for something.
        self._changed: dict[Key, None] = {}
        self._resting: dict[Key, None] = {}
        self._gone: dict[Key, None] = {}
        self._failed: dict[Key, DiskError] = {}
        self._is_under_way = False
        self._retry_at_ms: int | None = None

    def add(self, key: Key, follower: Follower) -> None:
        self._followers[key] = follower
        self._gone.pop(key, None)
        self.changed(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._followers

    def __len__(self) -> int:
        return len(self._followers)

    @property
    def is_under_way(self) -> bool:
        return self._is_under_way

    def remove(self, key: Key) -> None:
        del self._followers[key]
        self._changed.pop(key, None)
        self._resting.pop(key, None)
        if key in self._sent:
            self._gone[key] = None

    def changed(self, key: Key) -> None:
        """The partition's leader epoch or its log has changed from outside."""
        self._resting.pop(key, None)
        self._changed[key] = None

    def wanting_offsets(self) -> list[Key]:
        return [key for key in self._resting if self._followers[key].wants_offsets]

    def next_deadline_ms(self) -> int | None:
        """When to ask for a request again though nothing has happened."""
        if self._is_under_way:
            return None
        if self._retry_at_ms is not None:
            return self._retry_at_ms
        return self.rest_ends_ms()

    def rest_ends_ms(self) -> int | None:
        """When the first of those is due that cannot be asked for now: a fetch should not wait for longer."""
        retries = [self._followers[key].retry_at_ms for key in self._resting]
        return min((one for one in retries if one is not None), default=None)

    def next_request(self, now_ms: int, *, quota_is_exceeded: bool = False) -> FetchBody | None:
        """None while one is under way, after a failure for a while, and when there is nothing to follow."""
        if self._is_under_way or (self._retry_at_ms is not None and now_ms < self._retry_at_ms):
            return None
        self._retry_at_ms = None
        if self._session_epoch == _FULL:
            self._sent.clear()
            self._gone.clear()
            self._changed = dict.fromkeys(self._followers)
            self._resting.clear()
        forgotten = list(self._gone)
        partitions = []
        for key in (*self._changed, *self._resting):
            try:
                position = self._followers[key].position(now_ms, quota_is_exceeded=quota_is_exceeded)
            except DiskError as problem:
                # A log is looked into when it is first used. The others must not suffer for it.
                self._failed[key] = problem
                position = None
            if position is None:
                self._resting[key] = None
                if self._sent.pop(key, None) is not None:
                    forgotten.append(key)
                continue
            self._resting.pop(key, None)
            if position != self._sent.get(key):
                self._sent[key] = position
                partitions.append((key, position))
        self._changed.clear()
        for key in self._failed:
            self.remove(key)
        self._gone.clear()
        for key in forgotten:
            self._sent.pop(key, None)
        if not self._sent and not forgotten:
            return None
        self._is_under_way = True
        return FetchBody(self._session_id, self._session_epoch, partitions, forgotten)

    def take_failed(self) -> dict[Key, DiskError]:
        """Those that cannot be read, which are followed no more."""
        failed, self._failed = self._failed, {}
        return failed

    def on_answer(
        self,
        error_code: ErrorCode,
        session_id: int,
        answers: Iterable[tuple[Key, FetchedPartition]],
        now_ms: int,
        *,
        wall_ms: int,
    ) -> Taken:
        self._is_under_way = False
        taken = Taken({}, {}, {})
        if error_code:
            # A session that the leader has forgotten is no failure: it is opened anew at once.
            is_forgotten = error_code is ErrorCode.fetch_session_id_not_found
            self._begin_session(_NO_SESSION if is_forgotten else self._session_id)
            if error_code not in _SESSION_ERRORS:
                self._retry_at_ms = now_ms + self._backoff_ms
            return taken
        self._session_id = session_id
        if session_id == _NO_SESSION:
            self._session_epoch = _FULL
        else:
            self._session_epoch = self._session_epoch + 1 if self._session_epoch < _EPOCH_MAX else 1
        for key, answer in answers:
            follower, asked = self._followers.get(key), self._sent.get(key)
            if follower is None or asked is None:
                continue
            self._changed[key] = None
            try:
                doomed = follower.on_answer(asked, answer, now_ms, wall_ms=wall_ms)
            except DiskFull as problem:
                # The log is as it was.
                taken.full[key] = problem
                follower.back_off(now_ms)
                continue
            except DiskError as problem:
                taken.failed[key] = problem
                self.remove(key)
                continue
            if doomed:
                taken.doomed[key] = doomed
        return taken

    def on_failure(self, now_ms: int) -> None:
        """No answer came: the connection broke, or it took too long."""
        self.give_up()
        self._retry_at_ms = now_ms + self._backoff_ms

    def give_up(self) -> None:
        """The answer is not waited for: what there is now is asked for at once."""
        self._is_under_way = False
        self._begin_session(self._session_id)

    def _begin_session(self, session_id: int) -> None:
        """With the id of the old one, which the leader closes then."""
        self._session_id = session_id
        self._session_epoch = _FULL


_SESSION_ERRORS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)
