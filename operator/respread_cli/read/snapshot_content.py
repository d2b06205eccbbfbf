"""What a snapshot file contains of an object: nothing that may be secret and does not matter.

Users attach snapshots to bug reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from respread.cluster.annotations import (
    BIND_COMPLETED,
    MIGRATED_PLUGINS,
    MIRROR,
    POD_DELETION_COST,
    SELECTED_NODE,
    STORAGE_CLASS,
    kept_annotations,
)
from respread.cluster.decode.decoder import Kind

CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")
LEFT_OUT_OF_CONTAINERS: Final = frozenset(
    {"args", "command", "env", "envFrom", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe"}
)
"""Where users put passwords and tokens. Probes and hooks have commands and HTTP headers."""
_KEPT_ANNOTATIONS: Final = frozenset({BIND_COMPLETED, MIGRATED_PLUGINS, MIRROR, SELECTED_NODE, STORAGE_CLASS})


def snapshot_content(kind: Kind, item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as in a snapshot, with its kind, which items of a LIST don't have."""
    content = {**item, "apiVersion": kind.api_version, "kind": kind.kind}
    if isinstance(metadata := item.get("metadata"), Mapping):
        content["metadata"] = _metadata(metadata)
    if isinstance(spec := item.get("spec"), Mapping):
        content["spec"] = _spec(spec)
    return content


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in metadata.items() if name not in {"annotations", "managedFields"}}
    if isinstance(annotations := metadata.get("annotations"), Mapping):
        wanted = kept_annotations(annotations) | {
            name: value for name, value in annotations.items() if name in _KEPT_ANNOTATIONS
        }
        if wanted:
            kept["annotations"] = wanted
        if POD_DELETION_COST in wanted and (owners := _owners_of_cost(metadata.get("managedFields"))):
            kept["managedFields"] = owners
    return kept


def _owners_of_cost(managed_fields: Any) -> list[dict[str, Any]]:
    """Return the owners of a pod's deletion cost, which show whether it is ours, and none of their other fields."""
    if not isinstance(managed_fields, list):
        return []
    field = f"f:{POD_DELETION_COST}"
    return [
        {
            **{name: entry[name] for name in ("manager", "operation") if name in entry},
            "fieldsV1": {"f:metadata": {"f:annotations": {field: {}}}},
        }
        for entry in managed_fields
        if isinstance(entry, Mapping) and field in _annotations_owned(entry)
    ]


def _annotations_owned(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    owned: Any = entry
    for name in ("fieldsV1", "f:metadata", "f:annotations"):
        owned = owned.get(name) if isinstance(owned, Mapping) else None
    return owned if isinstance(owned, Mapping) else {}


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a pod, or of an object with a pod template. Any other stays unchanged."""
    content = dict(spec)
    for containers in CONTAINERS:
        if isinstance(listed := spec.get(containers), list):
            content[containers] = [_container(each) for each in listed]
    if isinstance(template := spec.get("template"), Mapping):
        content["template"] = {
            **template,
            **({"metadata": _metadata(template["metadata"])} if isinstance(template.get("metadata"), Mapping) else {}),
            **({"spec": _spec(template["spec"])} if isinstance(template.get("spec"), Mapping) else {}),
        }
    return content


def _container(container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    return {name: value for name, value in container.items() if name not in LEFT_OUT_OF_CONTAINERS}
