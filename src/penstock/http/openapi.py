"""/openapi.json and /openapi: what this server serves, made from its routes and a few words about each.

The page is one file with its style in it: it needs no other server, no script and no network.
"""

import html
import inspect
import json
import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from penstock.http.bodies import Json
from penstock.http.operations import OPERATIONS, SCHEMAS, TAGS, Operation

_ERROR = {"$ref": "#/components/schemas/Error"}
_JSON = "application/json"
# What Starlette may have behind a parameter's name; OpenAPI has no such thing.
_CONVERTOR = re.compile(r":\w+\}")


def specification(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if not isinstance(route, Route) or not route.include_in_schema:
            continue
        for method in sorted((route.methods or set()) - {"HEAD"}):
            paths.setdefault(_CONVERTOR.sub("}", route.path), {})[method.lower()] = _operation(route, method)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": version("penstock"),
            "description": "Messages, consumers, administration, schemas and metrics of a Penstock or Kafka cluster.",
        },
        "tags": [{"name": name, "description": meaning} for name, (meaning, _) in TAGS.items()],
        "paths": paths,
        "components": {"schemas": SCHEMAS},
    }


def _operation(route: Route, method: str) -> dict[str, Any]:
    known = OPERATIONS.get((method, route.path), Operation(_first_line(route.endpoint) or _words(route)))
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in route.param_convertors
    ]
    parameters += [
        {"name": name, "in": place, "description": meaning, "schema": {"type": kind}}
        for place, name, kind, meaning in known.parameters
    ]
    answer: dict[str, Any] = {"description": "Done."}
    if known.answer:
        answer["content"] = {known.answer_type: {"schema": _reference(known.answer)}}
    operation: dict[str, Any] = {
        "tags": [_tag(route.path)],
        "summary": known.summary,
        "parameters": parameters,
        "responses": {
            str(known.status): answer,
            "4XX": {"description": "Refused.", "content": {_JSON: {"schema": _ERROR}}},
        },
    }
    if known.body:
        operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _reference(known.body)}}}
    return operation


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"} if name in SCHEMAS else {"type": name}


def _tag(path: str) -> str:
    for name, (_, prefixes) in TAGS.items():
        if path.startswith(prefixes):
            return name
    return "server"


def _first_line(endpoint: Any) -> str:
    written = inspect.getdoc(endpoint) or ""
    return written.partition("\n")[0].rstrip(".") if inspect.isfunction(endpoint) else ""


def _words(route: Route) -> str:
    return route.name.replace("_", " ")


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 small { font-weight: normal; opacity: .6; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
details { border: 1px solid var(--line); border-radius: 6px; margin: .4rem 0; }
summary { cursor: pointer; padding: .4rem .7rem; } details[open] summary { border-bottom: 1px solid var(--line); }
details > div { padding: .5rem .9rem; } code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: var(--soft); padding: .6rem; overflow-x: auto; border-radius: 4px; }
b { display: inline-block; min-width: 4.2em; font: 600 12px ui-monospace, monospace; }
table { border-collapse: collapse; } td { padding: .15rem .8rem .15rem 0; vertical-align: top; }
"""


def page(spec: dict[str, Any]) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Penstock HTTP API</title><style>{_STYLE}</style>",
        f"<h1>Penstock HTTP API <small>{html.escape(spec['info']['version'])}</small></h1>",
        f"<p>{html.escape(spec['info']['description'])} <a href=openapi.json>openapi.json</a></p>",
        "<p>Errors are <code>{error_code, message, what_to_do}</code> with a status of 4xx or 5xx.</p>",
    ]
    for tag in spec["tags"]:
        operations = [
            (path, method, operation)
            for path, methods in spec["paths"].items()
            for method, operation in methods.items()
            if operation["tags"] == [tag["name"]]
        ]
        if operations:
            parts.append(f"<h2>{html.escape(tag['name'])}</h2><p>{html.escape(tag['description'])}</p>")
            parts += [_shown(spec, *one) for one in operations]
    return "".join(parts)


def _shown(spec: dict[str, Any], path: str, method: str, operation: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{html.escape(one['name'])}</code><td>{one['in']}<td>{html.escape(one.get('description', ''))}"
        for one in operation["parameters"]
    )
    parts = [f"<table>{rows}</table>" if rows else ""]
    body = operation.get("requestBody", {}).get("content", {}).get(_JSON, {}).get("schema")
    if body:
        parts.append(f"<p>Body</p><pre>{_shape(spec, body)}</pre>")
    for status, answer in operation["responses"].items():
        for content in answer.get("content", {}).values() if status != "4XX" else ():
            parts.append(f"<p>Answer, {status}</p><pre>{_shape(spec, content['schema'])}</pre>")
    return (
        f"<details><summary><b>{method.upper()}</b><code>{html.escape(path)}</code> &nbsp; "
        f"{html.escape(operation['summary'])}</summary><div>{''.join(parts)}</div></details>"
    )


def _shape(spec: dict[str, Any], schema: dict[str, Any]) -> str:
    name = schema.get("$ref", "").rpartition("/")[2]
    shape = spec["components"]["schemas"][name] if name else schema
    return html.escape(json.dumps(shape, indent=1))


def openapi_routes(routes: Iterable[BaseRoute]) -> list[Route]:
    """For all the routes given, and their own."""
    everything = list(routes)

    async def as_json(request: Request) -> Response:
        return Json(specification(everything))

    async def as_page(request: Request) -> Response:
        headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return Response(page(specification(everything)), media_type="text/html; charset=utf-8", headers=headers)

    own = [Route("/openapi.json", as_json, methods=["GET"]), Route("/openapi", as_page, methods=["GET"])]
    everything += own
    return own
