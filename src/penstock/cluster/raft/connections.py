"""Which peers have a request of ours under way, and which are left in peace for a moment after a failure.

One request at a time goes to a peer. A response counts only while its request is the one that is waited for: after a
change of role everything under way is forgotten.
"""

from typing import NamedTuple


class _UnderWay(NamedTuple):
    correlation_id: int
    deadline_ms: int


class Connections:
    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self._request_timeout_ms = request_timeout_ms
        self._retry_backoff_ms = retry_backoff_ms
        self._correlation_id = 0
        self._under_way: dict[int, _UnderWay] = {}
        self._backoff_until_ms: dict[int, int] = {}

    def is_ready(self, node_id: int) -> bool:
        return node_id not in self._under_way and node_id not in self._backoff_until_ms

    @property
    def is_idle(self) -> bool:
        return not self._under_way

    def sent(self, node_id: int, now_ms: int) -> int:
        """The correlation id for a request that is sent now."""
        self._correlation_id += 1
        self._under_way[node_id] = _UnderWay(self._correlation_id, now_ms + self._request_timeout_ms)
        return self._correlation_id

    def finish(self, node_id: int, correlation_id: int) -> bool:
        """A response or a failure is here: whether it was still waited for."""
        under_way = self._under_way.get(node_id)
        if under_way is None or under_way.correlation_id != correlation_id:
            return False
        del self._under_way[node_id]
        return True

    def back_off(self, node_id: int, now_ms: int) -> None:
        self._backoff_until_ms[node_id] = now_ms + self._retry_backoff_ms

    def expire(self, now_ms: int) -> None:
        """Requests that were not answered in time may be sent anew."""
        if self._under_way:
            self._under_way = {node: one for node, one in self._under_way.items() if one.deadline_ms > now_ms}
        if self._backoff_until_ms:
            self._backoff_until_ms = {node: until for node, until in self._backoff_until_ms.items() if until > now_ms}

    def next_event_ms(self) -> int | None:
        events = [one.deadline_ms for one in self._under_way.values()]
        events += self._backoff_until_ms.values()
        return min(events, default=None)

    def reset(self) -> None:
        self._under_way.clear()
        self._backoff_until_ms.clear()
