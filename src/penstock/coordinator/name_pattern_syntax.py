"""The syntax of RE2, read into a tree: what KIP-848 lets consumers subscribe by.

Topic names are made of 65 characters, so a set of characters is a number with a bit for each of them; whatever lies
outside of topic names matches nothing and needs no bit. Groups capture nothing, and greedy or not is all the same:
only whether a whole name matches is asked. What RE2 does not have (backreferences, looking around) is refused, and so
is what would grow beyond bounds.
"""

import string
from collections.abc import Callable
from typing import NamedTuple

TOPIC_CHARACTERS = string.ascii_letters + string.digits + "._-"
WORD_CHARACTERS = frozenset(string.ascii_letters + string.digits + "_")
ANY = (1 << len(TOPIC_CHARACTERS)) - 1
REPEAT_MAX = 1000
NESTING_MAX = 60


class PatternError(ValueError):
    """The expression is not one; the message says why, in a few words."""


class Characters(NamedTuple):
    """One character out of a set."""

    bits: int


class Sequence(NamedTuple):
    parts: tuple["Node", ...]


class Choice(NamedTuple):
    options: tuple["Node", ...]


class Repeat(NamedTuple):
    part: "Node"
    count_min: int
    count_max: int | None


class Assertion(NamedTuple):
    """`start` or `end` of the name, a `boundary` of a word, or `inside`: no boundary."""

    kind: str


Node = Characters | Sequence | Choice | Repeat | Assertion

_BIT = {character: 1 << place for place, character in enumerate(TOPIC_CHARACTERS)}


def bits_of(predicate: Callable[[str], bool]) -> int:
    return sum(bit for character, bit in _BIT.items() if predicate(character))


def bit_of(character: str) -> int:
    return _BIT.get(character, 0)


_DIGIT = bits_of(str.isdigit)
_WORD = bits_of(WORD_CHARACTERS.__contains__)
_UPPER = bits_of(str.isupper)
_LOWER = bits_of(str.islower)
_PUNCTUATION = bits_of(lambda character: not character.isalnum())
_PERL = {"d": _DIGIT, "D": ANY & ~_DIGIT, "w": _WORD, "W": ANY & ~_WORD, "s": 0, "S": ANY}
_POSIX = {
    "alnum": _UPPER | _LOWER | _DIGIT,
    "alpha": _UPPER | _LOWER,
    "ascii": ANY,
    "blank": 0,
    "cntrl": 0,
    "digit": _DIGIT,
    "graph": ANY,
    "lower": _LOWER,
    "print": ANY,
    "punct": _PUNCTUATION,
    "space": 0,
    "upper": _UPPER,
    "word": _WORD,
    "xdigit": bits_of(string.hexdigits.__contains__),
}
_UNICODE = {
    "L": _UPPER | _LOWER,
    "Lu": _UPPER,
    "Ll": _LOWER,
    "N": _DIGIT,
    "Nd": _DIGIT,
    "P": _PUNCTUATION,
    "Pc": bit_of("_"),
    "Pd": bit_of("-"),
    "Po": bit_of("."),
    "Any": ANY,
    "Latin": _UPPER | _LOWER,
    "Common": _DIGIT | _PUNCTUATION,
}
_OCTAL = tuple(string.octdigits)
_CONTROL = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_ASSERTIONS = {"A": "start", "z": "end", "b": "boundary", "B": "inside"}


def parse(expression: str) -> Node:
    """Raises PatternError."""
    parser = _Parser(expression)
    node = parser.choice(0)
    if not parser.at_end():
        raise PatternError("unexpected )")
    return node


class _Parser:
    __slots__ = ("ignores_case", "position", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.ignores_case = False

    def at_end(self) -> bool:
        return self.position >= len(self.text)

    def _take(self, what: str) -> bool:
        if self.text.startswith(what, self.position):
            self.position += len(what)
            return True
        return False

    def _next(self) -> str:
        if self.at_end():
            raise PatternError("it ends too early")
        character = self.text[self.position]
        self.position += 1
        return character

    def _until(self, end: str, missing: str) -> str:
        found = self.text.find(end, self.position)
        if found < 0:
            raise PatternError(missing)
        taken = self.text[self.position : found]
        self.position = found + len(end)
        return taken

    def choice(self, depth: int) -> Node:
        if depth > NESTING_MAX:
            raise PatternError("expression nests too deeply")
        ignores_case = self.ignores_case
        options = [self._sequence(depth)]
        while self._take("|"):
            options.append(self._sequence(depth))
        # Flags set inside a group end with it.
        self.ignores_case = ignores_case
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while not self.at_end() and self.text[self.position] not in "|)":
            if self._take("\\Q"):
                quoted = self.text[self.position :].partition("\\E")[0]
                self.position += len(quoted)
                self._take("\\E")
                parts.extend(self._literal(character) for character in quoted)
                if parts:
                    parts.append(self._repeated(parts.pop()))
                continue
            part = self._atom(depth)
            if part is not None:
                parts.append(self._repeated(part))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _literal(self, character: str) -> Characters:
        bits = bit_of(character)
        if self.ignores_case:
            bits |= bit_of(character.lower()) | bit_of(character.upper())
        return Characters(bits)

    def _atom(self, depth: int) -> Node | None:
        character = self._next()
        match character:
            case "(":
                return self._group(depth)
            case "[":
                return Characters(self._set())
            case ".":
                return Characters(ANY)
            case "^":
                return Assertion("start")
            case "$":
                return Assertion("end")
            case "*" | "+" | "?" | "{" if self._is_repetition():
                raise PatternError(f"missing argument to repetition operator: {character}")
            case "\\":
                return self._escape()
        return self._literal(character)

    def _repeated(self, part: Node) -> Node:
        repeated = False
        while bounds := self._repetition():
            if repeated:
                raise PatternError("invalid nested repetition operator")
            self._take("?")
            part, repeated = Repeat(part, *bounds), True
        return part

    def _is_repetition(self) -> bool:
        """Whether the character taken last begins one."""
        self.position -= 1
        start = self.position
        found = self._repetition() is not None
        self.position = start + 1
        return found

    def _repetition(self) -> tuple[int, int | None] | None:
        for operator, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(operator):
                return bounds
        if not self.text.startswith("{", self.position):
            return None
        end = self.text.find("}", self.position)
        low, comma, high = self.text[self.position + 1 : end].partition(",")
        if end < 0 or not _is_number(low) or (high and not _is_number(high)):
            # Not a repetition: RE2 takes the brace as it stands.
            return None
        self.position = end + 1
        count_min = int(low)
        count_max = (int(high) if high else None) if comma else count_min
        if count_min > REPEAT_MAX or (count_max is not None and not count_min <= count_max <= REPEAT_MAX):
            raise PatternError("invalid repetition count")
        return count_min, count_max

    def _group(self, depth: int) -> Node | None:
        # Flags that a group begins with, or sets within, end with it.
        ignores_case = self.ignores_case
        if self._take("?"):
            if self._take("P<") or (
                self.text.startswith("<", self.position)
                and not self.text.startswith(("<=", "<!"), self.position)
                and self._take("<")
            ):
                name = self._until(">", "missing > after group name")
                if not name or not WORD_CHARACTERS.issuperset(name):
                    raise PatternError("invalid group name")
            elif not self._flags():
                return None
        node = self.choice(depth + 1)
        self.ignores_case = ignores_case
        if not self._take(")"):
            raise PatternError("missing )")
        return node

    def _flags(self) -> bool:
        """Takes `i`, `-s:` and the like; whether a group follows. Only `i` makes a difference to topic names."""
        is_on = True
        while True:
            match self._next():
                case ":":
                    return True
                case ")":
                    return False
                case "-" if is_on:
                    is_on = False
                case "i":
                    self.ignores_case = is_on
                case "m" | "s" | "U":
                    pass
                case _:
                    raise PatternError("invalid or unsupported Perl syntax")

    def _escape(self) -> Node:
        if self.at_end():
            raise PatternError("trailing backslash at end of expression")
        character = self.text[self.position]
        if character in _ASSERTIONS:
            self.position += 1
            return Assertion(_ASSERTIONS[character])
        bits = self._class_escape()
        return self._literal(self._character_escape()) if bits is None else Characters(bits)

    def _class_escape(self) -> int | None:
        """The set that an escape stands for; None when it stands for one character."""
        character = self._next()
        if character in _PERL:
            return _PERL[character]
        if character not in "pP":
            self.position -= 1
            return None
        name = self._until("}", "invalid character class range") if self._take("{") else self._next()
        is_negated = (character == "P") != name.startswith("^")
        # Of the scripts and categories that Unicode has, those not listed have no characters in topic names.
        name = name.removeprefix("^")
        if not name.isidentifier():
            raise PatternError("invalid character class range")
        bits = _UNICODE.get(name, 0)
        return ANY & ~bits if is_negated else bits

    def _character_escape(self) -> str:
        character = self._next()
        if character in _CONTROL:
            return chr(_CONTROL[character])
        if character == "x":
            digits = self._until("}", "invalid escape sequence") if self._take("{") else self._next() + self._next()
            if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits):
                raise PatternError("invalid escape sequence")
            return chr(min(int(digits, 16), 0x10FFFF))
        if character == "0" or (character in "1234567" and self.text[self.position : self.position + 1] in _OCTAL):
            # One digit alone, other than 0, would be a backreference.
            digits = character
            while len(digits) < 3 and not self.at_end() and self.text[self.position] in string.octdigits:
                digits += self._next()
            return chr(int(digits, 8))
        if character.isascii() and character.isalnum():
            raise PatternError(f"invalid escape sequence: \\{character}")
        return character

    def _set(self) -> int:
        is_negated = self._take("^")
        bits = 0
        first = True
        while first or not self._take("]"):
            first = False
            if self._take("[:"):
                name = self._until(":]", "invalid character class range")
                if name.removeprefix("^") not in _POSIX:
                    raise PatternError("invalid character class range")
                posix = _POSIX[name.removeprefix("^")]
                bits |= ANY & ~posix if name.startswith("^") else posix
                continue
            bits |= self._set_item()
        return ANY & ~bits if is_negated else bits

    def _set_item(self) -> int:
        low = self._next_in_set()
        if isinstance(low, int):
            return low
        high = low
        if self.text.startswith("-", self.position) and not self.text.startswith("-]", self.position):
            self.position += 1
            item = self._next_in_set()
            if isinstance(item, int) or item < low:
                raise PatternError("invalid character class range")
            high = item
        bits = bits_of(lambda character: low <= character <= high)
        if self.ignores_case:
            bits |= bits_of(lambda character: low <= character.lower() <= high or low <= character.upper() <= high)
        return bits

    def _next_in_set(self) -> str | int:
        """A character, or the set that an escape stands for."""
        if self.at_end():
            raise PatternError("missing closing ]")
        character = self._next()
        if character != "\\":
            return character
        bits = self._class_escape()
        return self._character_escape() if bits is None else bits


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
