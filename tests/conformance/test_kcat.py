"""kcat, as people use it in a shell."""

import json
import subprocess

import pytest

from tests.conformance.confluent import create
from tests.e2e.node import Node

pytestmark = pytest.mark.kcat


def kcat(node: Node, *arguments: str, stdin: bytes = b"") -> bytes:
    command = ["kcat", "-b", node.bootstrap, *arguments]
    return subprocess.run(command, input=stdin, stdout=subprocess.PIPE, timeout=60, check=True).stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out(shared_broker: Node, topic_name: str, codec: str) -> None:
    create(shared_broker, topic_name)
    lines = b"".join(b"key%d:value %d\n" % (number, number) for number in range(100))
    kcat(shared_broker, "-P", "-t", topic_name, "-K:", "-z", codec, stdin=lines)
    assert kcat(shared_broker, "-C", "-t", topic_name, "-K:", "-e", "-q", "-o", "beginning") == lines


def test_headers_nulls_and_partitions_are_printed(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, partitions=3)
    arguments = ["-P", "-t", topic_name, "-p", "2", "-k", "k", "-H", "h=1", "-Z"]
    kcat(shared_broker, *arguments, stdin=b"v\n")
    printed = kcat(shared_broker, "-C", "-t", topic_name, "-e", "-q", "-f", "%p %o %k %s %h\\n")
    assert printed == b"2 0 k v h=1\n"


def test_reading_from_offsets_and_times(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    kcat(shared_broker, "-P", "-t", topic_name, stdin=b"a\nb\nc\nd\n")
    assert kcat(shared_broker, "-C", "-t", topic_name, "-p", "0", "-o", "2", "-e", "-q") == b"c\nd\n"
    assert kcat(shared_broker, "-C", "-t", topic_name, "-p", "0", "-o", "-1", "-e", "-q") == b"d\n"
    assert kcat(shared_broker, "-C", "-t", topic_name, "-p", "0", "-o", "s@1000", "-c", "1", "-q") == b"a\n"


def test_metadata_as_json(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name, partitions=2)
    listed = json.loads(kcat(shared_broker, "-L", "-J", "-t", topic_name))
    assert listed["brokers"] == [{"id": 1, "name": shared_broker.bootstrap}]
    (topic,) = listed["topics"]
    assert [(one["partition"], one["leader"]) for one in topic["partitions"]] == [(0, 1), (1, 1)]


def test_offsets_by_time_are_queried(shared_broker: Node, topic_name: str) -> None:
    create(shared_broker, topic_name)
    kcat(shared_broker, "-P", "-t", topic_name, stdin=b"a\nb\n")
    assert kcat(shared_broker, "-Q", "-t", f"{topic_name}:0:1") == f"{topic_name} [0] offset 0\n".encode()
    assert kcat(shared_broker, "-Q", "-t", f"{topic_name}:0:-1") == f"{topic_name} [0] offset 2\n".encode()
    assert kcat(shared_broker, "-Q", "-t", f"{topic_name}:0:-2") == f"{topic_name} [0] offset 0\n".encode()
