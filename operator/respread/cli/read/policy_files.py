"""Policies from files that no API server has validated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from respread.api.decoding import NotAPolicyError, decode_manifest
from respread.api.policy import ClusterPolicySpec, Policy
from respread.cli.errors import CommandError
from respread.cli.read.yaml_documents import read_documents

DEFAULT_POLICY: Final = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
"""The policy for a plan if there is none: an empty spec."""


def read_policies(files: Iterable[str], *, default_namespace: str) -> tuple[Policy, ...]:
    """Read the policies of YAML or JSON files with several documents or a List.

    Args:
        files: their paths, `-` for standard input.
        default_namespace: of RebalancePolicies without one.

    Raises:
        CommandError: a file can't be read, or a policy is invalid. The message contains all problems.
    """
    policies: dict[tuple[str, str], Policy] = {}
    wrong: list[str] = []
    for file in files:
        for where, document in read_documents(file):
            try:
                policy = decode_manifest(document, default_namespace=default_namespace)
            except NotAPolicyError as error:
                wrong.append(f"{where}: {error}")
                continue
            wrong += [f"{where} ({policy.kind} {policy.name}): {problem}" for problem in policy.problems]
            if (policy.kind, policy.name) in policies:
                wrong.append(f"{where}: there is a {policy.kind} {policy.name} already")
            policies[policy.kind, policy.name] = policy
    if wrong:
        raise CommandError("\n  ".join([f"{len(wrong)} mistakes:", *wrong]) if len(wrong) > 1 else wrong[0])
    if not policies:
        raise CommandError(f"{', '.join(files)} holds no policy.")
    return tuple(policies.values())
