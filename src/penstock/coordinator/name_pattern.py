"""Regular expressions over topic names and transactional ids, in time linear in these (KIP-848 uses RE2 for that).

A client chooses the expression, so one that Python's `re` would take minutes for must not hold up the broker. The
expression becomes a machine with many states at once; the sets of states that occur become single states of a second
machine, made as names come along and kept for the next ones.
"""

from collections.abc import Generator, Iterable

from penstock.coordinator.name_pattern_syntax import (
    TOPIC_CHARACTERS,
    WORD_CHARACTERS,
    Assertion,
    Characters,
    Choice,
    Node,
    PatternError,
    Repeat,
    Sequence,
    bit_of,
    parse,
)

EXPRESSION_LENGTH_MAX = 8_000
INSTRUCTIONS_MAX = 10_000
CACHED_STATES_MAX = 2_000
STEPS_PER_SLICE = 20_000
"""Characters looked at, or states of the first machine, between two yields: a few milliseconds."""

_BITS = {character: bit_of(character) for character in TOPIC_CHARACTERS}
_START, _WORD, _OTHER, _END = range(4)


class _State:
    """A set of states of the first machine, and what stood before them."""

    __slots__ = ("accepts", "before", "edges", "places")

    def __init__(self, places: frozenset[int], before: int) -> None:
        self.places = places
        self.before = before
        self.edges: dict[str, _State | None] = {}
        self.accepts: bool | None = None


class NamePattern:
    def __init__(self, expression: str) -> None:
        """Raises PatternError."""
        self._steps = 0
        # Instructions: a set of characters or an assertion, and the places where to go on. No places: the match.
        self._tests: list[int | str | None] = [None]
        self._targets: list[tuple[int, ...]] = [()]
        if len(expression) > EXPRESSION_LENGTH_MAX:
            raise PatternError("expression is too large")
        node = parse(expression)
        if _size(node) > INSTRUCTIONS_MAX:
            raise PatternError("expression is too large")
        start = self._compile(node, 0)
        self._start = _State(frozenset((start,)), _START)
        self._states: dict[tuple[frozenset[int], int], _State] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        state = self._start
        self._steps += len(name) + 1
        for character in name:
            try:
                following = state.edges[character]
            except KeyError:
                following = self._follow(state, character)
            if following is None:
                return False
            state = following
        if state.accepts is None:
            state.accepts = 0 in self._closure(state, _END)
        return state.accepts

    def matching(self, names: Iterable[str]) -> Generator[None, None, frozenset[str]]:
        """The names that match; it yields after every slice of work."""
        found = []
        self._steps = 0
        for name in names:
            if self.matches(name):
                found.append(name)
            if self._steps >= STEPS_PER_SLICE:
                self._steps = 0
                yield
        return frozenset(found)

    def _follow(self, state: _State, character: str) -> _State | None:
        bit = _BITS.get(character, 0)
        kind = _WORD if character in WORD_CHARACTERS else _OTHER
        places = frozenset(
            target
            for place in self._closure(state, kind)
            if isinstance(test := self._tests[place], int) and test & bit
            for target in self._targets[place]
        )
        following = self._state(places, kind) if places else None
        state.edges[character] = following
        return following

    def _state(self, places: frozenset[int], before: int) -> _State:
        known = self._states.get((places, before))
        if known is None:
            if len(self._states) >= CACHED_STATES_MAX:
                # An expression may have more of these than there is memory for; starting anew costs time only.
                self._states.clear()
                self._start.edges.clear()
            known = self._states[places, before] = _State(places, before)
        return known

    def _closure(self, state: _State, after: int) -> set[int]:
        """Every place that can be reached without taking a character, given what stands after it."""
        reached = set(state.places)
        waiting = list(reached)
        while waiting:
            place = waiting.pop()
            test = self._tests[place]
            if isinstance(test, int) or (test is not None and not _holds(test, state.before, after)):
                continue
            for target in self._targets[place]:
                if target not in reached:
                    reached.add(target)
                    waiting.append(target)
        self._steps += len(reached)
        return reached

    def _add(self, test: int | str | None, *targets: int) -> int:
        self._tests.append(test)
        self._targets.append(targets)
        return len(self._tests) - 1

    def _compile(self, node: Node, then: int) -> int:
        """Lays the node out in front of the place `then`; returns where it starts."""
        match node:
            case Characters(bits):
                return self._add(bits, then)
            case Assertion(kind):
                return self._add(kind, then)
            case Sequence(parts):
                for part in reversed(parts):
                    then = self._compile(part, then)
                return then
            case Choice(options):
                return self._add(None, *(self._compile(option, then) for option in options))
            case Repeat(part, count_min, count_max):
                return self._compile_repeat(part, count_min, count_max, then)

    def _compile_repeat(self, part: Node, count_min: int, count_max: int | None, then: int) -> int:
        if count_max is None:
            loop = self._add(None)
            self._targets[loop] = (self._compile(part, loop), then)
            then = loop
        else:
            end = then
            for _ in range(count_max - count_min):
                then = self._add(None, self._compile(part, then), end)
        for _ in range(count_min):
            then = self._compile(part, then)
        return then


def _holds(assertion: str, before: int, after: int) -> bool:
    match assertion:
        case "start":
            return before == _START
        case "end":
            return after == _END
        case "boundary":
            return (before == _WORD) != (after == _WORD)
    return (before == _WORD) == (after == _WORD)


def _size(node: Node) -> int:
    """How many instructions the node takes, without laying them out."""
    match node:
        case Sequence(parts):
            return sum(map(_size, parts))
        case Choice(options):
            return 1 + sum(map(_size, options))
        case Repeat(part, count_min, count_max):
            return (_size(part) + 1) * max(count_min + 1 if count_max is None else count_max, 1)
    return 1
