"""Policies from files that no API server has checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from respread.api.decoding import NotAPolicyError, decode_manifest
from respread.api.policy import ClusterPolicySpec, Policy
from respread.cli.errors import CommandError
from respread.cli.read.yaml_documents import read_documents

DEFAULT_POLICY: Final = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
"""What a plan is made for where there is no policy at all: what an empty spec means."""


def read_policies(files: Iterable[str], *, default_namespace: str) -> tuple[Policy, ...]:
    """Read the policies of YAML or JSON files, each of several documents or a List.

    Args:
        files: their paths, `-` for standard input.
        default_namespace: of RebalancePolicies that name none.

    Raises:
        CommandError: a file can't be read, or something in a policy is wrong; says all that is.
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
