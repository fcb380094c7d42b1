"""The schema registry, as Confluent's clients know it, on the compacted topic `_schemas`.

Cores, without I/O: `formats` (what a schema says), `compatibility` (whether one may follow another), `store` (what is
registered, by replaying records), and the decisions `registering`, `deleting`, `settings`. Shells: `topic`, `election`
and `forwarding` towards the cluster and other registries, `routes` towards HTTP.
"""

from penstock.http.registry.registry import Registry
from penstock.http.registry.routes import root_route, routes

__all__ = ["Registry", "root_route", "routes"]
