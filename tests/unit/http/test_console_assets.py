"""The console's files: small, whole, with nothing from elsewhere, under a policy that allows nothing else."""

import re

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from penstock.http.console import routes
from penstock.http.console.pages import (
    CONTENT_SECURITY_POLICY,
    PAGES,
    SECTIONS,
    Page,
    assets,
    assets_of,
    assets_path,
    modules_of,
    page_html,
)

PAGE_BYTES_MAX = 200_000
OWN_SCRIPTS = {name: data.decode() for name, data in assets().items() if name.endswith(".js") and "/" not in name}
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=routes()))


def path_of(page: Page) -> str:
    return re.sub(r"\{\w+(:path)?\}", "name", page.path)


@each_page
def test_a_page_with_all_it_loads_is_small(page: Page) -> None:
    size = len(page_html(page)) + sum(len(assets()[name]) for name in assets_of(page))
    assert size < PAGE_BYTES_MAX, f"{page.name}: {size}"


@each_page
def test_a_page_names_only_files_that_are_there(page: Page) -> None:
    text = page_html(page).decode()
    named = set(re.findall(rf'(?:src|href)="{assets_path()}/([^"]+)"', text))
    assert named <= assets().keys()
    assert f"{page.name}.js" in named
    assert named == set(assets_of(page)), "what is counted is what is loaded"


@each_page
def test_a_page_is_filled_in(page: Page) -> None:
    assert "<!-- " not in page_html(page).decode()


@each_page
def test_a_page_has_nothing_that_the_policy_would_refuse(page: Page) -> None:
    text = page_html(page).decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:|x-html", text) == []


@each_page
def test_a_page_and_its_assets_ask_no_other_host(page: Page) -> None:
    assert re.findall(r'(?:src|href|action)="(?:https?:)?//[^"]*', page_html(page).decode()) == []
    for name in assets_of(page):
        if name.startswith("vendor/"):
            continue
        text = assets()[name].decode().replace("http://www.w3.org/2000/svg", "")
        assert re.findall(r"https?://|//[a-z]+\.[a-z]+/|@import|url\(", text) == [], name


def test_scripts_make_no_markup_and_no_code_of_text() -> None:
    for name, text in OWN_SCRIPTS.items():
        assert (
            re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []
        ), name


def test_every_script_belongs_to_a_page() -> None:
    used = {"theme.js"}.union(*(modules_of(page) for page in PAGES))
    assert used >= OWN_SCRIPTS.keys()


def test_what_others_made_is_here_with_its_licence() -> None:
    licences = assets()["vendor/LICENSES.txt"].decode()
    for name in assets():
        if name.startswith("vendor/") and name.endswith(".js"):
            assert name.removeprefix("vendor/") in licences
    assert "Permission is hereby granted" in licences


@each_page
def test_a_page_is_served_under_the_policy_and_asked_about_each_time(page: Page, client: TestClient) -> None:
    answer = client.get(path_of(page))
    assert answer.status_code == 200
    assert answer.content == page_html(page)
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["cache-control"] == "no-cache"
    again = client.get(path_of(page), headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_the_policy_allows_this_server_only() -> None:
    rules = dict(one.strip().split(" ", 1) for one in CONTENT_SECURITY_POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert set(rules.values()) == {"'none'", "'self'"}


def test_an_asset_may_be_kept_for_ever_under_the_path_of_its_version(client: TestClient) -> None:
    for name, data in assets().items():
        answer = client.get(f"{assets_path()}/{name}")
        assert (answer.status_code, answer.content) == (200, data)
        assert "immutable" in answer.headers["cache-control"]
    assert client.get(f"{assets_path()}/core.js").headers["content-type"].startswith("text/javascript")


def test_an_asset_of_another_version_is_not_kept(client: TestClient) -> None:
    answer = client.get("/console/assets/000000000000/core.js")
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "name", ["nope.js", "../pages.py", "..%2fpages.py", "%2e%2e/pages.py", "/etc/passwd", "vendor", ""]
)
def test_nothing_but_the_assets_is_served(client: TestClient, name: str) -> None:
    assert client.get(f"{assets_path()}/{name}").status_code == 404


def test_the_navigation_leads_to_pages_and_each_has_a_key_of_its_own(client: TestClient) -> None:
    assert len({one.key for one in SECTIONS}) == len(SECTIONS)
    help_text = page_html(PAGES[0]).decode().partition('id="help"')[2]
    for one in SECTIONS:
        assert client.get(one.path).status_code == 200
        assert f"<kbd>g</kbd> <kbd>{one.key}</kbd></dt><dd>{one.name.lower()}</dd>" in help_text
    assert {page.section for page in PAGES} == {one.name for one in SECTIONS}


def test_a_group_or_subject_with_slashes_has_its_page(client: TestClient) -> None:
    for path in ("/console/groups/nightly/export", "/console/schemas/a%2Fb%2Fc-value"):
        assert client.get(path).status_code == 200
