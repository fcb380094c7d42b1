"""Requests of real clients, as they came over the wire: what the fuzzers change.

    python -m tests.fuzz.corpus

records them anew, from each client that is installed, into corpus.json.gz.
"""

import asyncio
import base64
import gzip
import json
import subprocess
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from penstock.testing.apache_kafka import kafka_jars
from penstock.testing.in_process import BrokerInProcess
from penstock.testing.ports import free_port

PATH = Path(__file__).with_name("corpus.json.gz")
_FRAMES_OF_A_KIND_MAX = 3
_FRAME_BYTES_MAX = 4096
TOPIC = "recorded"


@cache
def recorded_frames() -> list[tuple[str, bytes]]:
    """(client, header and body without the size)"""
    found = json.loads(gzip.decompress(PATH.read_bytes()))
    return [(client, base64.b64decode(frame)) for client, frame in found]


class Recorder(threading.Thread):
    """Stands before the broker and writes down what clients say."""

    def __init__(self, port: int, target_port: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self.client = ""
        self.frames: dict[tuple[str, int, int], list[bytes]] = {}
        self._port, self._target_port = port, target_port
        self._is_ready = threading.Event()

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._is_ready.set()
        await server.serve_forever()

    def await_ready(self) -> None:
        assert self._is_ready.wait(10)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._target_port())
        answers = asyncio.create_task(self._pass_on(onward_reader, writer))
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(int.from_bytes(size))
                self._note(frame)
                onward_writer.write(size + frame)
        except (OSError, asyncio.IncompleteReadError):
            onward_writer.close()
        await answers

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except OSError:
            pass
        writer.close()

    def _note(self, frame: bytes) -> None:
        kind = (self.client, int.from_bytes(frame[:2]), int.from_bytes(frame[2:4]))
        known = self.frames.setdefault(kind, [])
        if len(frame) <= _FRAME_BYTES_MAX and len(known) < _FRAMES_OF_A_KIND_MAX and frame not in known:
            known.append(frame)


def use_librdkafka(bootstrap: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AdminClient,
        ConfigResource,
        NewPartitions,
        NewTopic,
        ResourceType,
    )

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)
    admin.create_partitions([NewPartitions(TOPIC, 3)])[TOPIC].result(20)
    for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, TOPIC)]).values():
        future.result(20)
    for codec in ("none", "gzip", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all"})
        for number in range(20):
            producer.produce(TOPIC, b"value %d" % number, key=b"key", headers={"h": b"1"})
        producer.flush(20)
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": "recorded"})
    transactional.init_transactions(20)
    for protocol in ("classic", "consumer"):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"recorded-{protocol}",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([TOPIC])
        while not consumer.consume(10, 0.5):
            pass
        transactional.begin_transaction()
        transactional.produce(TOPIC, b"in a transaction")
        offsets = [TopicPartition(TOPIC, 0, 1)]
        transactional.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        transactional.commit_transaction(20)
        consumer.commit(asynchronous=False)
        consumer.close()
    admin.list_consumer_groups().result(20)
    for future in admin.describe_consumer_groups(["recorded-classic", "recorded-consumer"]).values():
        future.result(20)
    for future in admin.delete_consumer_groups(["recorded-classic"]).values():
        future.result(20)


def use_aiokafka(bootstrap: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    async def use() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="recorded-aio")
        await producer.start()
        async with producer.transaction():
            await producer.send_and_wait(TOPIC, b"value")
        await producer.stop()
        consumer = AIOKafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id="recorded-aio", auto_offset_reset="earliest"
        )
        await consumer.start()
        await consumer.getone()
        await consumer.commit()
        await consumer.stop()

    asyncio.run(use())


def use_kafka_python(bootstrap: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(TOPIC, b"value").get(20)
    producer.close()
    consumer: Any = KafkaConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id="recorded-python", auto_offset_reset="earliest"
    )
    next(consumer)
    consumer.commit()
    consumer.close()


def use_kcat(bootstrap: str) -> None:
    for arguments in (["-L"], ["-C", "-t", TOPIC, "-e", "-q"], ["-Q", "-t", f"{TOPIC}:0:-1"]):
        subprocess.run(["kcat", "-b", bootstrap, *arguments], capture_output=True, timeout=60, check=True)
    subprocess.run(["kcat", "-b", bootstrap, "-P", "-t", TOPIC], input=b"line\n", timeout=60, check=True)


def use_java_tools(bootstrap: str) -> None:
    jars = kafka_jars()
    assert jars is not None, "scripts/kafka-jars fetches them"
    admin = "org.apache.kafka.tools"
    for tool, *arguments in (
        (f"{admin}.TopicCommand", "--describe"),
        (f"{admin}.TopicCommand", "--create", "--topic", "java", "--partitions", "2"),
        (f"{admin}.consumer.group.ConsumerGroupCommand", "--describe", "--all-groups"),
        (f"{admin}.consumer.group.ConsumerGroupCommand", "--list"),
        (f"{admin}.GetOffsetShell", "--topic", TOPIC),
        (f"{admin}.TransactionsCommand", "list"),
        (f"{admin}.MetadataQuorumCommand", "describe", "--status"),
        (f"{admin}.consumer.ConsoleConsumer", "--topic", TOPIC, "--from-beginning", "--max-messages", "3"),
        ("kafka.admin.ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", TOPIC),
        (f"{admin}.TopicCommand", "--delete", "--topic", "java"),
    ):
        name = "--bootstrap-server"
        command = ["java", "-cp", jars, tool, name, bootstrap, *arguments]
        subprocess.run(command, capture_output=True, timeout=90, check=False)
    command = ["java", "-cp", jars, f"{admin}.ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", TOPIC]
    subprocess.run(command, input=b"line\n", capture_output=True, timeout=90, check=False)


def record() -> None:
    port = free_port()
    broker = BrokerInProcess({"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    recorder = Recorder(port, lambda: int(broker.bootstrap_servers.rpartition(":")[2]))
    recorder.start()
    recorder.await_ready()
    with broker:
        for use in (use_librdkafka, use_aiokafka, use_kafka_python, use_kcat, use_java_tools):
            recorder.client = use.__name__.removeprefix("use_")
            started_s = time.monotonic()
            use(f"127.0.0.1:{port}")
            print(f"{recorder.client}: {time.monotonic() - started_s:.1f} s")
    frames = [
        [client, base64.b64encode(frame).decode()]
        for (client, _, _), known in sorted(recorder.frames.items())
        for frame in known
    ]
    PATH.write_bytes(gzip.compress(json.dumps(frames).encode(), mtime=0))
    print(f"{len(frames)} frames, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    record()
