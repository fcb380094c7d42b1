"""Finding the topics that a group's regular expressions match, slice by slice."""

from collections.abc import Generator, Iterable, Mapping

from penstock.base.errors import ErrorCode, Refused
from penstock.coordinator.group.requests import TopicsView
from penstock.coordinator.name_pattern import NamePattern
from penstock.coordinator.name_pattern_syntax import PatternError

SLICES_PER_CALL = 2
PATTERNS_KEPT = 100


class Patterns:
    """Compiled expressions: those used last. They get faster with use."""

    __slots__ = ("_patterns",)

    def __init__(self) -> None:
        self._patterns: dict[str, NamePattern] = {}

    def compiled(self, expression: str) -> NamePattern:
        """Raises Refused."""
        pattern = self._patterns.pop(expression, None)
        if pattern is None:
            try:
                pattern = NamePattern(expression)
            except PatternError as error:
                raise Refused(
                    ErrorCode.invalid_regular_expression,
                    f"SubscribedTopicRegex `{expression[:200]}` is not a valid regular expression: {error}.",
                ) from None
        self._patterns[expression] = pattern
        if len(self._patterns) > PATTERNS_KEPT:
            del self._patterns[next(iter(self._patterns))]
        return pattern


class RegexWork:
    __slots__ = ("_resolving", "matches", "topics_version")

    def __init__(self, expressions: Iterable[str], patterns: Patterns, topics: TopicsView) -> None:
        self.topics_version = topics.version
        self.matches: Mapping[str, frozenset[str]] | None = None
        compiled = {expression: patterns.compiled(expression) for expression in expressions}
        self._resolving = _resolve(compiled, list(topics.names()))

    def resolve(self, slices: int = SLICES_PER_CALL) -> bool:
        """Works on; whether the matches are there."""
        for _ in range(slices):
            try:
                next(self._resolving)
            except StopIteration as stop:
                matches: Mapping[str, frozenset[str]] = stop.value
                self.matches = matches
                return True
        return False


def _resolve(patterns: Mapping[str, NamePattern], names: list[str]) -> Generator[None, None, dict[str, frozenset[str]]]:
    matches = {}
    for expression, pattern in patterns.items():
        matches[expression] = yield from pattern.matching(names)
    return matches
