"""What the registry lets people register, find and delete, and with which code it refuses the rest."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock.http.registry import deleting, errors, registering, settings
from penstock.http.registry.formats import Reference
from penstock.http.registry.metadata import checked_rule_set
from penstock.http.registry.records import Record, StoredSchema
from penstock.http.registry.schemas import SchemaRequest, Schemas
from penstock.http.registry.store import Store


def record_schema(*names: str, default: bool = False) -> str:
    fields = [{"name": name, "type": "string", **({"default": ""} if default else {})} for name in names]
    return json.dumps({"type": "record", "name": "U", "fields": fields})


class Book:
    """A registry without a cluster."""

    def __init__(self) -> None:
        self.store = Store()
        self.schemas = Schemas(self.store)

    def run(self, decision: tuple[list[Record], Any]) -> Any:
        for record in decision[0]:
            self.store.replay(record)
        return decision[1]

    def register(self, subject: str, schema: str, **more: Any) -> StoredSchema:
        is_normalized = more.pop("is_normalized", False)
        is_forced = more.pop("is_forced", False)
        request = SchemaRequest(schema=schema, **more)
        found = registering.find_registered(self.store, self.schemas, subject, request, is_normalized=is_normalized)
        if found is not None:
            return found
        decision = registering.register(
            self.store, self.schemas, subject, request, is_normalized=is_normalized, is_forced=is_forced
        )
        registered: StoredSchema = self.run(decision)
        return registered

    def look_up(self, subject: str, schema: str, **more: Any) -> StoredSchema | None:
        with_deleted, is_normalized = more.pop("with_deleted", False), more.pop("is_normalized", False)
        return registering.look_up(
            self.store,
            self.schemas,
            subject,
            SchemaRequest(schema=schema, **more),
            is_normalized=is_normalized,
            with_deleted=with_deleted,
        )

    def delete(self, subject: str, version: int | None = None, *, is_permanent: bool = False) -> Any:
        if version is None:
            return self.run(deleting.delete_subject(self.store, subject, is_permanent=is_permanent))
        return self.run(deleting.delete_version(self.store, subject, version, is_permanent=is_permanent))

    def set_level(self, subject: str | None, **config: Any) -> None:
        self.run(settings.set_config(self.store, subject, settings.checked_config(config)))

    def set_mode(self, subject: str | None, mode: str, *, is_forced: bool = False) -> None:
        self.run(settings.set_mode(self.store, subject, mode, is_forced=is_forced))


@pytest.fixture
def book() -> Book:
    return Book()


def code_of(action: Callable[[], Any]) -> int:
    with pytest.raises(errors.RegistryError) as caught:
        action()
    return caught.value.code


def test_a_schema_has_one_id_in_all_subjects_and_one_version_in_each(book: Book) -> None:
    first = book.register("a", '"string"')
    assert (first.id, first.version) == (1, 1)
    assert book.register("a", '"string"') == first
    other = book.register("b", '"string"')
    assert (other.id, other.version) == (1, 1)
    assert book.register("b", '"bytes"').id == 2


def test_how_a_schema_is_written_does_not_matter(book: Book) -> None:
    first = book.register("a", '{"type": "record",  "name": "n.R", "fields": []}')
    assert first.schema == '{"type":"record","name":"R","namespace":"n","fields":[]}'
    assert book.register("a", '{"name":"R","namespace":"n","fields":[],"type":"record"}') == first


def test_normalised_a_schema_is_the_same_in_other_orders(book: Book) -> None:
    first = book.register("a", '{"type":"string","z":1,"b":{"d":1,"c":2}}', is_normalized=True)
    assert first.schema == '{"type":"string","b":{"c":2,"d":1},"z":1}'
    assert book.register("a", '{"type":"string","b":{"d":1,"c":2},"z":1}', is_normalized=True) == first
    assert book.look_up("a", '{"type":"string","z":1,"b":{"c":2,"d":1}}', is_normalized=True) == first
    assert book.look_up("a", '{"type":"string","z":1,"b":{"c":2,"d":1}}') is None


def test_an_incompatible_schema_is_refused_with_the_reasons(book: Book) -> None:
    book.register("a", record_schema("x"))
    with pytest.raises(errors.RegistryError) as caught:
        book.register("a", record_schema("x", "y"))
    assert caught.value.code == 40901
    assert caught.value.status == 409
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in caught.value.message
    assert book.register("a", record_schema("x", "y"), is_forced=True).version == 2


def test_the_level_is_the_subjects_the_contexts_or_the_global_one(book: Book) -> None:
    assert settings.config_of(book.store, "a") == {"compatibilityLevel": "BACKWARD"}
    book.set_level(None, compatibility="full")
    assert settings.config_of(book.store, "a")["compatibilityLevel"] == "FULL"
    assert settings.config_of(book.store, ":.c:a")["compatibilityLevel"] == "BACKWARD"
    book.set_level(":.__GLOBAL:", compatibility="NONE")
    assert settings.config_of(book.store, ":.c:a")["compatibilityLevel"] == "NONE"
    book.set_level(":.c:", compatibility="FORWARD")
    assert settings.config_of(book.store, ":.c:a")["compatibilityLevel"] == "FORWARD"
    book.set_level("a", compatibility="BACKWARD_TRANSITIVE")
    assert settings.config_of(book.store, "a")["compatibilityLevel"] == "BACKWARD_TRANSITIVE"
    assert book.run(settings.delete_config(book.store, "a"))["compatibilityLevel"] == "BACKWARD_TRANSITIVE"
    assert settings.config_of(book.store, "a")["compatibilityLevel"] == "FULL"
    assert code_of(lambda: settings.delete_config(book.store, "a")) == 40401
    assert code_of(lambda: settings.checked_config({"compatibility": "SOMEHOW"})) == 42203


def test_a_setting_that_is_null_is_taken_back_and_the_others_stay(book: Book) -> None:
    book.set_level("a", compatibility="NONE", normalize=True, alias="b")
    book.set_level("a", normalize=None)
    assert settings.own_config(book.store, "a") == {"compatibilityLevel": "NONE", "alias": "b"}


def test_versions_of_another_compatibility_group_are_not_compared(book: Book) -> None:
    book.set_level("a", compatibilityGroup="major")
    book.register("a", record_schema("x"), metadata={"properties": {"major": "1"}})
    breaking = record_schema("y")
    assert code_of(lambda: book.register("a", breaking, metadata={"properties": {"major": "1"}})) == 40901
    assert book.register("a", breaking, metadata={"properties": {"major": "2"}}).version == 2


def test_soft_deleted_versions_are_hidden_and_their_ids_still_resolve(book: Book) -> None:
    book.set_level(None, compatibility="NONE")
    book.register("a", '"string"')
    book.register("a", '"int"')
    assert book.delete("a", 1) == 1
    assert [schema.version for schema in book.store.versions("a")] == [2]
    assert book.store.by_id(1, ".") is not None
    assert code_of(lambda: book.delete("a", 1)) == 40406
    assert code_of(lambda: book.delete("a", 2, is_permanent=True)) == 40407
    assert code_of(lambda: book.delete("a", 9)) == 40402
    assert code_of(lambda: book.delete("z", 1)) == 40401
    assert book.delete("a", 1, is_permanent=True) == 1
    assert book.store.by_id(1, ".") is None
    # Of the latest, -1.
    assert book.delete("a", -1) == 2


def test_a_subject_is_deleted_softly_and_then_for_good_with_its_settings(book: Book) -> None:
    book.register("a", '"string"')
    book.set_level("a", compatibility="NONE")
    book.register("a", '"int"')
    assert code_of(lambda: book.delete("a", is_permanent=True)) == 40405
    assert book.delete("a") == [1, 2]
    assert code_of(lambda: book.delete("a")) == 40404
    assert settings.own_config(book.store, "a") is not None
    assert book.delete("a", is_permanent=True) == [1, 2]
    assert settings.own_config(book.store, "a") is None
    assert code_of(lambda: book.delete("a")) == 40401


def test_a_schema_registered_again_after_a_soft_delete_has_its_id_and_a_new_version(book: Book) -> None:
    first = book.register("a", '"string"')
    book.delete("a")
    again = book.register("a", '"string"')
    assert (again.id, again.version) == (first.id, 2)
    assert [schema.version for schema in book.store.versions("a", with_deleted=True)] == [2]


def test_what_is_referenced_cannot_be_deleted(book: Book) -> None:
    book.register("in", '{"type":"record","name":"In","fields":[]}')
    outer = '{"type":"record","name":"Out","fields":[{"name":"i","type":"In"}]}'
    book.register("out", outer, references=(Reference("In", "in", 1),))
    assert book.store.referrers("in", 1, with_deleted=False) == [(".", 2)]
    assert code_of(lambda: book.delete("in", 1)) == 42206
    assert code_of(lambda: book.delete("in")) == 42206
    book.delete("out")
    assert book.delete("in") == [1]
    assert code_of(lambda: book.delete("in", is_permanent=True)) == 42206
    book.delete("out", is_permanent=True)
    assert book.delete("in", is_permanent=True) == [1]


def test_references_are_resolved_through_references_and_by_latest(book: Book) -> None:
    book.register("a", '{"type":"record","name":"A","fields":[]}')
    book.register(
        "b", '{"type":"record","name":"B","fields":[{"name":"a","type":"A"}]}', references=(Reference("A", "a", 1),)
    )
    text = '{"type":"record","name":"C","fields":[{"name":"b","type":"B"}]}'
    stored = book.register("c", text, references=(Reference("B", "b", -1),))
    assert stored.references == (Reference("B", "b", 1),)
    assert stored.schema == text
    # Sent with everything written out, it is still found.
    whole = book.schemas.parse_stored(stored).resolved_text()
    assert '"name":"A"' in whole
    assert book.look_up("c", whole) == stored
    assert code_of(lambda: book.register("d", text, references=(Reference("B", "nowhere", 1),))) == 42201
    assert code_of(lambda: book.register("d", text)) == 42201


def test_contexts_have_their_own_ids_and_references(book: Book) -> None:
    book.register("a", '"int"')
    inner = book.register(":.c:in", '{"type":"record","name":"In","fields":[]}')
    assert inner.id == 1
    assert book.store.contexts() == [".", ".c"]
    outer = '{"type":"record","name":"Out","fields":[{"name":"i","type":"In"}]}'
    stored = book.register(":.c:out", outer, references=(Reference("In", "in", 1),))
    assert stored.id == 2
    assert code_of(lambda: book.register("out", outer, references=(Reference("In", "in", 1),))) == 42201
    assert book.register("out", outer, references=(Reference("In", ":.c:in", 1),)).id == 2
    assert code_of(lambda: deleting.delete_context(book.store, ":.c:")) == 42211


def test_modes_say_who_may_write(book: Book) -> None:
    book.set_mode(None, "READONLY")
    assert code_of(lambda: book.register("a", '"int"')) == 42205
    book.set_mode("a", "READWRITE")
    book.register("a", '"int"')
    book.set_mode(None, "READONLY_OVERRIDE")
    assert code_of(lambda: book.register("a", '"long"')) == 42205
    assert code_of(lambda: book.delete("a")) == 42205
    assert code_of(lambda: book.set_level("a", compatibility="NONE")) == 42205
    book.set_mode(None, "READWRITE")
    book.delete("a")
    assert code_of(lambda: settings.checked_mode("SOMEHOW")) == 42204
    assert settings.checked_mode("import") == "IMPORT"


def test_import_brings_ids_and_versions_along(book: Book) -> None:
    assert code_of(lambda: book.register("a", '"int"', id=7)) == 42205
    book.set_mode("a", "IMPORT")
    assert code_of(lambda: book.register("a", '"int"')) == 42205
    stored = book.register("a", '"int"', id=7, version=3)
    assert (stored.id, stored.version) == (7, 3)
    # Compatibility is not asked; another schema with that id, or another id for that version, is refused.
    assert book.register("a", '{"type":"array","items":"int"}', id=9, version=4).id == 9
    assert code_of(lambda: book.register("a", '"bytes"', id=7, version=5)) == 42205
    assert code_of(lambda: book.register("a", '"float"', id=11, version=3)) == 42207
    book.set_mode("a", "READWRITE")
    assert book.register("b", '"float"').id == 10


def test_import_mode_needs_an_empty_place_unless_it_is_forced(book: Book) -> None:
    book.register("a", '"int"')
    assert code_of(lambda: book.set_mode("a", "IMPORT")) == 42205
    book.set_mode("a", "IMPORT", is_forced=True)
    book.set_mode("a", "READWRITE")
    book.delete("a")
    book.set_mode("a", "IMPORT")
    assert book.store.versions("a", with_deleted=True) == []


def test_metadata_and_rules_make_another_schema_and_unknown_fields_stay(book: Book) -> None:
    plain = book.register("a", '"int"')
    extra = {"properties": {"owner": "me"}, "later": {"x": 1}}
    rules = {"domainRules": [{"name": "r", "type": "CEL", "mode": "WRITE", "kind": "CONDITION", "later": True}]}
    rich = book.register("a", '"int"', metadata=extra, rule_set=rules)
    assert (rich.id, rich.version) == (plain.id + 1, 2)
    assert rich.metadata == extra
    assert rich.rule_set == rules
    # What a request leaves out comes from the previous version.
    assert book.register("a", '"int"') == plain
    assert book.register("a", '"long"').metadata == extra


def test_settings_add_metadata_to_every_schema(book: Book) -> None:
    book.set_level(
        "a", defaultMetadata={"properties": {"team": "x", "v": "1"}}, overrideMetadata={"properties": {"v": "2"}}
    )
    stored = book.register("a", '"int"', metadata={"properties": {"mine": "y"}})
    assert stored.metadata == {"properties": {"mine": "y", "team": "x", "v": "2"}}
    assert book.look_up("a", '"int"', metadata={"properties": {"mine": "y"}}) == stored


def test_a_version_can_be_demanded_and_is_written_into_the_metadata(book: Book) -> None:
    first = book.register("a", '"int"', version=1)
    assert first.metadata == {"properties": {"confluent:version": "1"}}
    assert book.look_up("a", '"int"') == first
    assert code_of(lambda: book.register("a", '"long"', version=7)) == 42201
    assert book.register("a", '"long"', version=-1).metadata == {"properties": {"confluent:version": "2"}}


@pytest.mark.parametrize(
    ("schema_type", "schema"),
    [
        ("AVRO", "nonsense"),
        ("AVRO", '{"type":"record","name":"1x","fields":[]}'),
        ("AVRO", '{"type":"record","name":"X","fields":[{"name":"a","type":"int","default":"x"}]}'),
        ("AVRO", '{"type":"enum","name":"E","symbols":["A"],"default":"B"}'),
        ("AVRO", '["int","int"]'),
        ("JSON", '{"type":"nothing"}'),
        ("JSON", '{"$ref":"#/nowhere"}'),
        ("JSON", '{"$ref":"http://localhost/x.json"}'),
        ("JSON", '{"$ref":"file:///etc/passwd"}'),
        ("JSON", "[]"),
        ("JSON", '{"required":"a"}'),
        ("PROTOBUF", "message { }"),
        ("PROTOBUF", 'syntax = "proto3"; message A { B b = 1; }'),
        ("PROTOBUF", 'syntax = "proto3"; import "/etc/passwd"; message A { }'),
        ("PROTOBUF", 'syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }'),
        ("YAML", "x"),
        ("AVRO", ""),
        ("AVRO", "[" * 100 + "]" * 100),
        ("AVRO", '{"type":"array","items":' * 5000 + '"int"' + "}" * 5000),
        ("JSON", '{"not":' * 100 + "{}" + "}" * 100),
        ("PROTOBUF", "message A {" * 100 + "}" * 100),
        ("JSON", '{"title":"\\ud800"}'),
    ],
)
def test_what_is_no_valid_schema_is_refused(book: Book, schema_type: str, schema: str) -> None:
    assert code_of(lambda: book.register("a", schema, schema_type=schema_type)) == 42201
    assert list(book.store.subjects()) == []


def test_a_schema_may_have_a_mebibyte_and_not_more(book: Book) -> None:
    text = json.dumps({"type": "string", "doc": "x" * (errors.SCHEMA_BYTES_MAX - 100)})
    assert book.register("a", text).id == 1
    text = json.dumps({"type": "string", "doc": "x" * errors.SCHEMA_BYTES_MAX})
    assert code_of(lambda: book.register("a", text)) == 42209


@pytest.mark.parametrize(
    "rule_set",
    [
        {"domainRules": [{"name": "r", "type": "CEL"}, {"name": "r", "type": "CEL"}]},
        {"domainRules": [{"type": "CEL"}]},
        {"domainRules": [{"name": "r"}]},
        {"migrationRules": [{"name": "r", "type": "JSONATA", "mode": "WRITE"}]},
        {"domainRules": {}},
    ],
)
def test_rules_without_name_or_sense_are_refused(rule_set: dict[str, Any]) -> None:
    assert code_of(lambda: checked_rule_set(rule_set)) == 42210
