"""The OpenAPI page tells what is served, all of it and nothing else."""

import json
import re

from starlette.routing import Route

from penstock.http.app import make_app
from penstock.http.openapi import page, specification
from penstock.http.operations import OPERATIONS, TAGS
from penstock.http.options import HttpOptions


def served_routes() -> list[Route]:
    gate = make_app(HttpOptions("127.0.0.1:1"))
    return [route for route in gate.routes if isinstance(route, Route)]


def test_every_operation_that_is_described_is_served() -> None:
    served = {(method, route.path) for route in served_routes() for method in route.methods or ()}
    assert set(OPERATIONS) <= served


def test_every_route_has_a_summary_and_a_tag() -> None:
    spec = specification(served_routes())
    tags = set(TAGS)
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], f"{method} {path}"
            assert set(operation["tags"]) <= tags


def test_paths_have_parameters_as_openapi_writes_them() -> None:
    for path, methods in specification(served_routes())["paths"].items():
        named = set(re.findall(r"\{(\w+)\}", path))
        assert not re.search(r"[{}]", re.sub(r"\{\w+\}", "", path)), path
        for operation in methods.values():
            assert {one["name"] for one in operation["parameters"] if one["in"] == "path"} == named


def test_references_lead_to_schemas() -> None:
    spec = specification(served_routes())
    text = json.dumps(spec)
    for name in {piece.partition('"')[0] for piece in text.split("#/components/schemas/")[1:]}:
        assert name in spec["components"]["schemas"]


def test_the_page_asks_no_other_server_and_runs_no_script() -> None:
    text = page(specification(served_routes()))
    assert "/topics/{topic}/messages" in text
    for word in ("http://", "https://", "<script", "<link", "@import"):
        assert word not in text
    assert len(text) < 200_000
