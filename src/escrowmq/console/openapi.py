"""The OpenAPI document of the API, generated from the table of calls."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from escrowmq.base.release import RELEASE
from escrowmq.console.operations import PREFIX, Operation
from escrowmq.console.problems import Refused

_REF: Final = "#/components/schemas/{name}"


def openapi_document(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """Return the document, in OpenAPI 3.1."""
    kinds = [Refused, *(one.wants for one in operations), *(one.gives for one in operations)]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    wants = schemas[1 : 1 + len(operations)]
    gives = schemas[1 + len(operations) :]
    paths: dict[str, Any] = {}
    for one, wanted, given in zip(operations, wants, gives, strict=True):
        fields = components[wanted["$ref"].rpartition("/")[2]]
        paths.setdefault(PREFIX + one.path, {})[one.method.lower()] = _describe_call(
            one, fields, given
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "EscrowMQ console", "version": RELEASE},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
        "security": [{"token": []}, {"password": []}],
    }


def _describe_call(one: Operation, wanted: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = wanted.get("properties", {})
    required = wanted.get("required", [])
    call: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.name.partition(".")[0]],
        "parameters": [
            _describe_parameter(name, fields[name], place="path", is_required=True)
            for name in one.path_parameters
        ],
        "responses": {
            "200": {"description": "Done", "content": _json_content(given)},
            "default": {
                "description": "Why not",
                "content": _json_content({"$ref": _REF.format(name="Refused")}),
            },
        },
    }
    rest = {name: field for name, field in fields.items() if name not in one.path_parameters}
    if one.method != "POST":
        call["parameters"] += [
            _describe_parameter(name, field, place="query", is_required=name in required)
            for name, field in rest.items()
        ]
        return call
    if "dry_run" in rest:
        call["parameters"].append(
            _describe_parameter("dry_run", rest.pop("dry_run"), place="query", is_required=False)
        )
    call["requestBody"] = {
        "content": _json_content(
            {
                "type": "object",
                "properties": rest,
                "required": [name for name in required if name in rest],
            }
        )
    }
    return call


def _describe_parameter(
    name: str, schema: dict[str, Any], *, place: str, is_required: bool
) -> dict[str, Any]:
    said = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": is_required, "schema": schema, **said}


def _json_content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
