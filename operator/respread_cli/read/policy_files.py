"""Policies from files that no API server has validated."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from respread.api.decoding import NotAPolicyError, decode_manifest
from respread.api.policy import ClusterPolicySpec, Policy
from respread.program.command_line import CommandError
from respread_cli.read.yaml_documents import read_documents

DEFAULT_POLICY: Final = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
"""The policy for a plan if there is none: an empty spec."""


class PolicyFiles(NamedTuple):
    """The content of files."""

    policies: tuple[Policy, ...]
    """Those that can be read, with their problems."""
    mistakes: tuple[str, ...]
    """All of them, each with its file, document and field."""


def read_policies(files: Iterable[str], *, default_namespace: str) -> tuple[Policy, ...]:
    """Read the policies of YAML or JSON files with several documents or a List.

    Args:
        files: their paths, `-` for standard input.
        default_namespace: of RebalancePolicies without one.

    Raises:
        CommandError: a file can't be read, or a policy is invalid. The message contains all problems.
    """
    found = check_policies(files, default_namespace=default_namespace)
    if found.mistakes:
        count = len(found.mistakes)
        raise CommandError("\n  ".join([f"{count} mistakes:", *found.mistakes]) if count > 1 else found.mistakes[0])
    if not found.policies:
        raise CommandError(f"{', '.join(files)} holds no policy.")
    return found.policies


def check_policies(files: Iterable[str], *, default_namespace: str) -> PolicyFiles:
    """Return the policies of files, and all mistakes in them, also of files that can't be read.

    Args:
        files: their paths, `-` for standard input.
        default_namespace: of RebalancePolicies without one.
    """
    policies: dict[tuple[str, str], Policy] = {}
    mistakes: list[str] = []
    for file in files:
        try:
            documents = read_documents(file)
        except CommandError as error:
            mistakes.append(error.message)
            continue
        for where, document in documents:
            try:
                policy = decode_manifest(document, default_namespace=default_namespace)
            except NotAPolicyError as error:
                mistakes.append(f"{where}: {error}")
                continue
            mistakes += [f"{where} ({policy.kind} {policy.name}): {problem}" for problem in policy.problems]
            if (policy.kind, policy.name) in policies:
                mistakes.append(f"{where}: there is a {policy.kind} {policy.name} already")
            policies[policy.kind, policy.name] = policy
    return PolicyFiles(tuple(policies.values()), tuple(mistakes))
