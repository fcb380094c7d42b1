"""Where replicas should be: plain data in, plain data out.

As little as possible moves. What must leave a node leaves; a replica goes where the partition has none in the rack
yet, and of those nodes to the one that holds fewest. Then full nodes give to empty ones until they differ by one, never
at the cost of racks, and last the first place, which is the preferred leader's, goes round.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Place = tuple[str, int]
Replicas = tuple[int, ...]


class CannotPlace(Exception):
    """What was asked cannot be; the message says why."""


@dataclass(frozen=True)
class Move:
    topic: str
    partition: int
    before: Replicas
    after: Replicas

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def arriving(self) -> Replicas:
        return tuple(node for node in self.after if node not in self.before)


def plan_moves(
    current: Mapping[Place, Replicas],
    racks: Mapping[int, str | None],
    *,
    chosen: Iterable[Place] | None = None,
    replica_count: int | None = None,
    balanced: bool = True,
) -> list[Move]:
    """`racks` are the nodes that may hold replicas, with theirs. Only `chosen` partitions change, by default all.
    Not `balanced`: nothing moves but what must. Raises CannotPlace."""
    movable = sorted(current if chosen is None else chosen)
    planner = _Planner(current, racks)
    for place in movable:
        planner.settle(place, replica_count or len(current[place]))
    if balanced:
        planner.balance(movable)
    changed = [place for place in movable if planner.replicas[place] != list(current[place])]
    planner.spread_leaders(movable if balanced else changed)
    return [
        Move(*place, current[place], tuple(planner.replicas[place]))
        for place in movable
        if tuple(planner.replicas[place]) != current[place]
    ]


class _Planner:
    def __init__(self, current: Mapping[Place, Replicas], racks: Mapping[int, str | None]) -> None:
        # A node without a rack is a rack of its own.
        self.rack_of: dict[int, str | int] = {node: node if rack is None else rack for node, rack in racks.items()}
        self.replicas = {place: list(replicas) for place, replicas in current.items()}
        self.load = Counter(node for replicas in current.values() for node in replicas)
        self.held: dict[int, set[Place]] = {node: set() for node in self.rack_of}
        for place, replicas in current.items():
            for node in replicas:
                self.held.setdefault(node, set()).add(place)

    def settle(self, place: Place, replica_count: int) -> None:
        """Off the nodes that may not hold it, to as many replicas as it shall have, on as many racks as there are."""
        if replica_count > len(self.rack_of):
            topic, index = place
            raise CannotPlace(
                f"{topic}-{index} shall have {replica_count} replicas, and there are {len(self.rack_of)} nodes for them"
            )
        replicas = self.replicas[place]
        for node in [node for node in replicas if node not in self.rack_of]:
            self._take(place, node)
        while len(replicas) > replica_count:
            self._take(place, self._most_dispensable(place))
        while len(replicas) < replica_count:
            self._give(place, self._best_for(place))
        while True:
            crowded = self._most_dispensable(place)
            better = self._best_for(place, leaving=crowded)
            if better is None or self._rack_use(place, better, crowded) >= self._rack_use(place, crowded, crowded):
                return
            self._replace(place, crowded, better)

    def _rack_use(self, place: Place, node: int, leaving: int | None = None) -> int:
        """How many other replicas of the partition are in the node's rack."""
        return sum(
            self.rack_of[other] == self.rack_of[node] for other in self.replicas[place] if other not in (leaving, node)
        )

    def _best_for(self, place: Place, leaving: int | None = None) -> int | None:
        candidates = [node for node in self.rack_of if node not in self.replicas[place]]
        return min(
            candidates, key=lambda node: (self._rack_use(place, node, leaving), self.load[node], node), default=None
        )

    def _most_dispensable(self, place: Place) -> int:
        return max(self.replicas[place], key=lambda node: (self._rack_use(place, node), self.load[node], node))

    def _take(self, place: Place, node: int) -> None:
        self.replicas[place].remove(node)
        self.load[node] -= 1
        self.held[node].discard(place)

    def _give(self, place: Place, node: int | None) -> None:
        assert node is not None
        self.replicas[place].append(node)
        self.load[node] += 1
        self.held[node].add(place)

    def _replace(self, place: Place, old: int, new: int) -> None:
        slot = self.replicas[place].index(old)
        self._take(place, old)
        self._give(place, new)
        self.replicas[place].insert(slot, self.replicas[place].pop())

    def balance(self, movable: Iterable[Place]) -> None:
        allowed = set(movable)
        mean = sum(self.load[node] for node in self.rack_of) / len(self.rack_of)
        # First from those above the mean to those below: nothing then moves twice. What racks forbid that way may
        # still go by others.
        while self._balance_some(allowed, mean) or self._balance_some(allowed, None):
            pass

    def _balance_some(self, allowed: set[Place], mean: float | None) -> bool:
        """Moves replicas from one fuller node to one emptier; False when there are none to move."""
        by_load = sorted(self.rack_of, key=lambda node: (self.load[node], node))
        return any(self._even_out(giver, taker, allowed, mean) for giver in reversed(by_load) for taker in by_load)

    def _even_out(self, giver: int, taker: int, allowed: set[Place], mean: float | None) -> bool:
        has_moved = False
        candidates = (
            sorted((self.held[giver] & allowed) - self.held[taker]) if self._may_give(giver, taker, mean) else ()
        )
        for place in candidates:
            if self._rack_use(place, taker, giver) <= self._rack_use(place, giver, giver):
                self._replace(place, giver, taker)
                has_moved = True
                if not self._may_give(giver, taker, mean):
                    break
        return has_moved

    def _may_give(self, giver: int, taker: int, mean: float | None) -> bool:
        if self.load[giver] - self.load[taker] < 2:
            return False
        return mean is None or self.load[taker] < mean < self.load[giver]

    def spread_leaders(self, movable: Iterable[Place]) -> None:
        """Puts another replica first where its node leads less. That moves no data."""
        leads = Counter(replicas[0] for replicas in self.replicas.values() if replicas)
        is_better = True
        while is_better:
            is_better = False
            for place in movable:
                replicas = self.replicas[place]
                first = min(replicas, key=lambda node: (leads[node], replicas.index(node)))
                if leads[replicas[0]] - leads[first] >= 2:
                    leads[replicas[0]] -= 1
                    leads[first] += 1
                    replicas.remove(first)
                    replicas.insert(0, first)
                    is_better = True
