"""Generates the CustomResourceDefinitions from the types: `python -m respread.api.schema crds` writes them.

Each is a structural schema that preserves no unknown fields, so `kubectl` rejects a misspelled field. What msgspec
knows about a type becomes keywords of the schema. The types carry CEL rules, list types and sizes as
`extra_json_schema`. The description of a structure is its docstring.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from immutables import Map
from msgspec import inspect as types

from respread.api.fields import DURATION, DURATION_PATTERN, DurationBounds, format_duration, rule
from respread.api.policy import GROUP, PLURALS, VERSION, ClusterPolicySpec, PolicyKind, PolicySpec
from respread.api.record import RECORD_KINDS, RECORD_PLURALS, PolicyRecord
from respread.api.status import PolicyStatus
from respread.api.structures import write_value

_HEADER: Final = "# Generated from operator/respread/api by `make crds`. Change it there.\n"
_LONGEST_DURATION: Final = 40
_NOT_SEEN_YET: Final = {"observedGeneration": 0}
"""The status of a new policy. kstatus takes an object without a status for current, so that tools would not wait."""

_SHORT_NAMES: Final[dict[PolicyKind, str]] = {"RebalancePolicy": "rbp", "ClusterRebalancePolicy": "crbp"}
_DESCRIPTIONS: Final[dict[PolicyKind, str]] = {
    "RebalancePolicy": (
        "RebalancePolicy defines how the topology spread constraints of pods in its namespace are restored. "
        "It takes precedence over every ClusterRebalancePolicy."
    ),
    "ClusterRebalancePolicy": (
        "ClusterRebalancePolicy defines how the topology spread constraints of pods in the selected namespaces are "
        "restored, if no RebalancePolicy of the namespace governs them."
    ),
}
_COLUMNS: Final = (
    ("Mode", "string", ".spec.mode", "DryRun or Enforce"),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether the policy is valid"),
    (
        "Reason",
        "string",
        '.status.conditions[?(@.type=="Ready")].reason',
        "Valid, or why the policy is not in force, or not for all the pods that it selects",
    ),
    ("Balanced", "string", '.status.conditions[?(@.type=="Balanced")].status', "Whether every constraint holds"),
    ("Groups", "integer", ".status.summary.groups", "Spread groups: constraints with the pods that share them"),
    ("Violated", "integer", ".status.summary.violated", "Spread groups whose skew is above their maxSkew"),
    ("Worst-Skew", "integer", ".status.summary.worstSkew", "The greatest skew of any spread group"),
    ("Planned", "integer", ".status.summary.plannedEvictions", "Evictions in the plan"),
    ("Evicted", "integer", ".status.summary.evicted", "Evictions made so far"),
    ("Remaining", "string", ".status.pace.remaining", "About how long the planned evictions take within limits"),
    ("Age", "date", ".metadata.creationTimestamp", ""),
)
_WIDE_COLUMNS: Final = (
    ("Bound-By", "string", ".status.pace.boundBy", "The limit that bounds the time that remains"),
    ("Unsatisfiable", "integer", ".status.summary.unsatisfiable", "Spread groups that keep pods Pending, or would"),
    ("Ineffective", "integer", ".status.summary.ineffective", "Spread groups that can't change where pods go"),
)
"""Those that `kubectl get -o wide` shows besides."""

_SELECTABLE: Final = (".spec.mode", ".spec.prevention.podDeletionCost")
"""What `kubectl get --field-selector` takes, besides name and namespace."""


def custom_resource_definition(kind: PolicyKind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind as JSON values."""
    return _definition(
        kind,
        PLURALS[kind],
        policy_kind=kind,
        names={"shortNames": [_SHORT_NAMES[kind]], "categories": ["respread"]},
        version={
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": each} for each in _SELECTABLE],
            "additionalPrinterColumns": [
                *(_column(*each) for each in _COLUMNS),
                *({**_column(*each), "priority": 1} for each in _WIDE_COLUMNS),
            ],
            "schema": {
                "openAPIV3Schema": _object_schema(
                    kind, ClusterPolicySpec if kind == "ClusterRebalancePolicy" else PolicySpec
                )
            },
        },
    )


def record_definition(policy_kind: PolicyKind) -> dict[str, Any]:
    """Return the CustomResourceDefinition of the records of a kind of policy as JSON values."""
    kind = RECORD_KINDS[policy_kind]
    schema = schema_of(PolicyRecord)
    return _definition(
        kind,
        RECORD_PLURALS[policy_kind],
        policy_kind=policy_kind,
        names={},
        version={
            "additionalPrinterColumns": [_column("Policy", "string", ".policy", "The policy"), _column(*_COLUMNS[-1])],
            "schema": {"openAPIV3Schema": {**schema, "properties": _meta(kind) | schema["properties"]}},
        },
    )


def _definition(
    kind: str, plural: str, *, policy_kind: PolicyKind, names: Mapping[str, Any], version: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a CustomResourceDefinition with the scope of a kind of policy, and one version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster" if policy_kind == "ClusterRebalancePolicy" else "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower(), **names},
            "versions": [{"name": VERSION, "served": True, "storage": True, **version}],
        },
    }


def manifests() -> dict[str, str]:
    """Return the files in crds/ by name: each a CustomResourceDefinition as YAML."""
    definitions = [custom_resource_definition(kind) for kind in PLURALS] + [record_definition(kind) for kind in PLURALS]
    return {
        f"{each['metadata']['name']}.yaml": _HEADER
        + yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)
        for each in definitions
    }


def write(folder: Path) -> list[Path]:
    """Write all definitions into a folder, and return the files that changed."""
    changed: list[Path] = []
    for name, text in manifests().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _column(name: str, kind: str, path: str, description: str) -> dict[str, str]:
    column = {"name": name, "type": kind, "jsonPath": path}
    return {**column, "description": description} if description else column


def _object_schema(kind: PolicyKind, spec_type: type[PolicySpec]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": _DESCRIPTIONS[kind],
        "properties": {
            **_meta(kind),
            "spec": {
                **schema_of(spec_type),
                "description": "The specification of the policy. Every field has a default.",
                "default": {},
            },
            "status": {**_without_defaults(schema_of(PolicyStatus)), "default": _NOT_SEEN_YET},
        },
    }


def _meta(kind: str) -> dict[str, Any]:
    return {
        "apiVersion": {"type": "string", "description": "The version of the schema that this object is written in."},
        "kind": {"type": "string", "description": f"The kind of this object: {kind}."},
        "metadata": {"type": "object"},
    }


def schema_of(structure: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of a structure as JSON values."""
    return _schema(types.type_info(structure))


def _schema(kind: types.Type) -> dict[str, Any]:  # noqa: C901, PLR0911 - one line for each kind of type there is
    match kind:
        case types.Metadata():
            return _annotated(kind)
        case types.StructType():
            return _structure(kind)
        case types.UnionType():
            return _union(kind)
        case types.VarTupleType():
            return {"type": "array", "items": _schema(kind.item_type), **_sizes(kind, "Items")}
        case types.BoolType():
            return {"type": "boolean"}
        case types.IntType():
            return {
                "type": "integer",
                "format": "int32" if _fits_int32(kind) else "int64",
                **_given(minimum=kind.ge, maximum=kind.le),
            }
        case types.StrType():
            return {"type": "string", **_sizes(kind, "Length"), **_given(pattern=kind.pattern)}
        case types.LiteralType():
            return {"type": "string", "enum": list(kind.values)}
        case types.DateTimeType():
            return {"type": "string", "format": "date-time"}
        case types.TimeDeltaType():
            return {"type": "string", "pattern": DURATION_PATTERN, "maxLength": _LONGEST_DURATION}
        case types.CustomType() if kind.cls is Map:
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case _:
            raise TypeError(f"a field of a policy has a type that has no schema yet: {kind}")


def _annotated(kind: types.Metadata) -> dict[str, Any]:
    inner, said = _schema(kind.type), kind.extra_json_schema or {}
    description = {"description": said["description"]} if "description" in said else {}
    schema = {**description, **inner, **said}
    bounds = (kind.extra or {}).get(DURATION)
    return {**schema, **_duration_rule(bounds)} if isinstance(bounds, DurationBounds) else schema


def _duration_rule(bounds: DurationBounds) -> dict[str, Any]:
    least, greatest = (format_duration(each) for each in bounds)
    return rule(
        f"duration(self) >= duration('{least}') && duration(self) <= duration('{greatest}')",
        f"must be a duration such as 30s or 1h30m, from {least} to {greatest}",
    )


def _structure(kind: types.StructType) -> dict[str, Any]:
    required = [field.encode_name for field in kind.fields if field.required]
    return {
        "type": "object",
        "description": _docstring(kind.cls),
        "properties": {field.encode_name: _field(field) for field in kind.fields},
        **({"required": required} if required else {}),
    }


def _field(field: types.Field) -> dict[str, Any]:
    """Return a field's schema, with its default if that has a meaning.

    The default of an object is `{}`, so that the API server fills in the defaults of its fields. An object that is to
    have other fields only has them in the types: the API server would store them, and merge into them what is applied
    later, such as the `value` of a threshold into its `name`. Empty lists are omitted, because an absent list is the
    same.
    """
    schema = _schema(field.type)
    default = field.default
    if isinstance(default, msgspec.Struct):
        return {**schema, "default": {}} if default == type(default)() else schema
    if default is msgspec.NODEFAULT or default is None or default in ((), Map()):
        return schema
    return {**schema, "default": write_value(default)}


def _union(kind: types.UnionType) -> dict[str, Any]:
    some = [_schema(each) for each in kind.types if not isinstance(each, types.NoneType)]
    if len(some) == 1:
        # In YAML, a field without a value is null. The API server drops it if the field may not be null.
        return some[0]
    numbers = next(each for each in some if each["type"] == "integer")
    texts = next(each for each in some if each["type"] == "string")
    return {
        "x-kubernetes-int-or-string": True,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": texts["maxLength"],
        **rule(
            f"type(self) == int ? self >= {numbers['minimum']} && self <= {numbers['maximum']} "
            f": self.matches(r'{texts['pattern']}')",
            f"must be a number from {numbers['minimum']} to {numbers['maximum']}, or a percentage from 1% to 100%",
        ),
    }


def _without_defaults(schema: Any) -> Any:
    """Return a schema without defaults: a status contains only what was written."""
    if isinstance(schema, dict):
        return {name: _without_defaults(value) for name, value in schema.items() if name != "default"}
    return schema


def _docstring(cls: type) -> str:
    paragraphs = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
    return " ".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _sizes(kind: types.VarTupleType | types.StrType, of: str) -> dict[str, Any]:
    return _given(**{f"min{of}": kind.min_length, f"max{of}": kind.max_length})


def _given(**keywords: object) -> dict[str, Any]:
    return {name: value for name, value in keywords.items() if value is not None}


def _fits_int32(kind: types.IntType) -> bool:
    return kind.ge is not None and kind.le is not None and kind.ge >= -(2**31) and kind.le < 2**31


class _Dumper(yaml.SafeDumper):
    """Writes every value in full, without YAML's references."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True, so that no value becomes a reference."""
        del data
        return True


def main(arguments: list[str]) -> int:
    """Write the definitions into the folder from the command line, and print what changed."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m respread.api.schema FOLDER\n")
        return 2
    folder = Path(arguments[0])
    if not folder.is_dir():
        sys.stderr.write(f"{folder} is not a folder: name the folder with the CustomResourceDefinitions\n")
        return 2
    for path in write(folder):
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
