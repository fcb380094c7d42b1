"""The store is its records: replayed, it is what it was, and an id means one schema for ever."""

import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.http.registry import deleting, errors, registering, subjects
from penstock.http.registry import settings as levels
from penstock.http.registry.records import (
    ClearSubjectKey,
    ConfigKey,
    ContextKey,
    DeletedUpTo,
    DeleteSubjectKey,
    Key,
    ModeKey,
    NoopKey,
    Record,
    SchemaKey,
    StoredSchema,
    decode,
    encode,
    make_schema,
)
from penstock.http.registry.schemas import SchemaRequest, Schemas
from penstock.http.registry.store import Store

SUBJECTS = ["a", "b", ":.ctx:a", ":.ctx:c"]
TEXTS = ['"string"', '"int"', '"long"', '{"type":"array","items":"int"}']


class Machine:
    """Decides, writes its records to a log, and replays them, as the registry does."""

    def __init__(self) -> None:
        self.store = Store()
        self.schemas = Schemas(self.store)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.text_of_id: dict[tuple[str, int], str] = {}

    def run(self, decision: tuple[list[Record], Any]) -> None:
        for record in decision[0]:
            encoded = encode(record)
            self.log.append(encoded)
            decoded = decode(*encoded, timestamp_ms=0)
            assert decoded == record
            self.store.replay(decoded)

    def perform(self, operation: tuple[Any, ...]) -> None:
        kind, subject, *rest = operation
        with contextlib.suppress(errors.RegistryError):
            if kind == "register":
                request = SchemaRequest(schema=rest[0])
                self.run(registering.register(self.store, self.schemas, subject, request, is_normalized=False))
            elif kind == "delete version":
                self.run(deleting.delete_version(self.store, subject, rest[0], is_permanent=rest[1]))
            elif kind == "delete subject":
                self.run(deleting.delete_subject(self.store, subject, is_permanent=rest[0]))
            elif kind == "level":
                self.run(levels.set_config(self.store, subject, {"compatibilityLevel": rest[0]}))
            else:
                self.run(levels.set_mode(self.store, subject, rest[0], is_forced=False))

    def check_ids(self) -> None:
        for subject in self.store.subjects(with_deleted=True):
            context = subjects.context_of(subject)
            for schema in self.store.versions(subject, with_deleted=True):
                assert self.text_of_id.setdefault((context, schema.id), schema.schema) == schema.schema
                assert self.store.by_id(schema.id, context) is not None


def operations() -> st.SearchStrategy[tuple[Any, ...]]:
    subject = st.sampled_from(SUBJECTS)
    return st.one_of(
        st.tuples(st.just("register"), subject, st.sampled_from(TEXTS)),
        st.tuples(st.just("delete version"), subject, st.sampled_from([-1, 1, 2, 3]), st.booleans()),
        st.tuples(st.just("delete subject"), subject, st.booleans()),
        st.tuples(st.just("level"), subject | st.none(), st.sampled_from(["NONE", "BACKWARD", "FULL"])),
        st.tuples(st.just("mode"), subject | st.none(), st.sampled_from(["READWRITE", "READONLY", None])),
    )


def shown(store: Store) -> dict[str, Any]:
    """What clients can see."""
    names = sorted(store.subjects(with_deleted=True))
    versions = {name: store.versions(name, with_deleted=True) for name in names}
    return {
        "versions": versions,
        "configs": store.configs,
        "modes": store.modes,
        "contexts": store.contexts(),
        "ids": {
            (context, schema.id): sorted(
                (item.subject, item.version) for item in store.versions_with_id(schema.id, context)
            )
            for context in store.contexts()
            for schemas in versions.values()
            for schema in schemas
        },
        "latest": {name: store.version(name, -1) for name in names},
    }


def replayed(log: list[tuple[bytes, bytes | None]]) -> Store:
    store = Store()
    for key, value in log:
        record = decode(key, value, timestamp_ms=0)
        assert record is not None
        store.replay(record)
    return store


def compacted(log: list[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    """The last record of each key, where it stood; tombstones last for a while."""
    last = {key: position for position, (key, _) in enumerate(log)}
    return [item for position, item in enumerate(log) if last[item[0]] == position]


@given(st.lists(operations(), max_size=25))
@settings(max_examples=300, deadline=None)
def test_a_store_replayed_from_its_log_is_the_live_one(wanted: list[tuple[Any, ...]]) -> None:
    machine = Machine()
    for operation in wanted:
        machine.perform(operation)
    assert shown(replayed(machine.log)) == shown(machine.store)


@given(st.lists(operations(), max_size=25))
@settings(max_examples=300, deadline=None)
def test_a_store_replayed_from_its_compacted_log_shows_the_same(wanted: list[tuple[Any, ...]]) -> None:
    machine = Machine()
    for operation in wanted:
        machine.perform(operation)
    assert shown(replayed(compacted(machine.log))) == shown(machine.store)


@given(st.lists(operations(), max_size=40))
@settings(max_examples=300, deadline=None)
def test_an_id_means_one_schema_whatever_happens(wanted: list[tuple[Any, ...]]) -> None:
    machine = Machine()
    for operation in wanted:
        machine.perform(operation)
        machine.check_ids()


def test_a_record_that_gives_a_taken_id_to_another_schema_is_passed_over() -> None:
    store = Store()
    store.replay(Record(SchemaKey("a", 1), make_schema("a", 1, 1, "AVRO", '"int"')))
    store.replay(Record(SchemaKey("b", 1), make_schema("b", 1, 1, "AVRO", '"long"')))
    assert store.version("b", 1) is None
    found = store.by_id(1, ".")
    assert found is not None
    assert found.schema == '"int"'


def test_keys_are_written_as_confluent_writes_them() -> None:
    keys: list[tuple[Key, bytes]] = [
        (SchemaKey("s", 2), b'{"keytype":"SCHEMA","subject":"s","version":2,"magic":1}'),
        (ConfigKey("s"), b'{"keytype":"CONFIG","subject":"s","magic":0}'),
        (ConfigKey(None), b'{"keytype":"CONFIG","magic":0}'),
        (ModeKey("s"), b'{"keytype":"MODE","subject":"s","magic":0}'),
        (DeleteSubjectKey("s"), b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
        (ClearSubjectKey("s"), b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}'),
        (ContextKey(".c"), b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}'),
        (NoopKey(), b'{"keytype":"NOOP","magic":0}'),
    ]
    for key, expected in keys:
        assert encode(Record(key, None)) == (expected, None)


def test_values_that_confluent_wrote_are_understood() -> None:
    """With and without what later versions of it added."""
    key = b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}'
    old = b'{"subject":"s","version":1,"id":7,"schema":"\\"string\\"","deleted":false}'
    record = decode(key, old, timestamp_ms=5)
    assert record is not None
    stored = record.value
    assert isinstance(stored, StoredSchema)
    assert (stored.id, stored.schema_type, stored.schema, stored.timestamp_ms) == (7, "AVRO", '"string"', 5)
    # Confluent's hash of a schema without references is the MD5 of its text.
    assert stored.guid == "095d71cf-1255-6b9d-5e33-0ad575b3df5d"
    newer = json.loads(old) | {"md5": "AAAAAAAAAAAAAAAAAAAAAA==", "schemaType": "AVRO", "offset": 3, "unknown": {}}
    again = decode(key, json.dumps(newer).encode(), timestamp_ms=5)
    assert again is not None
    assert isinstance(again.value, StoredSchema)
    assert again.value.guid == "00000000-0000-0000-0000-000000000000"
    deletion = decode(b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"subject":"s","version":1}', 0)
    assert deletion == Record(DeleteSubjectKey("s"), DeletedUpTo(1))
    assert decode(b'{"keytype":"ASSOC","tenant":"default"}', b"{}", 0) is None


def test_a_top_level_setting_that_old_registries_wrote_with_a_null_subject_is_the_top_level_one() -> None:
    record = decode(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FULL"}', 0)
    assert record is not None
    store = Store()
    store.replay(record)
    assert levels.config_of(store, "any")["compatibilityLevel"] == "FULL"
