"""/metrics, of the HTTP process and of the broker: Prometheus reads it, and the figures are right."""

import time

import httpx
from confluent_kafka import Consumer
from prometheus_client.parser import text_string_to_metric_families

from penstock.testing.in_process import BrokerInProcess
from tests.integration.http.conftest import MakeTopic

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(http: httpx.Client, path: str) -> Samples:
    answer = http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = list(text_string_to_metric_families(answer.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family comes twice"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def read_anew(http: httpx.Client, topic: str, end: int) -> Samples:
    """The page once it knows of the topic's end. What was read a moment ago, by any test, is served for a second."""
    wanted = "kafka_topic_partition_current_offset", frozenset({("topic", topic), ("partition", "0")})
    samples: Samples = {}
    deadline_s = time.monotonic() + 5
    while samples.get(wanted) != end and time.monotonic() < deadline_s:
        samples = read(http, "/metrics")
    return samples


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def fill(http: httpx.Client, topic: str, count: int) -> None:
    messages = [{"value": "aGk="} for _ in range(count)]
    http.post(f"/topics/{topic}/messages/batch", json={"messages": messages}).raise_for_status()


def test_offsets_and_lag_have_kafka_exporters_names(http: httpx.Client, make_topic: MakeTopic, group: str) -> None:
    read(http, "/metrics")
    topic = make_topic()
    fill(http, topic, 10)
    http.post(f"/consumers/{group}/offsets", json={"offsets": {topic: {"0": 4}}}).raise_for_status()
    http.post(f"/consumers/{group}/subscribe", json={"topics": [topic]}).raise_for_status()
    http.get(f"/consumers/{group}/poll?timeout_ms=5000")
    samples = read_anew(http, topic, 10)
    place = {"topic": topic, "partition": "0"}
    assert value(samples, "kafka_up") == 1
    assert value(samples, "kafka_brokers") == 1
    assert value(samples, "kafka_topic_partitions", topic=topic) == 1
    assert value(samples, "kafka_topic_partition_current_offset", **place) == 10
    assert value(samples, "kafka_topic_partition_oldest_offset", **place) == 0
    assert value(samples, "kafka_topic_partition_leader", **place) == 1
    assert value(samples, "kafka_topic_partition_in_sync_replica", **place) == 1
    assert value(samples, "kafka_topic_partition_under_replicated_partition", **place) == 0
    assert value(samples, "kafka_consumergroup_members", consumergroup=group) == 1
    assert value(samples, "kafka_consumergroup_current_offset", consumergroup=group, **place) == 4
    assert value(samples, "kafka_consumergroup_lag", consumergroup=group, **place) == 6
    assert value(samples, "kafka_consumergroup_lag_sum", consumergroup=group, topic=topic) == 6
    assert value(samples, "penstock_http_consumers") >= 1
    http.delete(f"/consumers/{group}")


def test_a_broker_counts_what_goes_in_and_out(
    served: BrokerInProcess, http: httpx.Client, topic: str, group: str
) -> None:
    fill(http, topic, 20)
    consumer = Consumer(
        {"bootstrap.servers": served.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(20, timeout=20)) == 20
    consumer.close()
    samples = read(http, "/metrics/brokers/1")
    prefix = "kafka_server_brokertopicmetrics"
    assert value(samples, f"{prefix}_messagesin_total", topic=topic) == 20
    bytes_in = value(samples, f"{prefix}_bytesin_total", topic=topic)
    assert bytes_in == value(samples, "kafka_log_log_size", topic=topic, partition="0")
    # Once: a fetch that waited has found the same bytes more than once.
    assert value(samples, f"{prefix}_bytesout_total", topic=topic) == bytes_in
    assert value(samples, f"{prefix}_totalfetchrequests_total", topic=topic) >= 1
    assert value(samples, "kafka_log_log_logendoffset", topic=topic, partition="0") == 20
    assert value(samples, "kafka_cluster_partition_replicascount", topic=topic, partition="0") == 1
    assert value(samples, "kafka_cluster_partition_underminisr", topic=topic, partition="0") == 0
    assert value(samples, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(samples, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(samples, "kafka_network_requestmetrics_totaltimems_count", request="Produce") >= 1
    assert 0 < value(samples, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") < 10_000
    assert value(samples, "process_resident_memory_bytes") > 10_000_000
    assert value(samples, "process_open_fds") > 5


def test_a_refused_batch_is_counted(http: httpx.Client, served: BrokerInProcess, topic: str) -> None:
    name = "kafka_server_brokertopicmetrics_failedproducerequests_total"
    assert (name, frozenset({("topic", topic)})) not in read(http, "/metrics/brokers/1")
    cluster = http.get("/v3/clusters").json()["data"][0]["metadata"]["self"]
    http.put(f"{cluster}/topics/{topic}/configs/max.message.bytes", json={"value": "100"}).raise_for_status()
    answer = http.post(f"/topics/{topic}/messages", content=b"x" * 500, headers={"content-type": "text/plain"})
    assert answer.status_code == 413
    assert value(read(http, "/metrics/brokers/1"), name, topic=topic) == 1


def test_an_unknown_broker_has_no_metrics_here(http: httpx.Client) -> None:
    answer = http.get("/metrics/brokers/7")
    assert (answer.status_code, answer.json()["error_code"]) == (404, 40405)


def test_the_brokers_own_port_serves_metrics_and_nothing_else(served: BrokerInProcess) -> None:
    url = f"http://{served.metrics_address}"
    assert httpx.get(f"{url}/metrics").text.startswith("# HELP")
    assert httpx.get(f"{url}/etc/passwd").status_code == 404
    assert httpx.post(f"{url}/metrics").status_code == 405
