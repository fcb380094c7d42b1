"""Our writer against kio's own, for every message and version that a Kafka 4 broker or client may send."""

import io
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.schema.index import schema_name_map
from kio.serial import entity_writer

from penstock.protocol.messages import Malformed, Struct, decode, encode, encode_response, request_entity
from tests.unit.protocol.kio_strategies import messages

ENTITIES = [path for versions in schema_name_map.values() for kinds in versions.values() for path in kinds.values()]


@pytest.mark.parametrize("path", ENTITIES)
def test_every_message_is_written_as_kio_writes_it(path: str) -> None:
    entity: Any = resolve_name(path)

    @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(messages(entity))
    def same_bytes(message: Any) -> None:
        expected = io.BytesIO()
        entity_writer(entity)(expected, message)
        assert bytes(encode(entity, message)) == expected.getvalue()

    same_bytes()


def test_a_struct_gives_each_version_the_fields_that_it_has() -> None:
    answer = Struct(topics=[Struct(name="t", partitions=[Struct(partition_index=3, offset=7, timestamp=1)])])
    old = encode_response(2, 1, 9, answer)
    new = encode_response(2, 10, 9, answer)
    assert old.hex() == "00000023000000090000000100017400000001000000030000" + f"{1:016x}" + f"{7:016x}"
    assert new[4:8] == old[4:8]
    assert f"{7:016x}" in new.hex()


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
