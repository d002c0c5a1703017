"""The OpenAPI document: valid, complete, and served without a login. Requests made from it: tests/fuzz."""

from __future__ import annotations

from jsonschema_rs import validator_for
from schemathesis import openapi as schemathesis_openapi

from tests.management.stage import ManagementStage
from warren.management import openapi
from warren.management.routes import ROUTES

DOCUMENT = openapi.document(ROUTES, "3.10.8")
KEYS = {(route.method, route.path) for route in ROUTES}


def test_every_route_is_an_operation_with_its_tag_and_summary() -> None:
    found = [
        (method.upper(), path, operation["x-tag"], operation["summary"])
        for path, operations in DOCUMENT["paths"].items()
        for method, operation in operations.items()
    ]
    assert sorted(found) == sorted((each.method, each.path, each.rule.tag, each.summary) for each in ROUTES)
    names = [operation["operationId"] for operations in DOCUMENT["paths"].values() for operation in operations.values()]
    assert len(names) == len(set(names))


def test_the_tables_name_routes_only_and_every_route_that_writes_has_a_body_or_none() -> None:
    assert openapi.described() <= KEYS
    writing = {(method, path) for method, path in KEYS if method in ("PUT", "POST")}
    assert writing == openapi.BODIES.keys() | openapi.NO_BODY


def test_the_document_is_valid_openapi() -> None:
    schemathesis_openapi.from_dict(DOCUMENT).validate()


def test_every_schema_of_a_body_is_a_json_schema() -> None:
    for schema in openapi.BODIES.values():
        validator_for(schema)


def test_a_route_without_a_login_has_no_security_and_every_other_names_its_refusals() -> None:
    operation = DOCUMENT["paths"]["/api/version"]["get"]
    assert operation["security"] == [] and "401" not in operation["responses"]
    operation = DOCUMENT["paths"]["/api/queues/{vhost}/{name}"]["put"]
    assert operation["security"] == [{"basic": []}]
    assert {"201", "204", "400", "401", "404", "413"} <= operation["responses"].keys()
    assert [each["name"] for each in operation["parameters"]] == ["vhost", "name"]


def test_the_document_is_served_without_a_login(stage: ManagementStage) -> None:
    answer = stage.get(openapi.PATH, user=None)
    assert answer.headers["content-type"] == "application/json"
    version = stage.get("/api/version", user=None).json()
    assert answer.json() == openapi.document(ROUTES, version)
