"""penstock top: the figures of a running cluster, as text and on the screen."""

import subprocess

import httpx
import pytest

from penstock.cli.failures import Failed
from penstock.cli.top import Source, Tables, as_text
from penstock.cli.top_screen import TopScreen
from penstock.testing.in_process import BrokerInProcess
from penstock.testing.ports import free_port
from tests.integration.conftest import PENSTOCK
from tests.integration.http.conftest import MakeTopic


def fill(http: httpx.Client, topic: str, count: int) -> None:
    messages = [{"value": "aGk="} for _ in range(count)]
    http.post(f"/topics/{topic}/messages/batch", json={"messages": messages}).raise_for_status()


def test_rates_are_what_happened_between_two_looks(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    fill(http, topic, 1)
    source = Source(served.http_url)
    before = source.look()
    fill(http, topic, 500)
    tables = Tables(before, source.look(), 2.0)
    (row,) = [one for one in tables.topics if one[0] == topic]
    assert row[2] == "250"
    assert [one for one in tables.requests if one[0] == "Produce"]
    assert tables.brokers[0][0] == "1*"
    text = as_text(tables)
    assert topic in text
    assert "p99 ms" in text


async def test_the_screen_shows_the_same(served: BrokerInProcess, http: httpx.Client, topic: str) -> None:
    from textual.widgets import DataTable

    fill(http, topic, 1)
    source = Source(served.http_url)
    screen = TopScreen(source, source.look(), 60)
    async with screen.run_test() as pilot:
        table = screen.query_one("#brokers", DataTable)
        assert table.row_count == 1
        assert table.get_row_at(0)[0] == "1*"
        await pilot.press("q")


def test_once_prints_and_ends(served: BrokerInProcess) -> None:
    command = [PENSTOCK, "top", "--once", "--url", served.http_url]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "brokers" in result.stdout


def test_no_server_is_a_sentence() -> None:
    with pytest.raises(Failed, match="Start one with `penstock up`"):
        Source(f"http://127.0.0.1:{free_port()}").look()


def test_topic_describe_tells_how_dirty_a_compacted_topic_is(served: BrokerInProcess, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2, cleanup_policy="compact")
    command = [PENSTOCK, "topic", "describe", topic, "--brokers", served.bootstrap_servers]
    with_url = subprocess.run([*command, "--url", served.http_url], capture_output=True, text=True, check=True)
    assert "DIRTY" in with_url.stdout
    assert with_url.stderr == ""
    nowhere = f"http://127.0.0.1:{free_port()}"
    without = subprocess.run([*command, "--url", nowhere], capture_output=True, text=True, check=True)
    assert "DIRTY" not in without.stdout
    assert f"how dirty {topic} is, is not known: {nowhere}" in without.stderr
