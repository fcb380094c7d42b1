"""Regular expressions over topic names, beside Python's `re`, which agrees with RE2 on what is generated here."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.name_pattern import CACHED_STATES_MAX, NamePattern
from penstock.coordinator.name_pattern_syntax import PatternError

atoms = st.sampled_from(
    ["a", "b", "A", r"\.", "-", "_", "1", ".", r"\d", r"\w", r"\W", "[ab]", "[^ab]", "[a-c1-3]", r"[\d_]", r"[^\w]"]
)
anchors = st.sampled_from(["^", "$", r"\b", r"\B", r"\A"])
expressions = st.recursive(
    atoms | anchors,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map("(?i:{})".format),
    ),
    max_leaves=8,
)
names = st.text("abcABC12._-", min_size=1, max_size=12)


@given(expressions, st.lists(names, max_size=8))
def test_it_matches_whole_names_as_a_backtracking_engine_does(expression: str, topic_names: list[str]) -> None:
    pattern, known = NamePattern(expression), re.compile(expression, re.ASCII)
    for name in topic_names:
        assert pattern.matches(name) == (known.fullmatch(name) is not None)


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        (r"\Qa.b\E-.*", "a.b-1"),
        (r"\Qab\E+", "abbb"),
        (r"\141\x62", "ab"),
        (r"[[:alpha:]]+[[:digit:]]", "topic1"),
        (r"[[:^alpha:]]+", "1-2"),
        (r"\pL+\pN", "topic1"),
        (r"\p{Lu}\P{Lu}+", "Topic"),
        ("(?P<name>a+)b", "aab"),
        ("(?<name>a+)b", "aab"),
        ("(?i)TOPIC", "topic"),
        ("(?i)[A-C]+(?-i)d", "abCd"),
        (r"\x61\x{62}", "ab"),
        ("a{2,}", "aaaa"),
        ("a{,2}|.*", "a"),
        ("^(?:orders|payments)-.*$", "orders-eu"),
        (r"a\z", "a"),
        ("(|a)+", "aaa"),
        ("", ""),
    ],
)
def test_it_knows_what_re2_knows_beyond_that(expression: str, name: str) -> None:
    assert NamePattern(expression).matches(name)


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "[a", "[]", "[z-a]", "[[:nope:]]", r"[\d-a]z]" "(", "*a", "+", "a**", "a{2}{3}", "a{1001}"),
        *(
            "a{3,2}",
            "\\",
            r"\1",
            r"\8",
            r"\k",
            r"\p{",
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            "(?P<>a)",
            "(?P<a",
            "(?z)",
        ),
        *(r"\xg1", r"\x{}", "(?>a)", "(" * 2000 + ")" * 2000, "((a{100}){100}){100}", "a" * 20_000),
    ],
)
def test_what_re2_refuses_or_what_is_too_large_is_refused(expression: str) -> None:
    with pytest.raises(PatternError):
        NamePattern(expression)


def test_an_expression_that_would_take_others_forever_takes_steps_in_proportion_to_the_names() -> None:
    pattern = NamePattern("(a|a)*(a*)*b|(.*a){20}")
    slices = sum(1 for _ in pattern.matching(["a" * 200 + "c"] * 1000))
    assert slices < 50


def test_a_machine_with_more_states_than_are_kept_still_answers_right() -> None:
    pattern, known = NamePattern("[ab]*a[ab]{14}"), re.compile("[ab]*a[ab]{14}")
    for number in range(CACHED_STATES_MAX * 2):
        name = format(number * 7919, "032b").replace("0", "a").replace("1", "b")
        assert pattern.matches(name) == (known.fullmatch(name) is not None)
