"""JSON schemas of what an API server serves, for kubeconform: made from the OpenAPI document of that very server."""

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
"""What the API server takes as a number as well, though its OpenAPI says a string."""


def write_schemas(openapi: Mapping[str, Any], folder: Path) -> int:
    """Write a schema for each kind, and return how many. A field that the server does not know fits none of them.

    Args:
        openapi: what `/openapi/v2` answers.
        folder: where they are written.
    """
    definitions = {name: _schema(name, each) for name, each in openapi["definitions"].items()}
    (folder / DEFINITIONS).write_text(json.dumps({"definitions": definitions}), encoding="utf-8")
    kinds = 0
    for name, definition in openapi["definitions"].items():
        for kind in definition.get(_KINDS, ()):
            group = kind["group"] or kind["version"]  # as kubeconform has it for the core group
            file = folder / group / kind["version"] / f"{kind['kind'].lower()}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            reference = (folder / DEFINITIONS).as_uri() + f"#/definitions/{name}"
            file.write_text(json.dumps({"$ref": reference}), encoding="utf-8")
            kinds += 1
    return kinds


def _schema(name: str, definition: Mapping[str, Any]) -> Any:
    return {"type": ["string", "number"]} if name in _TEXT_OR_NUMBER else _strict(definition)


def _strict(schema: Any) -> Any:
    """Return a schema, and all below it, as JSON Schema has it: closed where fields are named."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    if schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties":  # their names may be those of keywords
            found[key] = {name: _strict(each) for name, each in value.items()}
        elif not key.startswith("x-kubernetes") and key not in ("description", "format"):
            found[key] = _strict(value)
    if "properties" in found and "additionalProperties" not in found and not schema.get(_OPEN):
        found["additionalProperties"] = False
    return found
