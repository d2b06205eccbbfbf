"""Reads policies and reports all of their errors at once.

The API server validates objects against the CRD, but the CRD may be of another version than the operator, and the CLI
reads files that no API server has seen. So no content may make reading fail. An error becomes a `Problem` of the policy
with the name of the field, and the field gets its default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from respread.api.clamping import read_clamped
from respread.api.fields import MAX_LABEL_PREFIX_LENGTH, Problem, UnknownField
from respread.api.policy import API_VERSION, ClusterPolicySpec, Policy, PolicyKind, PolicySpec
from respread.api.status import MAX_GENERATION, PolicyStatus
from respread.api.structures import read_structure, shown, suggestion
from respread.api.validation import validated

_FIELDS_OF_OBJECTS: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_DNS_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"


class NotAPolicyError(ValueError):
    """The object is not a policy."""


def decode_manifest(document: object, *, default_namespace: str = "default") -> Policy:
    """Read a policy of either kind from a document with apiVersion and kind, such as a YAML file.

    Args:
        document: The document as plain values.
        default_namespace: The namespace for a RebalancePolicy without one.

    Raises:
        NotAPolicyError: if the document is not a RebalancePolicy or ClusterRebalancePolicy, or has no name.
    """
    if not isinstance(document, Mapping):
        raise NotAPolicyError(
            f"a policy must be an object with apiVersion, kind, metadata and spec, not {shown(document)}"
        )
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if api_version != API_VERSION:
        raise NotAPolicyError(f"apiVersion: a policy's is {API_VERSION}, this is {shown(api_version)}")
    if kind == "ClusterRebalancePolicy":
        return _with_problems_of_manifest(decode_policy("ClusterRebalancePolicy", document), document)
    if kind == "RebalancePolicy":
        policy = _with_problems_of_manifest(decode_policy("RebalancePolicy", document), document)
        return policy if policy.namespace else msgspec.structs.replace(policy, namespace=default_namespace)
    raise NotAPolicyError(f"kind: must be RebalancePolicy or ClusterRebalancePolicy, this is {shown(kind)}")


def decode_policy(kind: PolicyKind, document: object) -> Policy:
    """Read a policy from its JSON object, with every problem that can be found without the cluster.

    Args:
        kind: The kind of the policy, because objects within a list don't have it.
        document: The object as plain values.

    Raises:
        NotAPolicyError: if it is not an object, or has no `metadata.name`. No other content raises.
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
    # A problem that only follows from another one is not reported: "set one of name and value" after an unreadable
    # name.
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


def _with_problems_of_manifest(policy: Policy, document: Mapping[Any, Any]) -> Policy:
    """Return a policy with the problems that no stored object has: the API server rejects them for every kind."""
    problems: list[Problem] = [
        UnknownField(str(field), f"there is no such field{suggestion(str(field), _FIELDS_OF_OBJECTS)}")
        for field in document
        if field not in _FIELDS_OF_OBJECTS
    ]
    name = policy.object_name
    if len(name) > MAX_LABEL_PREFIX_LENGTH or not re.fullmatch(_DNS_SUBDOMAIN, name):
        problems.append(
            Problem(
                "metadata.name",
                f"must be a DNS subdomain: lowercase letters, digits, dashes and dots, not {shown(name)}",
            )
        )
    if policy.is_cluster_policy and _text(document["metadata"], "namespace"):
        problems.append(
            Problem("metadata.namespace", f"a {policy.kind} has no namespace: remove the field, or use RebalancePolicy")
        )
    return msgspec.structs.replace(policy, problems=(*problems, *policy.problems)) if problems else policy


def decode_status(document: object) -> PolicyStatus:
    """Read the status from a policy's JSON object, with every field within its bounds.

    A value that can't be read counts as absent.
    """
    status = document.get("status") if isinstance(document, Mapping) else None
    return read_clamped(PolicyStatus, status) or PolicyStatus()


def _text(metadata: Mapping[Any, Any], name: str) -> str:
    value = metadata.get(name)
    return value if isinstance(value, str) else ""


def _generation(metadata: Mapping[Any, Any]) -> int:
    try:
        generation: int = msgspec.convert(
            metadata.get("generation"), Annotated[int, msgspec.Meta(ge=0, le=MAX_GENERATION)]
        )
    except msgspec.ValidationError:
        return 0
    return generation


def _moment(metadata: Mapping[Any, Any], name: str) -> datetime | None:
    try:
        moment = msgspec.convert(metadata.get(name), datetime)
    except msgspec.ValidationError:
        return None
    return moment if moment.tzinfo is not None else None
