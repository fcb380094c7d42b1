"""Every path of the registry, once. Subjects may have slashes in them, so longer paths come before shorter ones."""

from starlette.routing import BaseRoute, Route

from penstock.http.registry import api_schemas, api_settings, api_subjects
from penstock.http.registry.api_schemas import SchemaById
from penstock.http.registry.calls import Handler, endpoint
from penstock.http.registry.registry import Registry

# Method, path, handler. A registration finds out by itself whether it has to change anything.
_READS: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/schemas/ids/{id}/schema", api_schemas.get_schema_text),
    ("GET", "/schemas/ids/{id}/subjects", api_schemas.get_subjects),
    ("GET", "/schemas/ids/{id}/versions", api_schemas.get_versions),
    ("GET", "/schemas/guids/{guid}/ids", api_schemas.get_ids_by_guid),
    ("GET", "/schemas/guids/{guid}", api_schemas.get_by_guid),
    ("GET", "/schemas/types", api_schemas.list_types),
    ("GET", "/schemas", api_schemas.list_schemas),
    ("POST", "/compatibility/subjects/{subject:path}/versions/{version}", api_subjects.check_version),
    ("POST", "/compatibility/subjects/{subject:path}/versions", api_subjects.check_subject),
    ("GET", "/subjects/{subject:path}/versions/{version}/schema", api_subjects.get_version_schema),
    ("GET", "/subjects/{subject:path}/versions/{version}/referencedby", api_subjects.referenced_by),
    ("GET", "/subjects/{subject:path}/versions/{version}", api_subjects.get_version),
    ("GET", "/subjects/{subject:path}/versions", api_subjects.list_versions),
    ("POST", "/subjects/{subject:path}/versions", api_subjects.register),
    ("GET", "/subjects/{subject:path}/metadata", api_subjects.latest_with_metadata),
    ("POST", "/subjects/{subject:path}", api_subjects.look_up),
    ("GET", "/subjects", api_subjects.list_subjects),
    ("GET", "/config/{subject:path}", api_settings.get_config),
    ("GET", "/config", api_settings.get_config),
    ("GET", "/mode/{subject:path}", api_settings.get_mode),
    ("GET", "/mode", api_settings.get_mode),
)
_CHANGES: tuple[tuple[str, str, Handler], ...] = (
    ("DELETE", "/subjects/{subject:path}/versions/{version}", api_subjects.delete_version),
    ("DELETE", "/subjects/{subject:path}", api_subjects.delete_subject),
    ("PUT", "/config/{subject:path}", api_settings.put_config),
    ("PUT", "/config", api_settings.put_config),
    ("DELETE", "/config/{subject:path}", api_settings.delete_config),
    ("DELETE", "/config", api_settings.delete_config),
    ("PUT", "/mode/{subject:path}", api_settings.put_mode),
    ("PUT", "/mode", api_settings.put_mode),
    ("DELETE", "/mode/{subject:path}", api_settings.delete_mode),
    ("DELETE", "/mode", api_settings.delete_mode),
)


def routes(registry: Registry) -> list[BaseRoute]:
    """All of them at the top, and under `/contexts/{context}` for one context; `/` is left to who mounts them."""
    by_id = SchemaById(registry)
    found: list[BaseRoute] = []
    for prefix in ("", "/contexts/{context}"):
        found.append(Route(prefix + "/schemas/ids/{id}", by_id, methods=["GET"]))
        for method, path, handler in _READS:
            found.append(Route(prefix + path, endpoint(registry, handler, is_change=False), methods=[method]))
        for method, path, handler in _CHANGES:
            found.append(Route(prefix + path, endpoint(registry, handler, is_change=True), methods=[method]))
    contexts: tuple[tuple[str, str, Handler, bool], ...] = (
        ("GET", "/contexts", api_settings.list_contexts, False),
        ("DELETE", "/contexts/{context}", api_settings.delete_context, True),
        ("GET", "/v1/metadata/id", api_settings.get_cluster_id, False),
        ("GET", "/v1/metadata/version", api_settings.get_version, False),
    )
    for method, path, handler, is_change in contexts:
        found.append(Route(path, endpoint(registry, handler, is_change=is_change), methods=[method]))
    return found


def root_route(registry: Registry) -> Route:
    """GET and POST of `/`, by which clients see that a registry is there."""
    return Route("/", endpoint(registry, api_settings.get_root, is_change=False), methods=["GET", "POST"])
