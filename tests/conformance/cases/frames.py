"""Frames and headers: versions and API keys that do not exist, bytes that are no request."""

import struct
from typing import Any

from penstock.protocol.messages import Struct
from tests.conformance.cases.registry import case
from tests.conformance.cluster import APIS_BY_KEY, CLOSED, Cluster
from tests.conformance.wire import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    batch_of,
    decode_answer,
    list_offsets_of,
    produce_of,
    request_payload,
)


def header(api_key: int, version: int, client_id: bytes | None = b"test") -> bytes:
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", api_key, version, 7, length) + (client_id or b"")


@case
def versions_that_do_not_exist(cluster: Cluster) -> Any:
    answers = {}
    for api in APIS_BY_KEY.values():
        if api.key == API_VERSIONS:
            continue
        for version in (-1, api.version_min - 1, 999, 32767):
            answers[f"{api.name} {version}"] = cluster.ask_bytes(header(api.key, version) + bytes(40))
    return answers


@case
def api_keys_that_do_not_exist(cluster: Cluster) -> Any:
    return [cluster.ask_bytes(header(api_key, 0) + bytes(40)) for api_key in (-1, 4, 5, 6, 7, 1000, 32767, -32768)]


@case
def api_versions_of_an_unknown_version_is_answered_in_version_0(cluster: Cluster) -> Any:
    answers = []
    for version in (5, 99, 32767, -1):
        got = cluster.ask_bytes(header(API_VERSIONS, version) + b"\x00\x02a\x02b\x00")
        if got != CLOSED:
            answer = decode_answer(API_VERSIONS, 0, bytes.fromhex(got))
            own = [api for api in answer.api_keys if api.api_key == API_VERSIONS]
            got = (answer.error_code.name, [(api.api_key, api.min_version, api.max_version) for api in own])
        answers.append(got)
    return answers


@case
def headers_of_odd_kinds(cluster: Cluster) -> Any:
    body = bytes(request_payload(METADATA, 4, Struct(topics=[], allow_auto_topic_creation=False)))[14:]
    answers = {}
    for name, payload in {
        "no bytes": b"",
        "one byte": b"\x00",
        "no correlation id": struct.pack(">hh", METADATA, 4),
        "no client id": struct.pack(">hhi", METADATA, 4, 7),
        "a client id longer than the frame": struct.pack(">hhih", METADATA, 4, 7, 1000) + body,
        "a client id that is not text": header(METADATA, 4, b"\xff\xfe") + body,
        "a null client id": header(METADATA, 4, None) + body,
        "an empty client id": header(METADATA, 4, b"") + body,
        "a client id of length -2": struct.pack(">hhih", METADATA, 4, 7, -2) + body,
    }.items():
        got = cluster.ask_bytes(payload)
        answers[name] = got if got == CLOSED else "an answer"
    return answers


@case
def tagged_fields_of_odd_kinds(cluster: Cluster) -> Any:
    """Behind the header and behind the body of a flexible request."""
    software = b"\x02a\x02b"
    answers = {}
    for name, payload in {
        "an unknown tag in the header": header(API_VERSIONS, 3) + b"\x01\x63\x02xy" + software + b"\x00",
        "an unknown tag in the body": header(API_VERSIONS, 3) + b"\x00" + software + b"\x01\x63\x02xy",
        "the same tag twice": header(API_VERSIONS, 3) + b"\x00" + software + b"\x02\x63\x00\x63\x00",
        "tags out of order": header(API_VERSIONS, 3) + b"\x00" + software + b"\x02\x63\x00\x05\x00",
        "a tag longer than the frame": header(API_VERSIONS, 3) + b"\x00" + software + b"\x01\x63\x7f",
        "2^31-1 tags": header(API_VERSIONS, 3) + b"\x00" + software + b"\xff\xff\xff\xff\x07",
        "an overlong varint": header(API_VERSIONS, 3) + b"\x00" + b"\xff\xff\xff\xff\xff\xff",
        "a padded varint": header(API_VERSIONS, 3) + b"\x00" + b"\x82\x00a\x02b\x00",
    }.items():
        got = cluster.ask_bytes(payload)
        if got != CLOSED:
            got = decode_answer(API_VERSIONS, 3, bytes.fromhex(got)).error_code.name
        answers[name] = got
    return answers


@case
def bodies_of_odd_kinds(cluster: Cluster) -> Any:
    answers = {}
    for name, payload in {
        "trailing bytes": request_payload(LIST_OFFSETS, 7, list_offsets_of("odd", [(0, -1)])) + b"abc",
        "an array of 2^31-1 topics": header(METADATA, 4) + b"\x7f\xff\xff\xff",
        "an array of -2 topics": header(METADATA, 4) + b"\xff\xff\xff\xfe\x00",
        "an array of -2^31 topics": header(METADATA, 4) + b"\x80\x00\x00\x00\x00",
        "a string of length 32767": header(METADATA, 4) + b"\x00\x00\x00\x01\x7f\xffabc\x00",
        "a topic name that is null": header(METADATA, 4) + b"\x00\x00\x00\x01\xff\xff\x00",
        "a topic name that is not text": header(METADATA, 4) + b"\x00\x00\x00\x01\x00\x02\xff\xfe\x00",
        "a boolean of 7": header(METADATA, 4) + b"\x00\x00\x00\x00\x07",
        "nothing": header(METADATA, 4),
        "records of length 2^31-1": header(PRODUCE, 3)
        + b"\xff\xff\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x00\x7f\xff\xff\xff",
        "records of length -2": header(PRODUCE, 3)
        + b"\xff\xff\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x01a\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xfe",
        "a fetch of 2^31-1 topics": header(FETCH, 4) + bytes(12) + b"\x00" + bytes(4) + b"\x7f\xff\xff\xff",
    }.items():
        got = cluster.ask_bytes(payload)
        answers[name] = got if got == CLOSED else "an answer"
    return answers


@case
def compact_lengths_of_odd_kinds(cluster: Cluster) -> Any:
    huge = b"\xff\xff\xff\xff\x0f"
    answers = {}
    for name, payload in {
        "an array of 2^32-2 topics": header(METADATA, 9) + b"\x00\xff\xff\xff\xff\x0f",
        "an array of 2^31-1 topics": header(METADATA, 9) + b"\x00\x80\x80\x80\x80\x08",
        "an array of 2^28 topics": header(METADATA, 9) + b"\x00\x80\x80\x80\x80\x01",
        "a string of 2^32-2 bytes": header(METADATA, 9) + b"\x00\x02\xff\xff\xff\xff\x0f",
        "a string of 2^31-1 bytes": header(METADATA, 9) + b"\x00\x02\x80\x80\x80\x80\x08",
        "2^32-1 tagged fields": header(METADATA, 9) + b"\x00\x01\x00\x00\x00\xff\xff\xff\xff\x0f",
        "a tagged field of 2^32-1 bytes": header(METADATA, 9) + b"\x00\x01\x00\x00\x00\x01\x07\xff\xff\xff\xff\x0f",
        "an array of 2^32-2 topics in Produce": header(PRODUCE, 9) + bytes(3) + b"\x01" + bytes(4) + huge,
        "an array of 2^32-2 topics in Fetch": header(FETCH, 12) + bytes(26) + huge,
    }.items():  # fmt: skip
        got = cluster.ask_bytes(payload)
        answers[name] = got if got == CLOSED else "an answer"
    return answers


@case
def a_topic_name_that_is_not_text_in_hot_requests(cluster: Cluster) -> Any:
    payload = request_payload(PRODUCE, 8, produce_of("zzzz", [(0, batch_of([b"a"]))], acks=1))
    got = cluster.ask_bytes(payload.replace(b"zzzz", b"\xff\xfe\xfd\xfc"))
    return got if got == CLOSED else "an answer"


@case
def frames_of_impossible_sizes(cluster: Cluster) -> Any:
    answers = []
    for size in (-1, -(2**31), 2**31 - 1, 104_857_601):
        cluster.wire.send_bytes(struct.pack(">i", size))
        answers.append(cluster.wire.is_closed_by_peer())
        cluster.close()
    return answers
