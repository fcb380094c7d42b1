"""Spark Connect: the client is elsewhere, in another language, and sends plans; source and sink run at the server."""

import sys
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Producer

import penstock.arrow
from penstock.testing.ports import free_port
from tests.conformance.wire import Wire, create_topic
from tests.e2e.node import Node, wait_until
from tests.e2e.spark.spark_cluster import SPARK_CLASS, Process

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(1200),
]

JARS = Path(pyspark.__file__).parent / "jars"
RECORDS = 100


def test_a_connect_client_copies_a_topic_exactly_once(node: Node, topic_name: str, tmp_path: Path) -> None:
    target = f"{topic_name}-copy"
    with Wire(node.port) as wire:
        create_topic(wire, topic_name, 2)
        create_topic(wire, target, 2)
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic_name, value=str(number), partition=number % 2)
    assert producer.flush(30) == 0
    port = free_port()
    server_command = [str(SPARK_CLASS), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.driver.host=127.0.0.1",
        f"spark.pyspark.python={sys.executable}",
    ):
        server_command += ["--conf", setting]
    server_command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    server = Process(server_command, tmp_path / "server.out")
    try:
        wait_until(
            lambda: "Spark Connect server started" in server.said() or server.process.poll() is not None,
            "there is a server",
            180,
        )
        # As Spark's own Connect shell: without what makes a session of this process.
        others = [
            jar for jar in sorted(JARS.glob("*.jar")) if not jar.name.startswith(("spark-sql_", "spark-connect_"))
        ]
        jars = [*JARS.glob("connect-repl/spark-connect-client-jvm*.jar"), *others]
        client_command = ["java", "-cp", ":".join(map(str, jars)), "--add-opens=java.base/java.nio=ALL-UNNAMED"]
        client_command += [str(Path(__file__).with_name("ConnectCopy.java")), f"sc://127.0.0.1:{port}", node.bootstrap]
        client_command += [topic_name, target, str(tmp_path / "checkpoint")]
        client = Process(client_command, tmp_path / "client.out")
        try:
            client.process.wait(600)
        finally:
            client.kill()
        assert f"copied {RECORDS}\n" in client.said(), client.said() + server.said()
    finally:
        server.kill()
    table = penstock.arrow.read(target, bootstrap_servers=node.bootstrap, columns=["value"])
    assert sorted(int(value) for value in table["value"].to_pylist()) == list(range(RECORDS))
