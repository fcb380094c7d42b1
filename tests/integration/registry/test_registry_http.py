"""The registry's HTTP contract: paths, parameters, media types, codes; and what it does with abuse."""

import json
import uuid
from typing import Any
from urllib.parse import quote

import httpx
import pytest

V1 = "application/vnd.schemaregistry.v1+json"


@pytest.fixture
def subject() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


def post_schema(http: httpx.Client, subject: str, schema: Any, **more: Any) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    answer = http.post(f"/subjects/{subject}/versions", json={"schema": text, **more})
    assert answer.status_code == 200, answer.text
    registered: dict[str, Any] = answer.json()
    return registered


def code(answer: httpx.Response) -> tuple[int, int]:
    assert "Traceback" not in answer.text
    return answer.status_code, answer.json()["error_code"]


def test_answers_have_the_media_type_that_was_asked_for(http: httpx.Client) -> None:
    for accept, expected in [
        ("*/*", V1),
        (V1, V1),
        ("application/json", "application/json"),
        (f"{V1}; q=0.9, application/json; q=0.5", V1),
        ("application/vnd.schemaregistry+json", "application/vnd.schemaregistry+json"),
    ]:
        for path in ("/", "/subjects", "/schemas/types"):
            assert http.get(path, headers={"accept": accept}).headers["content-type"] == expected
    assert code(http.get("/subjects", headers={"accept": "text/html"})) == (406, 406)
    assert http.post("/", json={}).json() == {}


def test_bodies_of_another_kind_are_refused(http: httpx.Client, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    assert code(http.post(path, content=b"x", headers={"content-type": "text/plain"})) == (415, 415)
    gzipped = {"content-type": V1, "content-encoding": "gzip"}
    assert code(http.post(path, content=b"\x1f\x8b", headers=gzipped)) == (415, 415)
    for body in (b"", b"{", b"\xff", b'{"schema":"\\ud800"}', b"[" * 100000, b'{"a":' * 200 + b"1" + b"}" * 200):
        assert code(http.post(path, content=body, headers={"content-type": V1})) == (400, 400)
    assert code(http.post(path, content=b"[]", headers={"content-type": V1})) == (422, 422)
    assert code(http.post(path, json={"schema": 7})) == (422, 422)
    assert code(http.post(path, content=b"x" * (5 << 20), headers={"content-type": V1})) == (413, 413)


def test_schemas_that_are_too_large_or_too_deep_are_refused(http: httpx.Client, subject: str) -> None:
    path = f"/subjects/{subject}/versions"
    large = json.dumps({"type": "string", "doc": "x" * (1 << 20)})
    assert code(http.post(path, json={"schema": large})) == (422, 42209)
    deep = '{"type":"array","items":' * 70 + '"int"' + "}" * 70
    assert code(http.post(path, json={"schema": deep})) == (422, 42201)
    for reference in ("file:///etc/passwd", "http://127.0.0.1:1/x"):
        body = {"schema": json.dumps({"$ref": reference}), "schemaType": "JSON"}
        assert code(http.post(path, json=body)) == (422, 42201)
    assert code(http.get(f"/subjects/{subject}/versions")) == (404, 40401)


def test_a_large_schema_is_registered_and_read_back(http: httpx.Client, subject: str) -> None:
    text = json.dumps({"type": "string", "note": "x" * 900_000})
    registered = post_schema(http, subject, text)
    assert len(http.get(f"/schemas/ids/{registered['id']}").json()["schema"]) > 900_000
    messages = "".join(
        f"message M{number} {{ string a = 1; repeated int32 b = 2; map<string, M0> c = 3; }}\n"
        for number in range(3000)
    )
    body = {"schema": f'syntax = "proto3";\n{messages}', "schemaType": "PROTOBUF"}
    assert http.post(f"/subjects/{subject}-proto/versions", json=body).status_code == 200


def test_codes_of_what_is_not_there(http: httpx.Client, subject: str) -> None:
    assert code(http.get("/schemas/ids/999999")) == (404, 40403)
    assert code(http.get("/schemas/ids/abc")) == (404, 404)
    assert code(http.get("/schemas/ids/999999/schema")) == (404, 40403)
    assert code(http.get("/schemas/ids/999999/subjects")) == (404, 40403)
    assert code(http.get(f"/schemas/guids/{uuid.uuid4()}")) == (404, 40403)
    assert http.get(f"/schemas/guids/{uuid.uuid4()}/ids").json() == []
    assert code(http.get(f"/subjects/{subject}/versions/1")) == (404, 40401)
    assert code(http.get(f"/subjects/{subject}/metadata?key=a&value=b")) == (404, 40401)
    assert code(http.post(f"/subjects/{subject}", json={"schema": '"int"'})) == (404, 40401)
    assert code(http.delete(f"/subjects/{subject}")) == (404, 40401)
    assert code(http.get(f"/config/{subject}")) == (404, 40408)
    assert code(http.get(f"/mode/{subject}")) == (404, 40409)
    assert code(http.delete(f"/config/{subject}")) == (404, 40401)
    post_schema(http, subject, '"string"')
    assert code(http.get(f"/subjects/{subject}/versions/2")) == (404, 40402)
    for version in ("0", "x", "-2", "99999999999"):
        assert code(http.get(f"/subjects/{subject}/versions/{version}")) == (422, 42202)
    assert code(http.post(f"/subjects/{subject}", json={"schema": '"int"'})) == (404, 40403)
    assert code(http.delete(f"/subjects/{subject}/versions/7")) == (404, 40402)
    assert code(http.post(f"/compatibility/subjects/{subject}/versions/9", json={"schema": '"int"'})) == (404, 40402)
    assert code(http.put(f"/config/{subject}", json={"compatibility": "x"})) == (422, 42203)
    assert code(http.put(f"/mode/{subject}", json={"mode": "x"})) == (422, 42204)
    assert code(http.post("/subjects/a%07b/versions", json={"schema": '"int"'})) == (422, 42208)
    assert code(http.post("/subjects/__GLOBAL/versions", json={"schema": '"int"'})) == (422, 42208)


def test_deleting_has_its_order(http: httpx.Client, subject: str) -> None:
    registered = post_schema(http, subject, '"string"')
    assert code(http.delete(f"/subjects/{subject}/versions/1?permanent=true")) == (404, 40407)
    assert code(http.delete(f"/subjects/{subject}?permanent=true")) == (404, 40405)
    assert http.delete(f"/subjects/{subject}/versions/latest").json() == 1
    assert code(http.delete(f"/subjects/{subject}/versions/1")) == (404, 40406)
    assert code(http.delete(f"/subjects/{subject}")) == (404, 40404)
    assert http.get(f"/schemas/ids/{registered['id']}").status_code == 200
    assert subject not in http.get("/subjects").json()
    assert subject in http.get("/subjects?deleted=true").json()
    assert subject in http.get("/subjects?deletedOnly=true").json()
    assert http.get(f"/subjects/{subject}/versions?deleted=true").json() == [1]
    assert http.get(f"/subjects/{subject}/versions?deletedAsNegative=true").json() == [-1]
    assert http.get(f"/subjects/{subject}/versions/1?deleted=true").json()["deleted"] is True
    assert http.post(f"/subjects/{subject}?deleted=true", json={"schema": '"string"'}).json()["version"] == 1
    assert http.delete(f"/subjects/{subject}/versions/1?permanent=true").json() == 1
    assert code(http.get(f"/subjects/{subject}/versions?deleted=true")) == (404, 40401)


def test_verdicts_come_with_reasons_if_they_are_asked_for(http: httpx.Client, subject: str) -> None:
    post_schema(http, subject, '"string"')
    body = {"schema": '"int"'}
    path = f"/compatibility/subjects/{subject}/versions"
    assert http.post(f"{path}/latest", json=body).json() == {"is_compatible": False}
    verdict = http.post(f"{path}/1?verbose=true", json=body).json()
    assert verdict["is_compatible"] is False
    assert "TYPE_MISMATCH" in verdict["messages"][0]
    assert http.post(f"{path}?verbose=true", json={"schema": '"bytes"'}).json() == {
        "is_compatible": True,
        "messages": [],
    }
    assert code(http.post(path, json={"schema": "nonsense"})) == (422, 42201)
    assert http.post(f"{path}?verbose=true", json={"schema": "nonsense"}).json()["is_compatible"] is False
    assert http.post(f"/compatibility/subjects/{subject}-none/versions/latest", json=body).json() == {
        "is_compatible": True
    }
    assert code(http.post(f"/subjects/{subject}/versions", json=body)) == (409, 40901)
    assert http.post(f"/subjects/{subject}/versions?force=true", json=body).status_code == 200


def test_subjects_may_have_any_characters(http: httpx.Client, subject: str) -> None:
    for name in (f"{subject}/with/slashes", f"{subject} ü %", f"{subject}?a=b#c"):
        quoted = quote(name, safe="")
        answer = http.post(f"/subjects/{quoted}/versions", json={"schema": '"string"'})
        assert answer.status_code == 200, answer.text
        assert http.get(f"/subjects/{quoted}/versions/1").json()["subject"] == name
        assert http.put(f"/config/{quoted}", json={"compatibility": "NONE"}).status_code == 200
        assert http.get(f"/config/{quoted}").json() == {"compatibilityLevel": "NONE"}


def test_contexts_are_apart_and_have_paths_of_their_own(http: httpx.Client, subject: str) -> None:
    context = f".{subject}"
    first = post_schema(http, f":{context}:a", '"string"')
    assert first["id"] == 1
    assert context in http.get("/contexts").json()
    assert http.get(f"/contexts/:{context}:/subjects").json() == [f":{context}:a"]
    assert http.get(f"/contexts/{context}/schemas/ids/1").json()["schema"] == '"string"'
    assert http.get(f"/schemas/ids/1?subject=:{context}:").json()["subject"] == f":{context}:a"
    answer = http.post(f"/contexts/{context}/subjects/b/versions", json={"schema": '"int"'})
    assert answer.json()["id"] == 2
    assert http.get(f"/contexts/{context}/subjects/b/versions/latest").json()["subject"] == f":{context}:b"
    assert http.put(f"/contexts/{context}/config", json={"compatibility": "FULL"}).status_code == 200
    assert http.get(f"/config/:{context}:b?defaultToGlobal=true").json() == {"compatibilityLevel": "FULL"}
    assert http.get(f"/subjects?subjectPrefix=:{context}:").json() == [f":{context}:a", f":{context}:b"]
    assert code(http.delete(f"/contexts/{context}")) == (422, 42211)
    for name in "ab":
        assert http.delete(f"/subjects/:{context}:{name}").status_code == 200
        assert http.delete(f"/subjects/:{context}:{name}?permanent=true").status_code == 200
    assert http.delete(f"/contexts/{context}").status_code == 204
    assert context not in http.get("/contexts").json()


def test_ids_and_guids_lead_to_schemas(http: httpx.Client, subject: str) -> None:
    registered = post_schema(http, subject, {"type": "string", "who": subject})
    again = post_schema(http, f"{subject}-2", {"type": "string", "who": subject})
    schema_id, guid = registered["id"], registered["guid"]
    assert again["id"] == schema_id
    assert http.get(f"/schemas/ids/{schema_id}/subjects").json() == [subject, f"{subject}-2"]
    assert http.get(f"/schemas/ids/{schema_id}/versions").json() == [
        {"subject": subject, "version": 1},
        {"subject": f"{subject}-2", "version": 1},
    ]
    assert http.get(f"/schemas/ids/{schema_id}/schema").json() == {"type": "string", "who": subject}
    assert http.get(f"/subjects/{subject}/versions/1/schema").json() == {"type": "string", "who": subject}
    assert json.loads(http.get(f"/schemas/guids/{guid}").json()["schema"]) == {"type": "string", "who": subject}
    assert http.get(f"/schemas/guids/{guid}/ids").json() == [{"context": ".", "id": schema_id}]
    assert http.get(f"/schemas/ids/{schema_id}?fetchMaxId=true").json()["maxId"] >= schema_id
    listed = http.get(f"/schemas?subjectPrefix={subject}").json()
    assert [item["subject"] for item in listed] == [subject, f"{subject}-2"]
    assert len(http.get(f"/schemas?subjectPrefix={subject}&limit=1&offset=1").json()) == 1
    assert len(http.get("/subjects?limit=1").json()) == 1
    assert code(http.get("/subjects?limit=x")) == (400, 400)


def test_what_is_kept_for_an_id_follows_every_change(http: httpx.Client, subject: str) -> None:
    registered = post_schema(http, subject, {"type": "string", "who": subject})
    path = f"/schemas/ids/{registered['id']}"
    assert http.get(path).json()["deleted"] is False
    http.delete(f"/subjects/{subject}")
    assert http.get(path).json()["deleted"] is True
    http.delete(f"/subjects/{subject}?permanent=true")
    assert code(http.get(path)) == (404, 40403)


def test_metadata_and_rules_are_kept_with_fields_that_nobody_knows(http: httpx.Client, subject: str) -> None:
    metadata = {"properties": {"owner": "me"}, "tags": {"$.a": ["PII"]}, "unheardOf": [1, {"x": None}]}
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "unheardOf": 1}]}
    post_schema(http, subject, '"string"', metadata=metadata, ruleSet=rules)
    stored = http.get(f"/subjects/{subject}/versions/latest").json()
    assert stored["metadata"] == metadata
    assert stored["ruleSet"] == rules
    found = http.get(f"/subjects/{subject}/metadata?key=owner&value=me").json()
    assert found["version"] == 1
    assert code(http.get(f"/subjects/{subject}/metadata?key=owner&value=you")) == (404, 40403)
    assert code(
        http.post(f"/subjects/{subject}/versions", json={"schema": '"int"', "ruleSet": {"domainRules": [{}]}})
    ) == (
        422,
        42210,
    )


def test_normalising_can_be_asked_for_or_set(http: httpx.Client, subject: str) -> None:
    text = '{"b":1,"a":2,"type":"string"}'
    body = {"schema": text, "schemaType": "JSON"}
    assert http.post(f"/subjects/{subject}/versions?normalize=true", json=body).status_code == 200
    stored = http.get(f"/subjects/{subject}/versions/1").json()
    assert stored["schema"] == '{"a":2,"b":1,"type":"string"}'
    assert code(http.post(f"/subjects/{subject}", json=body)) == (404, 40403)
    http.put(f"/config/{subject}", json={"normalize": True})
    assert http.post(f"/subjects/{subject}", json=body).json()["version"] == 1


def test_an_alias_stands_for_its_subject(http: httpx.Client, subject: str) -> None:
    registered = post_schema(http, subject, {"type": "string", "who": subject})
    assert http.put(f"/config/{subject}-alias", json={"alias": subject}).status_code == 200
    assert http.get(f"/subjects/{subject}-alias/versions/latest").json()["subject"] == subject
    found = http.get(f"/schemas/ids/{registered['id']}?subject={subject}-alias").json()
    assert (found["subject"], found["version"]) == (subject, 1)


def test_the_registry_says_what_it_is(http: httpx.Client) -> None:
    cluster = http.get("/v1/metadata/id").json()["scope"]["clusters"]
    assert cluster["kafka-cluster"]
    assert http.get("/v1/metadata/version").json()["version"]
