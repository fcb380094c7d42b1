"""The routes of the console: pages and assets, all of them read once and served from memory.

A page knows nothing of the cluster: its script asks the public API and fills it. So pages are the same bytes for
everybody, and the policy that they are sent with allows nothing but what this server has: no inline script, no style
attribute, no other host.
"""

import hashlib
import html
import re
from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain"}
_UPLOT = "vendor/uplot-1.6.32"
_IMPORT = re.compile(r'^import [^"]*"\./([^"]+)";', re.MULTILINE)


class Page(NamedTuple):
    """`name` is that of its file and of its script; `section` the entry of the navigation that it belongs to."""

    name: str
    path: str
    title: str
    section: str
    has_charts: bool = False


class Section(NamedTuple):
    name: str
    path: str
    key: str


# The navigation. `key` is what follows g on the keyboard.
SECTIONS = (
    Section("Overview", "/console/", "o"),
    Section("Topics", "/console/topics", "t"),
    Section("Groups", "/console/groups", "g"),
    Section("Schemas", "/console/schemas", "s"),
    Section("Brokers", "/console/brokers", "b"),
    Section("Transactions", "/console/transactions", "x"),
    Section("Settings", "/console/settings", "e"),
)

# Names of groups and subjects may have slashes in them.
PAGES = (
    Page("overview", "/console/", "Overview", "Overview", has_charts=True),
    Page("topics", "/console/topics", "Topics", "Topics"),
    Page("messages", "/console/topics/{topic}/messages", "Messages", "Topics"),
    Page("topic", "/console/topics/{topic}", "Topic", "Topics"),
    Page("groups", "/console/groups", "Groups", "Groups"),
    Page("group", "/console/groups/{group:path}", "Group", "Groups", has_charts=True),
    Page("schemas", "/console/schemas", "Schemas", "Schemas"),
    Page("schema", "/console/schemas/{subject:path}", "Schema", "Schemas"),
    Page("brokers", "/console/brokers", "Brokers", "Brokers"),
    Page("broker", "/console/brokers/{broker}", "Broker", "Brokers"),
    Page("transactions", "/console/transactions", "Transactions", "Transactions"),
    Page("settings", "/console/settings", "Settings", "Settings"),
)


@cache
def assets() -> dict[str, bytes]:
    """By their path under assets/."""
    root = files(__package__).joinpath("assets")
    found = {one.name: one.read_bytes() for one in root.iterdir() if one.is_file()}
    vendored = root.joinpath("vendor")
    return found | {f"vendor/{one.name}": one.read_bytes() for one in vendored.iterdir() if one.is_file()}


@cache
def assets_path() -> str:
    """Changes when any of them does."""
    digest = hashlib.sha256()
    for name, data in sorted(assets().items()):
        digest.update(name.encode() + b"\0" + data)
    return f"/console/assets/{digest.hexdigest()[:12]}"


def modules_of(page: Page) -> list[str]:
    """The page's script and all that it imports, each once."""
    found: list[str] = []
    left = [f"{page.name}.js"]
    while left:
        name = left.pop()
        if name not in found:
            found.append(name)
            left += _IMPORT.findall(assets()[name].decode()) if "/" not in name else []
    return found


def assets_of(page: Page) -> list[str]:
    """What the browser loads for a page, besides the page."""
    names = ["theme.js", "style.css", "icon.svg", *modules_of(page)]
    return [*names, f"{_UPLOT}.js", f"{_UPLOT}.css"] if page.has_charts else names


def page_html(page: Page) -> bytes:
    here = files(__package__)
    base = assets_path()
    lines = [f'<link rel="icon" href="{base}/icon.svg" type="image/svg+xml">']
    for name in assets_of(page):
        if name.endswith(".css"):
            lines.append(f'<link rel="stylesheet" href="{base}/{name}">')
    # Before the first paint, so that a dark page does not flash.
    lines.append(f'<script src="{base}/theme.js"></script>')
    if page.has_charts:
        lines.append(f'<script defer src="{base}/{_UPLOT}.js"></script>')
    # All at once, not one after the other as imports are found.
    lines += [f'<link rel="modulepreload" href="{base}/{name}">' for name in modules_of(page)]
    lines.append(f'<script type="module" src="{base}/{page.name}.js"></script>')
    text = here.joinpath("shell.html").read_text()
    fragments = {one.name.removesuffix(".html"): one.read_text() for one in here.joinpath("fragments").iterdir()}
    for name, filling in {
        "title": html.escape(page.title),
        "assets": "\n".join(lines),
        "navigation": _navigation(page),
        "page": here.joinpath("pages", f"{page.name}.html").read_text(),
        **fragments,
    }.items():
        text = text.replace(f"<!-- {name} -->", filling)
    return text.encode()


def _navigation(page: Page) -> str:
    lines = []
    for one in SECTIONS:
        current = ' aria-current="page"' if one.name == page.section else ""
        lines.append(f'<a href="{one.path}" data-go="{one.key}"{current}>{one.name}</a>')
    return "\n".join(lines)


def routes() -> list[BaseRoute]:
    found: list[BaseRoute] = [Route("/console/assets/{digest}/{name:path}", _asset, include_in_schema=False)]
    return found + [Route(one.path, _serving(one), include_in_schema=False) for one in PAGES]


def _serving(page: Page) -> Callable[[Request], Awaitable[Response]]:
    body = page_html(page)
    headers = {
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "cache-control": "no-cache",
        "etag": f'"{hashlib.sha256(body).hexdigest()[:16]}"',
    }

    async def serve(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["etag"]:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="text/html")

    return serve


async def _asset(request: Request) -> Response:
    """Of another version too: a page that was open while the server was renewed still finds its files."""
    name = request.path_params["name"]
    data = assets().get(name)
    if data is None:
        raise HTTPException(404)
    is_current = request.url.path.startswith(assets_path() + "/")
    headers = {"cache-control": "public, max-age=31536000, immutable" if is_current else "no-cache"}
    return Response(data, headers=headers, media_type=_MEDIA_TYPES["." + name.rpartition(".")[2]])
