"""Fetch sessions (KIP-227): the broker remembers what a client fetches, and both sides send only what changed.

    request epoch   session id   meaning
    -1              0            a full fetch without a session
    -1              n            end session n, then as above
    0               0 or n       (end session n,) a full fetch that starts a new session if there is room
    > 0             n            an incremental fetch in session n; the epoch must be the expected one

Pure: ids come from the Random port, times are passed in.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.base.errors import ErrorCode
from penstock.base.ports import Random
from penstock.protocol.fetch import FetchPartition, FetchRequest, PartitionAnswer

if TYPE_CHECKING:
    from penstock.broker.fetch.following import FollowerNews

_FINAL_EPOCH = -1
_INITIAL_EPOCH = 0
_EPOCH_MAX = 2**31 - 1

PartitionKey = tuple[bytes, int]


class SessionPartition:
    """What the client last asked of a partition, and what it was last told."""

    __slots__ = ("error_code", "high_watermark", "log_start_offset", "request", "topic")

    def __init__(self, topic: bytes, request: FetchPartition) -> None:
        self.topic = topic
        self.request = request
        self.high_watermark = -1
        self.log_start_offset = -1
        self.error_code = 0

    def is_news(self, answer: PartitionAnswer) -> bool:
        """Whether an incremental answer must mention this partition; remembers what it says."""
        news = (
            answer.records is not None
            or answer.error_code != 0
            or self.error_code != 0
            or answer.diverging_epoch is not None
            or answer.preferred_read_replica >= 0
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        self.high_watermark = answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        self.error_code = answer.error_code
        return news


class FetchSession:
    __slots__ = ("epoch", "id", "last_used_ms", "news", "partitions", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, SessionPartition] = {}
        # Where the client is a follower.
        self.news: FollowerNews | None = None

    def update(self, request: FetchRequest) -> None:
        for topic, partitions in request.topics:
            for partition in partitions:
                key = (topic, partition.partition)
                known = self.partitions.get(key)
                if known is None:
                    self.partitions[key] = SessionPartition(topic, partition)
                else:
                    known.request = partition
        for topic, indexes in request.forgotten:
            for index in indexes:
                self.partitions.pop((topic, index), None)

    def move_behind_others(self, keys: Iterable[PartitionKey]) -> None:
        """Those that filled the answer go last in the next one, so that every partition gets its turn."""
        for key in keys:
            partition = self.partitions.pop(key, None)
            if partition is not None:
                self.partitions[key] = partition


class FetchContext:
    """One request's view: the partitions to read, and how the answer is to be framed."""

    __slots__ = ("error", "is_incremental", "partitions", "session")

    def __init__(
        self,
        partitions: list[SessionPartition],
        session: FetchSession | None = None,
        *,
        is_incremental: bool = False,
        error: ErrorCode = ErrorCode.none,
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.is_incremental = is_incremental
        self.error = error

    @property
    def session_id(self) -> int:
        return 0 if self.session is None else self.session.id


class SessionCache:
    def __init__(self, random: Random, *, sessions_max: int, eviction_ms: int) -> None:
        self._random = random
        self._sessions_max = sessions_max
        self._eviction_ms = eviction_ms
        # In order of last use, because a session that is used moves to the end.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        if request.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            self._end(request.session_id)
            session = None
            if request.session_epoch == _INITIAL_EPOCH:
                session = self._new_session(uses_topic_ids, now_ms)
            if session is None:
                once = {
                    (topic, partition.partition): SessionPartition(topic, partition)
                    for topic, partitions in request.topics
                    for partition in partitions
                }
                return FetchContext(list(once.values()))
            session.update(request)
            return FetchContext(list(session.partitions.values()), session)
        return self._open_incremental(request, uses_topic_ids, now_ms)

    def _open_incremental(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            return FetchContext([], error=ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext([], error=ErrorCode.fetch_session_topic_id_error)
        session.update(request)
        session.epoch = 1 if session.epoch == _EPOCH_MAX else session.epoch + 1
        session.last_used_ms = now_ms
        if not session.partitions:
            # Nothing is left to remember: the session ends with this answer.
            self._end(session.id)
            return FetchContext([])
        del self._sessions[session.id]
        self._sessions[session.id] = session
        return FetchContext(list(session.partitions.values()), session, is_incremental=True)

    def _new_session(self, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._sessions_max and not self._evict(now_ms):
            return None
        while True:
            # Random, so that one client cannot guess its way into another's session.
            session_id = int.from_bytes(self._random.random_bytes(4)) & 0x7FFFFFFF
            if session_id and session_id not in self._sessions:
                break
        session = FetchSession(session_id, uses_topic_ids, now_ms)
        self._sessions[session_id] = session
        return session

    def _evict(self, now_ms: int) -> bool:
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms < self._eviction_ms:
            return False
        self._end(oldest.id)
        return True

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.news is not None:
            session.news.stop()
