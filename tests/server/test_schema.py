"""The API against its own schema: what it allows is asked, and what comes back is what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from glie.encoders import Encoder
from glie.server.app import create_app

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]

OPERATIONS = {
    *("POST /search", "GET /pages/{id}", "GET /pages/{id}/image", "GET /pages/{id}/heatmap"),
    *("GET /pages/{id}/original", "GET /pages/{id}/words", "GET /pages/{id}/snippet"),
    *("GET /pages/{id}/geometry", "GET /documents", "POST /documents", "GET /documents/{id}"),
    *("DELETE /documents/{id}", "GET /info", "GET /health", "GET /metrics", "POST /session"),
    *("POST /encode", "GET /survey", "POST /survey"),
}


GIVEN = ("POST /search", "POST /session", "GET /pages/{id}/heatmap", "GET /pages/{id}/image")


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, schemathesis.GenerationMode.POSITIVE) for name in sorted(OPERATIONS)),
        *((name, schemathesis.GenerationMode.NEGATIVE) for name in GIVEN),
    ],
)
def test_answers_are_what_the_schema_says(
    index_path: Path, encoder: Encoder, name: str, mode: schemathesis.GenerationMode
) -> None:
    """What the schema allows, and what it does not."""
    app = create_app(index_path, encoder=encoder, hosts=None)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    method, path = name.split()
    operation = schema[path][method]
    few = name in ("POST /survey", "POST /documents")  # which take long

    @hypothesis.given(operation.as_strategy(generation_mode=mode))
    @hypothesis.settings(
        max_examples=2 if few else 12,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate],
    )
    def ask(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=CHECKS)

    ask()


@pytest.mark.parametrize("name", sorted(OPERATIONS - {"POST /documents", "POST /survey"}))
def test_what_is_there_is_what_the_schema_says(
    index_path: Path, encoder: Encoder, name: str
) -> None:
    """Real documents, pages and questions: they are not found by chance."""
    app = create_app(index_path, encoder=encoder, hosts=None)
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    method, path = name.split()
    real: dict[str, Any] = {"path_parameters": {"id": "b.pdf"}}
    if "pages" in path:
        real["path_parameters"] = {"id": "b.pdf%231"}
    if method == "POST":
        real["body"] = {"token": "x"} if path == "/session" else {"query": "holiday"}
    if path.endswith(("heatmap", "snippet")):
        real["query"] = {"query": "holiday"}
    answer = schema[path][method].Case(**real).call_and_validate(checks=CHECKS)
    assert answer.status_code in (200, 204)


def test_the_schema_teaches(index_path: Path, encoder: Encoder) -> None:
    """Every operation says what it does and how it fails, and every field of a request has a
    description or an example."""
    found = create_app(index_path, encoder=encoder).openapi()
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in found["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == OPERATIONS
    for name, operation in operations.items():
        assert operation["description"], name
        assert {"401", "403"} <= set(operation["responses"]), name
        assert "HTTPValidationError" not in str(operation), name
    asked = found["components"]["schemas"]["SearchRequest"]["properties"]
    assert all("description" in field for field in asked.values())
    assert re.search(r"Skarrow Sound", str(asked["query"]["examples"]))
