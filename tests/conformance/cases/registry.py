"""A case asks a broker some questions and returns its answers, made comparable."""

from collections.abc import Callable
from typing import Any

from tests.conformance.cluster import Cluster

Case = Callable[[Cluster], Any]

CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    assert function.__name__ not in CASES
    CASES[function.__name__] = function
    return function
