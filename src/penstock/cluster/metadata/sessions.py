"""Who of the brokers the active controller has heard of lately. Not in the log: a new controller starts with a fresh
session for every broker that is not fenced, and learns the rest from heartbeats.
"""

from collections.abc import Iterable, Mapping

from penstock.cluster.metadata.image import BrokerImage

_NOT_SHUTTING_DOWN = -1
_NO_OFFSET = -1
# So much of a session is left at least to a broker that must find a new controller first.
_NEW_CONTROLLER_MS_MIN = 500


class _Session:
    __slots__ = ("last_contact_ms", "metadata_offset", "shutdown_offset")

    def __init__(self, now_ms: int) -> None:
        self.last_contact_ms = now_ms
        # How far the broker says it has read the metadata log.
        self.metadata_offset = _NO_OFFSET
        # Whoever has read so far no longer takes the broker, which is shutting down, for the leader of anything.
        self.shutdown_offset = _NOT_SHUTTING_DOWN


class Sessions:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        # By broker id, of those that are not fenced; the one unheard of for longest is first.
        self._sessions: dict[int, _Session] = {}
        self._last_input_ms: int | None = None

    def start(self, brokers: Iterable[BrokerImage], now_ms: int, heard_ms: Mapping[int, int]) -> None:
        """This node has become the active controller. `heard_ms` says of whom it has heard before, and when: of the
        controller before it. If that one hangs, its session must not begin anew when its silence has been noticed."""
        earliest_ms = now_ms - self._timeout_ms + _NEW_CONTROLLER_MS_MIN
        sessions = [
            (broker.id, _Session(min(now_ms, max(earliest_ms, heard_ms.get(broker.id, now_ms)))))
            for broker in brokers
            if not broker.fenced
        ]
        self._sessions = dict(sorted(sessions, key=lambda one: one[1].last_contact_ms))
        self._last_input_ms = now_ms

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and now_ms - session.last_contact_ms < self._timeout_ms

    def touch(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        """A broker that serves was heard of."""
        self._last_input_ms = now_ms
        session = self._sessions.pop(broker_id, None)
        if session is None:
            session = _Session(now_ms)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset
        self._sessions[broker_id] = session

    def end(self, broker_id: int) -> None:
        self._sessions.pop(broker_id, None)

    def next_deadline_ms(self) -> int | None:
        for session in self._sessions.values():
            return session.last_contact_ms + self._timeout_ms
        return None

    def find_stale(self, now_ms: int) -> int | None:
        """One broker whose session has run out. If this controller itself was away for that long, it cannot tell, and
        everybody gets another session."""
        was_away = self._last_input_ms is not None and now_ms - self._last_input_ms > self._timeout_ms
        self._last_input_ms = now_ms
        if was_away:
            for session in self._sessions.values():
                session.last_contact_ms = now_ms
        for broker_id, session in self._sessions.items():
            return broker_id if now_ms - session.last_contact_ms >= self._timeout_ms else None
        return None

    # Controlled shutdown

    def is_shutting_down(self, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.shutdown_offset != _NOT_SHUTTING_DOWN

    def begin_shutdown(self, broker_id: int, shutdown_offset: int) -> None:
        session = self._sessions[broker_id]
        if session.shutdown_offset == _NOT_SHUTTING_DOWN:
            session.shutdown_offset = shutdown_offset

    def everybody_knows_of_shutdown(self, broker_id: int) -> bool:
        """Whether all others that serve have read the log up to where the broker's leaders were moved."""
        shutdown_offset = self._sessions[broker_id].shutdown_offset
        return all(
            other.metadata_offset >= shutdown_offset
            for other in self._sessions.values()
            if other.shutdown_offset == _NOT_SHUTTING_DOWN
        )
