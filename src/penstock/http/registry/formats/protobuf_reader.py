"""Reads .proto files of both syntaxes.

Written by hand because a text of the largest size that is accepted must not take half a minute, and what is wrong
should be said with its line.
"""

import re
from collections.abc import Callable

from penstock.http.registry.formats.protobuf_model import (
    ENUM_NUMBER_MAX,
    NUMBER_MAX,
    Enum,
    EnumValue,
    Extend,
    Extensions,
    Field,
    Group,
    Message,
    MessageValue,
    OneOf,
    Option,
    OptionValue,
    ProtoFile,
    Range,
    Reserved,
    Rpc,
    Service,
    Word,
)
from penstock.http.registry.formats.schema import InvalidSchema

_DEPTH_MAX = 64
_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\r\n\f\v\ufeff]+|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)+)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?)
    |(?P<sign>[{}\[\]()<>=;,.:+\-/])""",
    re.VERBOSE,
)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LABELS = ("optional", "required", "repeated")

Token = tuple[str, str, int]


def read(text: str) -> ProtoFile:
    return _Reader(_tokens(text), text).file()


def _tokens(text: str) -> list[Token]:
    tokens = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(f"line {_line(text, position)}: {text[position]!r} is not expected in a .proto file")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append((kind, match.group(), position))
        position = match.end()
    # More than one, because the reader looks ahead.
    return tokens + [("end", "the end", position)] * 3


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _unescaped(quoted: str) -> str:
    def character(match: "re.Match[str]") -> str:
        hexadecimal, octal, short, long, single = match.groups()
        if octal:
            return chr(int(octal, 8) & 0xFF)
        if single is not None:
            return _ESCAPES.get(single, single)
        code = int(hexadecimal or short or long, 16)
        return chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"

    return _ESCAPE.sub(character, quoted[1:-1])


class _Reader:
    def __init__(self, tokens: list[Token], text: str) -> None:
        self._tokens = tokens
        self._text = text
        self._at = 0
        self._depth = 0

    def file(self) -> ProtoFile:
        file = ProtoFile()
        if self._is("syntax"):
            self._take("syntax")
            self._take("=")
            file.syntax = self._string()
            if file.syntax not in ("proto2", "proto3"):
                raise self._wrong(f"syntax '{file.syntax}' is neither proto2 nor proto3")
            self._take(";")
        while self._tokens[self._at][0] != "end":
            self._file_element(file)
        return file

    def _file_element(self, file: ProtoFile) -> None:
        word = self._tokens[self._at][1]
        if word == ";":
            self._at += 1
        elif word == "package":
            self._at += 1
            file.package = self._type_name()
            self._take(";")
        elif word == "import":
            self._at += 1
            imports = file.imports
            if self._is("public", "weak"):
                imports = file.public_imports if self._word() == "public" else file.imports
            imports.append(self._string())
            self._take(";")
        elif word == "option":
            file.options.append(self._option_statement())
        elif word in ("message", "enum"):
            file.types.append(self._message() if word == "message" else self._enum())
        elif word == "extend":
            file.extends.append(self._extend())
        elif word == "service":
            file.services.append(self._service())
        else:
            raise self._wrong(f"{word!r} is not expected here")

    def _message(self) -> Message:
        self._take("message")
        message = Message(self._word())
        self._message_body(message)
        return message

    def _message_body(self, message: Message) -> None:
        self._block(lambda: self._message_element(message))

    def _message_element(self, message: Message) -> None:
        word = self._tokens[self._at][1]
        # Every keyword may also be the name of a type: what follows tells.
        follows = self._tokens[self._at + 1]
        if word == ";":
            self._at += 1
        elif word in ("message", "enum") and follows[0] == "word" and self._tokens[self._at + 2][1] == "{":
            message.types.append(self._message() if word == "message" else self._enum())
        elif word == "oneof" and follows[0] == "word" and self._tokens[self._at + 2][1] == "{":
            message.oneofs.append(self._oneof())
        elif word == "extend" and follows[1] != "=" and self._tokens[self._at + 2][1] != "=":
            message.extends.append(self._extend())
        elif word == "option" and (follows[1] == "(" or self._tokens[self._at + 2][1] in ("=", ".")):
            message.options.append(self._option_statement())
        elif word == "reserved" and follows[0] in ("text", "number"):
            message.reserved.append(self._reserved(NUMBER_MAX))
        elif word == "extensions" and follows[0] == "number":
            message.extensions.append(self._extensions())
        else:
            self._field_or_group(message.fields, message.groups)

    def _field_or_group(self, fields: list[Field], groups: list[Group]) -> None:
        label = None
        if self._is(*_LABELS) and self._tokens[self._at + 1][1] != "=":
            label = self._word()
        if self._is("group") and self._tokens[self._at + 2][1] == "=":
            groups.append(self._group(label))
            return
        fields.append(self._field(label))

    def _field(self, label: str | None) -> Field:
        if self._is("map") and self._tokens[self._at + 1][1] == "<":
            self._at += 2
            key = self._type_name()
            self._take(",")
            value = self._type_name()
            self._take(">")
            type_name = f"map<{key}, {value}>"
            if label is not None:
                raise self._wrong("a map has no label")
        else:
            type_name = self._type_name()
        name = self._word()
        self._take("=")
        number = self._whole_number()
        if not 1 <= number <= NUMBER_MAX:
            raise self._wrong(f"the number of the field '{name}' is not between 1 and {NUMBER_MAX}")
        options = self._compact_options()
        self._take(";")
        return Field(name, number, type_name, label, options)

    def _group(self, label: str | None) -> Group:
        self._take("group")
        name = self._word()
        self._take("=")
        number = self._whole_number()
        self._compact_options()
        body = Message(name)
        self._message_body(body)
        return Group(name, number, label, body)

    def _oneof(self) -> OneOf:
        self._take("oneof")
        oneof = OneOf(self._word())

        def element() -> None:
            if self._is(";"):
                self._at += 1
            elif self._is("option") and self._tokens[self._at + 1][0] in ("word", "sign"):
                oneof.options.append(self._option_statement())
            else:
                self._field_or_group(oneof.fields, oneof.groups)

        self._block(element)
        return oneof

    def _extend(self) -> Extend:
        self._take("extend")
        extend = Extend(self._type_name())
        groups: list[Group] = []

        def element() -> None:
            if self._is(";"):
                self._at += 1
            else:
                self._field_or_group(extend.fields, groups)

        self._block(element)
        if groups:
            raise self._wrong("a group in an extend is not supported")
        return extend

    def _enum(self) -> Enum:
        self._take("enum")
        enum = Enum(self._word())

        def element() -> None:
            word, follows = self._tokens[self._at][1], self._tokens[self._at + 1]
            if word == ";":
                self._at += 1
            elif word == "option" and follows[1] != "=":
                enum.options.append(self._option_statement())
            elif word == "reserved" and follows[1] != "=":
                enum.reserved.append(self._reserved(ENUM_NUMBER_MAX))
            else:
                name = self._word()
                self._take("=")
                value = EnumValue(name, self._whole_number(), self._compact_options())
                self._take(";")
                enum.values.append(value)

        self._block(element)
        return enum

    def _service(self) -> Service:
        self._take("service")
        service = Service(self._word())

        def element() -> None:
            if self._is(";"):
                self._at += 1
            elif self._is("option"):
                service.options.append(self._option_statement())
            else:
                service.rpcs.append(self._rpc())

        self._block(element)
        return service

    def _rpc(self) -> Rpc:
        self._take("rpc")
        name = self._word()
        request, is_request_stream = self._rpc_type()
        self._take("returns")
        response, is_response_stream = self._rpc_type()
        rpc = Rpc(name, request, response, is_request_stream, is_response_stream)
        if self._is(";"):
            self._at += 1
            return rpc

        def element() -> None:
            if self._is(";"):
                self._at += 1
            else:
                rpc.options.append(self._option_statement())

        self._block(element)
        return rpc

    def _rpc_type(self) -> tuple[str, bool]:
        self._take("(")
        is_stream = self._is("stream") and self._tokens[self._at + 1][1] != ")"
        if is_stream:
            self._at += 1
        name = self._type_name()
        self._take(")")
        return name, is_stream

    def _reserved(self, number_max: int) -> Reserved:
        self._take("reserved")
        reserved = Reserved([])
        while True:
            kind = self._tokens[self._at][0]
            reserved.values.append(self._string() if kind == "text" else self._range(number_max))
            if not self._is(","):
                break
            self._at += 1
        self._take(";")
        return reserved

    def _extensions(self) -> Extensions:
        self._take("extensions")
        ranges = [self._range(NUMBER_MAX)]
        while self._is(","):
            self._at += 1
            ranges.append(self._range(NUMBER_MAX))
        options = self._compact_options()
        self._take(";")
        return Extensions(ranges, options)

    def _range(self, number_max: int) -> Range:
        first = self._whole_number()
        if not self._is("to"):
            return first, first
        self._at += 1
        if self._is("max"):
            self._at += 1
            return first, number_max
        return first, self._whole_number()

    def _option_statement(self) -> Option:
        self._take("option")
        option = self._option()
        self._take(";")
        return option

    def _compact_options(self) -> list[Option]:
        options: list[Option] = []
        if self._is("["):
            self._at += 1
            while not self._is("]"):
                options.append(self._option())
                if not self._is("]"):
                    self._take(",")
            self._at += 1
        return options

    def _option(self) -> Option:
        parts = []
        while not self._is("="):
            kind, text, _ = self._tokens[self._at]
            if kind not in ("word", "sign") or (text not in "()." and kind == "sign"):
                raise self._wrong(f"{text!r} is not expected in the name of an option")
            parts.append(text)
            self._at += 1
        self._at += 1
        return Option("".join(parts), self._value())

    def _value(self) -> OptionValue:
        kind, text, _ = self._tokens[self._at]
        if kind == "text":
            return self._string()
        if text in ("{", "<"):
            return self._message_value("}" if text == "{" else ">")
        if text == "[":
            return self._list_value()
        sign = ""
        if text in ("-", "+"):
            self._at += 1
            sign = "-" if text == "-" else ""
            kind, text, _ = self._tokens[self._at]
        if kind not in ("word", "number"):
            raise self._wrong(f"{text!r} is not expected as the value of an option")
        self._at += 1
        while kind == "word" and self._is("."):
            self._at += 1
            text += "." + self._word()
        return Word(sign + text)

    def _list_value(self) -> OptionValue:
        self._enter()
        self._take("[")
        values: list[OptionValue] = []
        while not self._is("]"):
            values.append(self._value())
            if not self._is("]"):
                self._take(",")
        self._at += 1
        self._depth -= 1
        return values

    def _message_value(self, closing: str) -> OptionValue:
        self._enter()
        self._at += 1
        pairs: list[tuple[str, OptionValue]] = []
        while not self._is(closing):
            if self._is("["):
                parts = []
                while not self._is("]"):
                    parts.append(self._tokens[self._at][1])
                    self._next()
                self._at += 1
                name = "".join(parts) + "]"
            else:
                name = self._word()
            if self._is(":"):
                self._at += 1
            pairs.append((name, self._value()))
            if self._is(",", ";"):
                self._at += 1
        self._at += 1
        self._depth -= 1
        return MessageValue(pairs)

    def _block(self, element: Callable[[], None]) -> None:
        self._enter()
        self._take("{")
        while not self._is("}"):
            if self._tokens[self._at][0] == "end":
                raise self._wrong("a block is not closed")
            element()
        self._at += 1
        self._depth -= 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"it is nested deeper than {_DEPTH_MAX} levels")

    def _is(self, *texts: str) -> bool:
        kind, text, _ = self._tokens[self._at]
        return kind != "text" and text in texts

    def _next(self) -> None:
        if self._tokens[self._at][0] == "end":
            raise self._wrong("the text ends too early")
        self._at += 1

    def _take(self, text: str) -> None:
        if not self._is(text):
            raise self._wrong(f"{text!r} is expected, not {self._tokens[self._at][1][:40]!r}")
        self._at += 1

    def _word(self) -> str:
        kind, text, _ = self._tokens[self._at]
        if kind != "word":
            raise self._wrong(f"a name is expected, not {text[:40]!r}")
        self._at += 1
        return text

    def _type_name(self) -> str:
        parts = []
        if self._is("."):
            self._at += 1
            parts.append("")
        parts.append(self._word())
        while self._is("."):
            self._at += 1
            parts.append(self._word())
        return ".".join(parts)

    def _whole_number(self) -> int:
        is_negative = self._is("-")
        if is_negative:
            self._at += 1
        kind, text, _ = self._tokens[self._at]
        try:
            base = 16 if text[:2] in ("0x", "0X") else 8 if len(text) > 1 and text.startswith("0") else 10
            number = int(text, base) if kind == "number" else None
        except ValueError:
            number = None
        if number is None:
            raise self._wrong(f"a whole number is expected, not {text[:40]!r}")
        self._at += 1
        return -number if is_negative else number

    def _string(self) -> str:
        kind, text, _ = self._tokens[self._at]
        if kind != "text":
            raise self._wrong(f"a text in quotes is expected, not {text[:40]!r}")
        parts = []
        while self._tokens[self._at][0] == "text":
            parts.append(_unescaped(self._tokens[self._at][1]))
            self._at += 1
        return "".join(parts)

    def _wrong(self, problem: str) -> InvalidSchema:
        return InvalidSchema(f"line {_line(self._text, self._tokens[self._at][2])}: {problem}")
