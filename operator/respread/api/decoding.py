"""Reading policies, and everything that is wrong with them at once.

The API server has checked what it stores against the CRD, but the CRD may be of another version than the operator, and
the CLI reads files that no API server has seen. So nothing in an object may make reading it fail: what can't be
understood is a `Problem` of the policy, with the field it is in, and the field has its default meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec

from respread.api.clamping import read_clamped
from respread.api.policy import API_VERSION, ClusterPolicySpec, Policy, PolicyKind, PolicySpec
from respread.api.status import PolicyStatus
from respread.api.structures import read_structure, shown
from respread.api.validation import validated


class NotAPolicyError(ValueError):
    """Something was given as a policy that is none."""


def decode_manifest(document: object, *, default_namespace: str = "default") -> Policy:
    """Read a policy of either kind from a document that says which, as a YAML file or `kubectl get -o json` does.

    Args:
        document: The document as plain values.
        default_namespace: The namespace of a RebalancePolicy that names none.

    Raises:
        NotAPolicyError: if the document is no RebalancePolicy or ClusterRebalancePolicy, or has no name.
    """
    if not isinstance(document, Mapping):
        raise NotAPolicyError(
            f"a policy must be an object with apiVersion, kind, metadata and spec, not {shown(document)}"
        )
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if api_version != API_VERSION:
        raise NotAPolicyError(f"apiVersion: a policy's is {API_VERSION}, this is {shown(api_version)}")
    if kind == "ClusterRebalancePolicy":
        return decode_policy("ClusterRebalancePolicy", document)
    if kind == "RebalancePolicy":
        policy = decode_policy("RebalancePolicy", document)
        return policy if policy.namespace else msgspec.structs.replace(policy, namespace=default_namespace)
    raise NotAPolicyError(f"kind: must be RebalancePolicy or ClusterRebalancePolicy, this is {shown(kind)}")


def decode_policy(kind: PolicyKind, document: object) -> Policy:
    """Read a policy from its JSON object, with every problem that can be found without looking at the cluster.

    Args:
        kind: Which of the two kinds it is; objects within a list don't say.
        document: The object as plain values.

    Raises:
        NotAPolicyError: if it is no object, or has no `metadata.name` to call it by. Nothing else in it does.
    """
    if not isinstance(document, Mapping):
        raise NotAPolicyError(f"a {kind} must be an object with metadata and spec, not {shown(document)}")
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
        raise NotAPolicyError(f"metadata.name: every {kind} needs a name")
    spec_type = ClusterPolicySpec if kind == "ClusterRebalancePolicy" else PolicySpec
    given = document.get("spec")
    spec, problems = read_structure(spec_type, {} if given is None else given, "spec")
    spec, more = validated(spec_type() if spec is None else spec)
    # What follows from a problem already named, as "set one of name and value" from a name that can't be read, is none.
    problems += [each for each in more if not any(known.field.startswith(each.field) for known in problems)]
    return Policy(
        kind=kind,
        namespace=_text(metadata, "namespace") if kind == "RebalancePolicy" else "",
        object_name=name,
        uid=_text(metadata, "uid"),
        generation=_generation(metadata),
        creation_timestamp=_moment(metadata, "creationTimestamp"),
        spec=spec,
        problems=tuple(problems),
    )


def decode_status(document: object) -> PolicyStatus:
    """Read a policy's status back from the policy's JSON object, every field within its bounds.

    What can't be read is as if never written.
    """
    status = document.get("status") if isinstance(document, Mapping) else None
    return read_clamped(PolicyStatus, status) or PolicyStatus()


def _text(metadata: Mapping[Any, Any], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def _generation(metadata: Mapping[Any, Any]) -> int:
    try:
        generation: int = msgspec.convert(metadata.get("generation"), Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)])
    except msgspec.ValidationError:
        return 0
    return generation


def _moment(metadata: Mapping[Any, Any], name: str) -> datetime | None:
    try:
        moment = msgspec.convert(metadata.get(name), datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.tzinfo is not None else None
