"""Policies from files that no API server has checked."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import yaml

from respread.api.decoding import NotAPolicyError, decode_manifest
from respread.api.policy import API_VERSION, ClusterPolicySpec, Policy
from respread.cli.errors import CommandError

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
        name = "standard input" if file == "-" else file
        for where, document in _documents(file, name):
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


def _documents(file: str, name: str) -> list[tuple[str, Any]]:
    """Return the documents of a file, each with what to call it; empty ones, as after a last `---`, are none."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except OSError as error:
        raise CommandError(f"{name} can't be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not text in UTF-8: {error}.") from error
    except yaml.YAMLError as error:
        raise CommandError(f"{name} is not YAML: {error}") from error
    found: list[tuple[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        where = name if len(documents) == 1 else f"{name}, document {number}"
        if isinstance(document, dict) and isinstance(document.get("items"), list):
            api_version, kind = document.get("apiVersion"), str(document.get("kind", ""))
            for position, item in enumerate(document["items"]):
                if isinstance(item, dict) and api_version == API_VERSION:
                    item = {"apiVersion": api_version, "kind": kind.removesuffix("List"), **item}  # noqa: PLW2901 - it is the same item, made whole
                found.append((f"{where}, items[{position}]", item))
        else:
            found.append((where, document))
    return found
