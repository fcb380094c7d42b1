"""Our writer against kio's own, for every message and version that a Kafka 4 broker or client may send."""

import io
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer

from penstock.protocol.messages import Malformed, Struct, decode, encode, encode_response, request_entity
from tests.unit.protocol.kio_strategies import messages

# Headers are not messages: penstock.protocol.frames reads them.
ENTITIES = [
    path
    for name, versions in schema_name_map.items()
    for kinds in versions.values()
    for path in kinds.values()
    if not name.endswith("_header")
]


@pytest.mark.parametrize("path", ENTITIES)
def test_every_message_is_written_and_read_as_kio_does(path: str) -> None:
    entity: Any = resolve_name(path)

    @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(messages(entity))
    def same_bytes(message: Any) -> None:
        expected = io.BytesIO()
        entity_writer(entity)(expected, message)
        assert bytes(encode(entity, message)) == expected.getvalue()
        try:
            again, _ = entity_reader(entity)(expected.getvalue(), 0)
        except ValueError:
            # kio cannot read the longest of the times that it writes.
            return
        assert decode(entity, expected.getvalue()) == again

    same_bytes()


def test_a_struct_gives_each_version_the_fields_that_it_has() -> None:
    answer = Struct(topics=[Struct(name="t", partitions=[Struct(partition_index=3, offset=7, timestamp=1)])])
    old = encode_response(2, 1, 9, answer)
    new = encode_response(2, 10, 9, answer)
    partition = f"{3:08x}" + f"{0:04x}" + f"{1:016x}" + f"{7:016x}"
    assert old[4:].hex() == f"{9:08x}" + f"{1:08x}" + "000174" + f"{1:08x}" + partition
    # Version 10 is flexible, has a throttle time before and a leader epoch behind.
    assert new[4:].hex() == f"{9:08x}" + "00" + f"{0:08x}" + "02" + "0274" + "02" + partition + "ffffffff" + "000000"
    assert int.from_bytes(old[:4]) == len(old) - 4


@given(st.binary(max_size=60), st.sampled_from([(2, 10), (3, 12), (19, 7), (32, 4), (44, 1), (60, 1), (75, 0)]))
@settings(max_examples=300, deadline=None)
def test_any_bytes_decode_or_are_malformed(data: bytes, api: tuple[int, int]) -> None:
    try:
        message = decode(request_entity(*api), data)
    except Malformed:
        return
    assert decode(request_entity(*api), bytes(encode(request_entity(*api), message))) == message


def test_bytes_after_the_message_are_malformed() -> None:
    data = bytes(encode(request_entity(60, 0), Struct())) + b"\0"
    with pytest.raises(Malformed, match="left over"):
        decode(request_entity(60, 0), data)


@pytest.mark.parametrize("count", ["ffffffff0f", "ffffffff07", "ffffffffff07", "8080808001"])
def test_a_list_longer_than_the_bytes_is_refused_before_it_is_made(count: str) -> None:
    with pytest.raises(Malformed):
        decode(request_entity(3, 12), bytes.fromhex(count) + bytes(3))


def test_a_string_longer_than_the_bytes_is_malformed() -> None:
    with pytest.raises(Malformed, match="are left"):
        decode(request_entity(19, 7), bytes.fromhex("02ffffff7f") + b"abc")


def test_tagged_fields_that_we_do_not_know_are_skipped_in_any_order() -> None:
    whole = bytes(encode(request_entity(60, 1), Struct()))
    assert whole[-1] == 0
    decode(request_entity(60, 1), whole[:-1] + bytes.fromhex("02 05 01 aa 07 00"))
    decode(request_entity(60, 1), whole[:-1] + bytes.fromhex("02 05 01 aa 05 01 bb"))
    with pytest.raises(Malformed):
        decode(request_entity(60, 1), whole[:-1] + bytes.fromhex("01 05 7f aa"))


@pytest.mark.parametrize(("version", "null"), [(2, "ffffffff"), (7, "00")])
def test_a_list_that_may_not_be_null_is_malformed_when_it_is(version: int, null: str) -> None:
    with pytest.raises(Malformed, match="null"):
        decode(request_entity(19, version), bytes.fromhex(null) + bytes(6))
