"""The console in a real browser, with a real broker behind it.

Wants the package `playwright`, which `make test-console` installs, and a Chromium of the system's (Debian: apt-get
install chromium), found on the PATH or named by PENSTOCK_CHROMIUM. Without them, and in CI, these tests are skipped.
"""

import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.testing.in_process import BrokerInProcess

CHROMIUM = os.environ.get("PENSTOCK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
if os.environ.get("CI"):
    pytest.skip("a browser is for developers' machines", allow_module_level=True)
if CHROMIUM is None:
    pytest.skip("there is no Chromium: apt-get install chromium", allow_module_level=True)
playwright_api = pytest.importorskip("playwright.sync_api", reason="there is no playwright: make test-console")
expect = playwright_api.expect

WAIT_MS = 20_000
PAGE_BYTES_MAX = 200_000
# Of a page however much there is to show: what is more is on further pages.
ELEMENTS_MAX = 3_000
HOSTILE = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>'
JSON = {"content-type": "application/json; value=json"}
PAYMENT = {"type": "record", "name": "Payment", "fields": [{"name": "id", "type": "string"}]}


expect.set_options(timeout=WAIT_MS)


class Served:
    """A broker with its HTTP server, and shortcuts to fill it."""

    def __init__(self, broker: BrokerInProcess) -> None:
        self.broker = broker
        self.url = broker.http_url
        self.http = httpx.Client(base_url=broker.http_url, timeout=30)
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})

    def topic(self, partitions: int = 1) -> str:
        name = f"t-{uuid.uuid4().hex[:10]}"
        self.admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)
        return name

    def fill(self, topic: str, values: list[Any], **envelope: Any) -> None:
        body = {"messages": [{"value": value, "key": f"k{at}", **envelope} for at, value in enumerate(values)]}
        self.http.post(f"/topics/{topic}/messages/batch", content=json.dumps(body), headers=JSON).raise_for_status()

    def group_at(self, topic: str, offset: int) -> str:
        name = f"g/{uuid.uuid4().hex[:10]}"
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": name})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()
        return name

    def committed(self, group: str, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        try:
            offset: int = consumer.committed([TopicPartition(topic, 0)], timeout=20)[0].offset
            return offset
        finally:
            consumer.close()

    def transaction_state(self, name: str) -> str:
        listed = self.http.get("/api/transactions").json()["transactions"]
        (state,) = [one["state"] for one in listed if one["transactional_id"] == name]
        return str(state)

    def schema(self, subject: str, *fields: dict[str, Any]) -> None:
        text = json.dumps(PAYMENT | {"fields": [*PAYMENT["fields"], *fields]})
        self.http.post(f"/subjects/{subject}/versions", json={"schema": text}).raise_for_status()


class Tab:
    """A page of the browser that keeps count of what went wrong and of what was loaded."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        self.bytes_of: dict[str, int] = {}
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._said)
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("response", self._loaded)

    def _said(self, message: Any) -> None:
        # The browser itself reports answers that are 4xx: those are the pages' business.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.wrong.append(message.text)

    def _loaded(self, response: Any) -> None:
        path = urlsplit(response.url).path
        if path.startswith("/console/"):
            self.bytes_of[path] = int(response.headers.get("content-length", 0))

    def open(self, path: str) -> Any:
        self.page.goto(self.url + path)
        return self.page

    def see(self, text: str) -> None:
        expect(self.page.get_by_text(text).locator("visible=true").first).to_be_visible()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with BrokerInProcess() as broker:
        yield Served(broker)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright_api.sync_playwright() as playwright:
        # The tests may run as root, where Chromium's sandbox does not.
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def tab(served: Served, browser: Any) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = Tab(context.new_page(), served.url)
    yield found
    hurt = found.page.evaluate("window.hurt")
    context.close()
    assert hurt is None, "text of somebody's was run as code"
    assert found.wrong == []
    assert found.hosts == {urlsplit(served.url).netloc}


def wait_for(check: Callable[[], bool], seconds: float = WAIT_MS / 1000) -> None:
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_opens_and_is_small(served: Served, browser: Any, scheme: str) -> None:
    topic = served.topic(2)
    served.fill(topic, [{"a": 1}])
    group = served.group_at(topic, 1)
    served.schema(f"{topic}-value")
    pages = {
        "/console/": "All is well",
        f"/console/topics?q={topic}": topic,
        f"/console/topics/{topic}": "with all replicas",
        f"/console/topics/{topic}?tab=settings": "cleanup.policy",
        f"/console/topics/{topic}?tab=groups": group,
        f"/console/topics/{topic}/messages": '{"a":1}',
        f"/console/groups?q={topic}": group,
        f"/console/groups/{quote(group)}": "Nobody reads with this group",
        f"/console/schemas?q={topic}": f"{topic}-value",
        f"/console/schemas/{topic}-value": '"Payment"',
        "/console/brokers": "Partitions that need attention",
        "/console/brokers/1": "Partitions here",
        "/console/transactions": "transaction",
        "/console/settings": "advertised.listeners",
    }
    for path, text in pages.items():
        context = browser.new_context(color_scheme=scheme)
        tab = Tab(context.new_page(), served.url)
        page = tab.open(path)
        tab.see(text)
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) < 128 * 3) == (scheme == "dark")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is too wide"
        assert sum(tab.bytes_of.values()) < PAGE_BYTES_MAX, path
        assert tab.wrong == [], path
        assert tab.hosts == {urlsplit(served.url).netloc}
        context.close()


def test_browsers_are_led_to_the_console(tab: Tab) -> None:
    page = tab.open("/")
    assert urlsplit(page.url).path == "/console/"
    tab.see("Overview")


def test_the_keyboard_is_enough(tab: Tab, served: Served) -> None:
    topic = served.topic()
    served.fill(topic, ["one", "two"])
    page = tab.open("/console/")
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.type("gt")
    page.wait_for_url("**/console/topics")
    expect(page.locator("tr[data-row]").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(topic)
    expect(page.locator("tr[data-row]")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/console/topics/{topic}/messages")
    tab.see("scanned")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("tr.detail")).to_have_count(1)
    page.keyboard.type("gg")
    page.wait_for_url("**/console/groups")


def test_the_choice_of_dark_stays(tab: Tab) -> None:
    page = tab.open("/console/settings")
    tab.see("advertised.listeners")
    dark = "getComputedStyle(document.documentElement).colorScheme"
    page.keyboard.press("d")
    assert page.evaluate(dark) == "dark"
    tab.open("/console/groups")
    assert page.evaluate(dark) == "dark"
    page.click("[data-theme-toggle]")
    assert page.evaluate(dark) == "light"


def test_a_thousand_topics_are_searched_sorted_and_paged_with_the_state_in_the_url(tab: Tab, served: Served) -> None:
    mark = uuid.uuid4().hex[:6]
    names = [f"many-{mark}-{number:04d}" for number in range(1000)]
    for future in served.admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)
    page = tab.open(f"/console/topics?q=many-{mark}")
    tab.see("1–50 of 1,000")
    assert page.locator("tr[data-row]").count() == 50
    page.get_by_role("button", name="Next").click()
    tab.see("51–100 of 1,000")
    page.locator("th").get_by_role("button", name="Topic").click()
    tab.see(f"many-{mark}-0999")
    page.fill("[data-search]", f"{mark}-07")
    tab.see("1–50 of 100")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("tr[data-row]").first).to_contain_text(f"many-{mark}-0749")
    address = page.url
    tab.open("/console/groups")
    page.goto(address)
    expect(page.locator("tr[data-row]").first).to_contain_text(f"many-{mark}-0749")
    started = time.monotonic()
    page.fill("[data-search]", f"{mark}-0123")
    expect(page.locator("tr[data-row]")).to_have_count(1)
    assert time.monotonic() - started < 2
    served.fill(names[0], [1])
    group = served.group_at(names[0], 0)
    for path, text in {
        "/console/": "All is well",
        "/console/brokers": "Partitions that need attention",
        f"/console/brokers/1?q=many-{mark}-0999": f"many-{mark}-0999",
        f"/console/topics/{names[0]}": "with all replicas",
        f"/console/topics/{names[0]}?tab=groups": group,
        f"/console/groups/{quote(group)}": names[0],
    }.items():
        tab.open(path)
        tab.see(text)
        tall = page.evaluate("document.querySelectorAll('*').length")
        assert tall < ELEMENTS_MAX, f"{path} has {tall} elements"
    for future in served.admin.delete_topics(names).values():
        future.result(60)


def test_a_topic_is_made_changed_cloned_and_deleted(tab: Tab, served: Served) -> None:
    name = f"t-{uuid.uuid4().hex[:10]}"
    page = tab.open("/console/topics")
    page.get_by_role("button", name="New topic").click()
    page.get_by_label("Name").fill(name)
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Keep for").select_option("86400000")
    page.get_by_role("button", name="Create").click()
    tab.see(f"{name} is there.")

    tab.open(f"/console/topics/{name}?tab=settings&setting=max.message")
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("max.message.bytes").fill("many")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".setting form .notice.critical")).to_be_visible()
    page.get_by_label("max.message.bytes").fill("2000")
    page.get_by_role("button", name="Save").click()
    tab.see("set here")

    tab.open(f"/console/topics/{name}?tab=manage")
    page.get_by_label("Name of the clone").fill(f"{name}-2")
    page.get_by_role("button", name="Clone").click()
    page.wait_for_url(f"**/console/topics/{name}-2")
    tab.see("with all replicas")
    cloned = served.http.get(f"/api/topics/{name}-2").json()
    configs = {one["name"]: one["value"] for one in cloned["configs"] if one["source"] == "topic"}
    assert configs == {"retention.ms": "86400000", "max.message.bytes": "2000"}
    assert len(cloned["partitions"]) == 3

    tab.open(f"/console/topics/{name}?tab=manage")
    tab.see("More partitions")
    page.get_by_role("button", name="Delete this topic").click()
    button = page.get_by_role("button", name="Delete", exact=True)
    expect(button).to_be_disabled()
    page.get_by_label("The topic's name").fill(f"{name}-2")
    expect(button).to_be_disabled()
    page.get_by_label("The topic's name").fill(name)
    button.click()
    page.wait_for_url("**/console/topics")
    wait_for(lambda: served.http.get(f"/api/topics/{name}").status_code == 404)


def test_an_open_transaction_is_aborted_after_a_question(tab: Tab, served: Served) -> None:
    topic, name = served.topic(), f"payments/{uuid.uuid4().hex[:8]}"
    config = {"bootstrap.servers": served.broker.bootstrap_servers, "transactional.id": name, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"unfinished")
    producer.flush(20)
    page = tab.open(f"/console/transactions?q={quote(name)}")
    row = page.locator("tr[data-row]")
    expect(row).to_contain_text(f"{topic} 0")
    row.get_by_role("button", name="Abort").click()
    expect(page.get_by_role("dialog")).to_contain_text(name)
    page.get_by_role("button", name="Leave it").click()
    assert served.transaction_state(name) == "Ongoing"
    row.get_by_role("button", name="Abort").click()
    page.get_by_role("button", name="Abort it").click()
    tab.see(f"{name} is aborted.")
    assert served.transaction_state(name) in ("CompleteAbort", "Empty")
    with pytest.raises(KafkaException, match=r"(?i)fenced"):
        producer.commit_transaction(20)


def test_the_lag_of_one_partition_is_drawn_when_it_is_chosen(tab: Tab, served: Served) -> None:
    topic = served.topic()
    served.fill(topic, list(range(20)))
    group = served.group_at(topic, 5)
    lags = f"/api/charts?group={quote(group, safe='')}&topic={topic}&partition=0"
    wait_for(lambda: len(served.http.get(lags).json()["times"]) >= 2, seconds=60)
    page = tab.open(f"/console/groups/{quote(group)}")
    expect(page.locator(".chart canvas")).to_be_visible()
    page.get_by_role("button", name=f"Lag of {topic} 0 over time").click()
    tab.see(f"Lag in {topic} 0")
    assert quote(f"{topic}/0", safe="") in page.url
    page.reload()
    expect(page.locator(".chart-figure")).to_have_text("15")
    page.get_by_role("button", name="All partitions").click()
    expect(page.get_by_role("heading", name="Lag", exact=True)).to_be_visible()


def test_messages_are_shown_as_they_are(tab: Tab, served: Served) -> None:
    topic = served.topic()
    big = 9007199254740993
    served.fill(topic, [{"id": big, "nested": {"list": [1, None, True]}}], headers={"source": HOSTILE})
    served.fill(topic, [HOSTILE, {HOSTILE: HOSTILE}])
    page = tab.open(f"/console/topics/{topic}/messages")
    tab.see("scanned 3 of 3")
    rows = page.locator("tr[data-row]")
    assert [one.split("\t")[2] for one in rows.all_inner_texts()] == ["2", "1", "0"]
    rows.last.click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text(str(big))
    expect(detail).to_contain_text(HOSTILE)
    assert "open=0%3A0" in page.url
    page.reload()
    expect(detail).to_contain_text(str(big))
    for row in (rows.first, rows.nth(1)):
        row.click()
        expect(detail).to_contain_text(HOSTILE)


def test_messages_are_filtered_paged_and_sought_with_the_state_in_the_url(tab: Tab, served: Served) -> None:
    topic = served.topic()
    served.fill(topic, [{"n": number} for number in range(1, 201)])
    page = tab.open(f"/console/topics/{topic}/messages")
    page.get_by_label("Filter", exact=True).fill("value.n % 50 == 0")
    page.keyboard.press("Enter")
    tab.see("scanned 200 of 200 · 4 shown")
    assert quote("value.n % 50 == 0", safe="").replace("%20", "+") in page.url

    page.get_by_label("Filter", exact=True).fill("value.n >")
    page.keyboard.press("Enter")
    tab.see("The filter is not CEL")
    page.get_by_label("Filter", exact=True).fill("value.missing > 1")
    page.keyboard.press("Enter")
    tab.see("200 messages could not be tested")

    page.get_by_label("Filter", exact=True).fill("")
    page.keyboard.press("Enter")
    tab.see("150 more to look at")
    page.get_by_role("button", name="Older").click()
    first = page.locator("tr[data-row]").first
    expect(first).to_contain_text('{"n":150}')
    page.reload()
    expect(first).to_contain_text('{"n":150}')
    page.go_back()
    expect(first).to_contain_text('{"n":200}')

    page.get_by_label("Where to begin").select_option("offset")
    page.get_by_label("Offset").fill("120")
    page.keyboard.press("Enter")
    expect(first).to_contain_text('{"n":121}')
    page.get_by_label("Where to begin").select_option("time")
    page.get_by_label("Time").fill("2020-01-01T00:00:01")
    page.get_by_role("button", name="Search").click()
    expect(first).to_contain_text('{"n":1}')
    page.reload()
    expect(page.get_by_label("Time")).to_have_value("2020-01-01T00:00:01")


def test_what_is_produced_here_is_there(tab: Tab, served: Served) -> None:
    topic = served.topic()
    page = tab.open(f"/console/topics/{topic}/messages")
    tab.see("The topic is empty.")
    page.get_by_role("link", name="Produce").click()
    page.get_by_label("Key", exact=True).fill("k")
    page.locator("dialog textarea").fill('{"id": 12345678901234567890, "a": }')
    page.get_by_role("button", name="Add a header").click()
    page.get_by_label("Name of the header").fill("source")
    page.get_by_label("Value of the header").fill("console")
    page.get_by_role("button", name="Produce", exact=True).click()
    tab.see("The value is not JSON.")
    page.locator("dialog textarea").fill('{"id": 12345678901234567890}')
    page.get_by_role("button", name="Produce", exact=True).click()
    tab.see("It is at partition 0, offset 0.")
    page.get_by_label("Value is").select_option("tombstone")
    page.get_by_role("button", name="Produce", exact=True).click()
    tab.see("It is at partition 0, offset 1.")
    found = served.http.get(f"/api/topics/{topic}/messages?from=start").text
    assert '"id":12345678901234567890' in found
    told = json.loads(found)["messages"]
    assert [one["value"]["encoding"] for one in told] == ["json", "null"]
    assert (told[0]["key"]["value"], told[0]["headers"]) == ("k", [["source", "console"]])


def test_the_live_tail_survives_a_flood(tab: Tab, served: Served) -> None:
    topic = served.topic(2)
    page = tab.open(f"/console/topics/{topic}/messages?live=true")
    tab.see("Waiting for messages.")
    expect(page.locator(".status .badge").first).to_have_text("live")
    producer = Producer({"bootstrap.servers": served.broker.bootstrap_servers, "linger.ms": 5})
    ends = threading.Event()
    sent = 0

    def flood() -> None:
        nonlocal sent
        while not ends.is_set():
            try:
                producer.produce(topic, b'{"n": %d, "text": "%s"}' % (sent, b"x" * 80))
                sent += 1
            except BufferError:
                producer.poll(0.05)
            if sent % 1000 == 0:
                producer.poll(0)

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        expect(page.locator("tr[data-row]")).to_have_count(200)
        tab.see("this is a sample of them")
        slowest = 0.0
        until = time.monotonic() + 4
        while time.monotonic() < until:
            started = time.monotonic()
            assert page.locator("tr[data-row]").count() <= 200
            slowest = max(slowest, time.monotonic() - started)
        assert slowest < 1.5, "the page hangs"
        # To look at one is to pause.
        page.evaluate("document.querySelectorAll('tr[data-row]')[3].click()")
        expect(page.locator("tr.detail")).to_have_count(1)
        tab.see("new since the pause")
        before = page.locator("tr[data-row]").first.inner_text()
        tab.see("paused")
        assert page.locator("tr[data-row]").first.inner_text() == before
        page.get_by_role("button", name="Go on").click()
        expect(page.locator("tr[data-row]").first).not_to_have_text(before)
    finally:
        ends.set()
        thread.join()
        producer.flush(30)
    assert sent > 20_000


def test_a_live_tail_shows_what_passes_its_filter_newest_first(tab: Tab, served: Served) -> None:
    topic = served.topic()
    page = tab.open(f"/console/topics/{topic}/messages?live=true&filter={quote('value.n >= 2')}")
    expect(page.locator(".status .badge").first).to_have_text("live")
    served.fill(topic, [{"n": number} for number in range(4)])
    rows = page.locator("tr[data-row]")
    expect(rows).to_have_count(2)
    assert ['{"n":3}' in rows.first.inner_text(), '{"n":2}' in rows.last.inner_text()] == [True, True]
    tab.open(f"/console/topics/{topic}/messages?live=true&filter={quote('value.n >')}")
    tab.see("The filter is not CEL")


def test_a_group_is_moved_as_its_preview_says(tab: Tab, served: Served) -> None:
    topic = served.topic()
    served.fill(topic, list(range(100)))
    group = served.group_at(topic, 60)
    page = tab.open(f"/console/groups/{quote(group)}")
    expect(page.locator("tr[data-row]").first).to_contain_text("40")
    page.get_by_role("button", name="Move offsets").click()
    expect(page.get_by_role("button", name="Move them")).to_be_hidden()
    page.get_by_role("button", name="Preview").click()
    tab.see("60 messages will be read again, 0 messages will be skipped.")
    assert served.committed(group, topic) == 60
    page.get_by_role("combobox", name="To", exact=True).select_option("shift")
    page.get_by_label("By", exact=True).fill("-10")
    expect(page.get_by_role("button", name="Move them")).to_be_hidden()
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Move them").click()
    tab.see("The offsets are moved.")
    assert served.committed(group, topic) == 50
    page.get_by_role("button", name="Move offsets").click()
    page.get_by_role("combobox", name="To", exact=True).select_option("each")
    expect(page.get_by_label(f"Offset of {topic} 0")).to_have_value("50")
    page.get_by_label(f"Offset of {topic} 0").fill("77")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Move them").click()
    wait_for(lambda: served.committed(group, topic) == 77)


def test_a_group_with_members_is_not_moved(tab: Tab, served: Served) -> None:
    topic, group = served.topic(), f"g-{uuid.uuid4().hex[:10]}"
    settings = {
        "bootstrap.servers": served.broker.bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
    }
    served.fill(topic, [1, 2, 3])
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        wait_for(lambda: consumer.poll(0.2) is not None)
        consumer.commit(asynchronous=False)
        page = tab.open(f"/console/groups/{group}")
        page.get_by_role("button", name="Move offsets").click()
        tab.see("stop its consumers first")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("button", name="Move them")).to_be_disabled()
    finally:
        consumer.close()


def test_a_schema_is_checked_before_it_is_registered_and_compared_after(tab: Tab, served: Served) -> None:
    subject = f"s-{uuid.uuid4().hex[:8]}/x-value"
    page = tab.open(f"/console/schemas/{quote(subject)}")
    tab.see("There is no such subject yet.")
    page.get_by_role("button", name="Register").first.click()
    draft = page.locator("dialog textarea")
    draft.fill(json.dumps(PAYMENT))
    page.get_by_role("button", name="Check").click()
    tab.see("It is the first version.")
    page.locator("dialog").get_by_role("button", name="Register").click()
    tab.see("Version 1")

    page.get_by_role("button", name="New version").click()
    draft.fill(json.dumps(PAYMENT | {"fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}))
    page.get_by_role("button", name="Check").click()
    tab.see("Not compatible.")
    tab.see("READER_FIELD_MISSING_DEFAULT_VALUE")
    expect(page.locator("dialog").get_by_role("button", name="Register")).to_be_hidden()
    fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "int", "default": 0}]
    draft.fill(json.dumps(PAYMENT | {"fields": fields}))
    page.get_by_role("button", name="Check").click()
    tab.see("Compatible.")
    page.locator("dialog").get_by_role("button", name="Register").click()
    tab.see("Version 2")
    page.get_by_label("Compare with").select_option("1")
    expect(page.locator(".source .added").first).to_be_visible()
    assert '"name": "n"' in " ".join(page.locator(".source .added").all_inner_texts())
    assert page.locator(".source .removed").count() == 0
    page.reload()
    expect(page.locator(".source .added").first).to_be_visible()
    assert served.http.get(f"/subjects/{quote(subject)}/versions").json() == [1, 2]


def test_differences_lead_from_one_text_to_the_other(tab: Tab) -> None:
    page = tab.open("/console/schemas")
    base = page.locator("link[rel=modulepreload][href$='registry.js']").get_attribute("href")
    script = """async ([path, before, after]) => (await import(path)).difference(before, after)"""
    long = "\n".join(str(number) for number in range(30))
    cases = [
        ("a\nb\nc", "a\nc"),
        ("", "x"),
        ("a\nb", "b\na"),
        (long, long.replace("15", "x")),
        ("a", "a"),
        ("a\na\nb", "a\nb\na"),
    ]
    for before, after in cases:
        lines = page.evaluate(script, [base, before, after])
        shown_before = [one["text"] for one in lines if one["kind"] in ("same", "removed")]
        shown_after = [one["text"] for one in lines if one["kind"] in ("same", "added")]
        skipped = sum(int(one["text"].split()[0]) for one in lines if one["kind"] == "skipped")
        assert len(shown_before) + skipped == len(before.split("\n"))
        assert len(shown_after) + skipped == len(after.split("\n"))
        if not skipped:
            assert (shown_before, shown_after) == (before.split("\n"), after.split("\n"))
    changed = page.evaluate(script, [base, *cases[3]])
    assert [one["text"] for one in changed if one["kind"] in ("removed", "added")] == ["15", "x"]
    assert len(changed) < 15


def test_a_server_that_is_away_is_told_and_then_forgotten(tab: Tab) -> None:
    page = tab.open("/console/brokers")
    tab.see("Partitions that need attention")
    page.route("**/api/**", lambda route: route.abort())
    page.keyboard.press("r")
    tab.see("The server does not answer.")
    tab.see("What is shown below is from before.")
    page.unroute("**/api/**")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator("main .notice.critical").first).to_be_hidden()


def test_a_problem_links_to_what_has_it(tab: Tab, served: Served) -> None:
    topic = served.topic()
    overview = served.http.get("/api/overview").json()
    overview["problems"] = [
        {"severity": "critical", "what": f"{topic}: no leader for [0]", "link": f"/api/topics/{topic}"}
    ]
    tab.page.route("**/api/overview", lambda route: route.fulfill(json=overview))
    page = tab.open("/console/")
    page.get_by_role("link", name=f"{topic}: no leader for [0]").click()
    page.wait_for_url(f"**/console/topics/{topic}")
    tab.see("with all replicas")
