"""The dashboard, the alert rules and other people's dashboards ask for metrics that a running cluster gives."""

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.http.conftest import MakeTopic

DOCS = Path(__file__).parents[3] / "docs"
_METRIC = re.compile(r"\b(?:kafka|penstock|process)_[a-z_]+")

# What dashboards for kafka_exporter, and for jmx_exporter with Strimzi's rules, are built from.
KNOWN_ELSEWHERE = re.findall(
    r"\w+",
    """
kafka_brokers kafka_broker_info kafka_topic_partitions
kafka_topic_partition_current_offset kafka_topic_partition_oldest_offset kafka_topic_partition_leader
kafka_topic_partition_leader_is_preferred kafka_topic_partition_replicas kafka_topic_partition_in_sync_replica
kafka_topic_partition_under_replicated_partition
kafka_consumergroup_current_offset kafka_consumergroup_current_offset_sum kafka_consumergroup_lag
kafka_consumergroup_lag_sum kafka_consumergroup_members
kafka_server_brokertopicmetrics_messagesin_total kafka_server_brokertopicmetrics_bytesin_total
kafka_server_brokertopicmetrics_bytesout_total kafka_server_brokertopicmetrics_totalproducerequests_total
kafka_server_brokertopicmetrics_totalfetchrequests_total kafka_server_brokertopicmetrics_failedproducerequests_total
kafka_server_brokertopicmetrics_failedfetchrequests_total
kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underreplicatedpartitions kafka_server_replicamanager_isrshrinks_total
kafka_server_replicamanager_isrexpands_total
kafka_controller_kafkacontroller_activecontrollercount kafka_controller_kafkacontroller_offlinepartitionscount
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_cluster_partition_underminisr kafka_cluster_partition_atminisr kafka_cluster_partition_replicascount
kafka_log_log_size kafka_network_requestmetrics_totaltimems
kafka_server_raftmetrics_current_leader kafka_server_raftmetrics_current_epoch
kafka_server_raftmetrics_high_watermark kafka_server_raftmetrics_log_end_offset process_open_fds
""",
)


@pytest.fixture
def served_names(http: httpx.Client, make_topic: MakeTopic, group: str) -> set[str]:
    """Every name that a cluster gives which was used a little: written to, read, refused, compacted."""
    topic = make_topic(cleanup_policy="compact", max_message_bytes="200")
    keyed = {"content-type": "application/json; value=text"}
    http.post(f"/topics/{topic}/messages", content='{"key": "k", "value": "v"}', headers=keyed).raise_for_status()
    assert http.post(f"/topics/{topic}/messages?key=k", content="v" * 500, headers=_TEXT).status_code == 413
    http.post(f"/consumers/{group}/offsets", json={"offsets": {topic: {"0": 0}}}).raise_for_status()
    http.post(f"/consumers/{group}/subscribe", json={"topics": [topic]}).raise_for_status()
    assert len(http.get(f"/consumers/{group}/poll?timeout_ms=10000").json()["messages"]) == 1
    http.post(f"/consumers/{group}/seek", json={"topic": topic, "partition": 0, "offset": 10_000}).raise_for_status()
    http.get(f"/consumers/{group}/poll?timeout_ms=1000")
    pages = [http.get(path).text for path in ("/metrics", "/metrics/brokers/1")]
    http.delete(f"/consumers/{group}")
    return {
        sample.name for page in pages for family in text_string_to_metric_families(page) for sample in family.samples
    }


_TEXT = {"content-type": "text/plain"}


def test_panels_rules_and_known_names_are_all_served(served_names: set[str]) -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = re.findall(r"expr: (.*)", (DOCS / "alert-rules.yml").read_text())
    assert (len(expressions) >= 15, len(rules) >= 10) == (True, True)
    asked = {name for expression in expressions + rules for name in _METRIC.findall(expression)}
    assert asked - served_names == set()
    assert set(KNOWN_ELSEWHERE) - served_names == set()


def test_every_rule_says_what_to_do() -> None:
    text = (DOCS / "alert-rules.yml").read_text()
    assert text.count("action: ") == text.count("expr: ")
