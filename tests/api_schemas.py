"""JSON schemas of the kinds that an API server serves, for kubeconform, made from that server's OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

DEFINITIONS: Final = "_definitions.json"
LOCATION: Final = "{{ .Group }}/{{ .ResourceAPIVersion }}/{{ .ResourceKind }}.json"
"""Where kubeconform looks for a kind, below the folder: its `-schema-location`."""
_KINDS: Final = "x-kubernetes-group-version-kind"
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_TEXT_OR_NUMBER: Final = {"io.k8s.apimachinery.pkg.api.resource.Quantity"}
"""The definitions that the API server also accepts as a number, although its OpenAPI document says a string."""


def write_schemas(openapi: Mapping[str, Any], folder: Path) -> int:
    """Write a schema for each kind in an answer of `/openapi/v2`, which rejects other fields. Return how many."""
    definitions = {name: _schema(name, each) for name, each in openapi["definitions"].items()}
    (folder / DEFINITIONS).write_text(json.dumps({"definitions": definitions}), encoding="utf-8")
    kinds = 0
    for name, definition in openapi["definitions"].items():
        for kind in definition.get(_KINDS, ()):
            group = kind["group"] or kind["version"]  # kubeconform's name of the core group
            file = folder / group / kind["version"] / f"{kind['kind'].lower()}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            reference = (folder / DEFINITIONS).as_uri() + f"#/definitions/{name}"
            file.write_text(json.dumps({"$ref": reference}), encoding="utf-8")
            kinds += 1
    return kinds


def _schema(name: str, definition: Mapping[str, Any]) -> Any:
    return {"type": ["string", "number"]} if name in _TEXT_OR_NUMBER else _strict(definition)


def _strict(schema: Any) -> Any:
    """Return a JSON Schema that rejects unknown fields, also in nested objects."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":  # a property may have the name of a keyword
            found[key] = {name: _strict(each) for name, each in value.items()}
        elif not key.startswith("x-kubernetes") and key not in ("description", "format"):
            found[key] = _strict(value)
    if "properties" in found and "additionalProperties" not in found and not schema.get(_OPEN):
        found["additionalProperties"] = False
    return found
