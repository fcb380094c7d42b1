import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.coordinator.group.subscription import subscribed_topics


def subscription(version: int, *topics: str, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    names = b"".join(len(topic.encode()).to_bytes(2) + topic.encode() for topic in topics)
    return version.to_bytes(2) + len(topics).to_bytes(4) + names + rest


@given(st.integers(0, 4), st.sets(st.text(max_size=20)), st.binary())
def test_the_topics_are_read_whatever_a_later_version_adds(version: int, topics: set[str], rest: bytes) -> None:
    assert subscribed_topics(subscription(version, *topics, rest=rest)) == topics


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00\x00",
        subscription(0, "a", "b", rest=b"")[:-1],
        b"\xff\xff" + subscription(0, "a")[2:],
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\xff\xffab",
        b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xfe",
    ],
)
def test_what_is_no_subscription_has_no_topics_that_could_be_told(data: bytes) -> None:
    assert subscribed_topics(data) is None


@given(st.binary(max_size=40))
def test_no_bytes_of_a_client_do_harm(data: bytes) -> None:
    subscribed_topics(data)
