"""The conformance data in a folder: one file for each family, one line for each case. README.md describes a case.

Unknown fields are ignored. A list or an object that may be empty may also be missing or null.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

FAMILY_SUFFIXES = (".jsonl.gz", ".jsonl")
QUANTITIES = "quantities"


class ExpectedNode(msgspec.Struct, rename="camel"):
    feasible: bool
    rejected_by: list[str] | None = None
    reasons: dict[str, list[str]] | None = None


class ExpectedHard(msgspec.Struct, rename="camel"):
    topology_key: str
    max_skew: int
    min_domains: int
    node_affinity_policy: str
    node_taints_policy: str
    selector: str
    self_match: bool
    min_match_num: int
    counts: dict[str, int] | None = None


class ExpectedSoft(msgspec.Struct, rename="camel"):
    topology_key: str
    max_skew: int
    node_affinity_policy: str
    node_taints_policy: str
    selector: str
    weight: float
    counts: dict[str, int] | None = None


class ExpectedScore(msgspec.Struct):
    raw: int
    normalized: int


class ExpectedSpread(msgspec.Struct, rename="camel"):
    hard: list[ExpectedHard] | None = None
    soft: list[ExpectedSoft] | None = None
    scores: dict[str, ExpectedScore] | None = None
    ignored_nodes: list[str] | None = None


class Expected(msgspec.Struct, rename="camel"):
    nodes: dict[str, ExpectedNode]
    topology_spread: ExpectedSpread
    feasible_nodes: list[str] | None = None
    errors: dict[str, Any] | None = None


class Case(msgspec.Struct, rename="camel", kw_only=True):
    """A small cluster, a pod to place, and the scheduler's answer."""

    id: str
    config: dict[str, Any]
    pod: msgspec.Raw
    expected: Expected
    nodes: list[msgspec.Raw] | None
    pods: list[msgspec.Raw] | None = None
    namespaces: list[msgspec.Raw] | None = None
    services: list[msgspec.Raw] | None = None
    replica_sets: list[msgspec.Raw] | None = None
    stateful_sets: list[msgspec.Raw] | None = None
    replication_controllers: list[msgspec.Raw] | None = None
    persistent_volumes: list[msgspec.Raw] | None = None
    persistent_volume_claims: list[msgspec.Raw] | None = None
    storage_classes: list[msgspec.Raw] | None = None
    csi_nodes: list[msgspec.Raw] | None = None

    def objects(self) -> Iterator[tuple[str, list[msgspec.Raw] | None]]:
        """Yield the cluster's objects by resource."""
        yield "nodes", self.nodes
        yield "pods", self.pods
        yield "namespaces", self.namespaces
        yield "services", self.services
        yield "replicasets", self.replica_sets
        yield "statefulsets", self.stateful_sets
        yield "replicationcontrollers", self.replication_controllers
        yield "persistentvolumes", self.persistent_volumes
        yield "persistentvolumeclaims", self.persistent_volume_claims
        yield "storageclasses", self.storage_classes
        yield "csinodes", self.csi_nodes


class QuantityRow(msgspec.Struct, rename="camel"):
    """A string, and how the API parses it."""

    quantity: str
    error: str | None = None
    value: int | None = None
    milli_value: int | None = None
    is_zero: bool | None = None


class NoCasesError(ValueError):
    """A folder that holds no conformance data."""


class UnreadableFileError(ValueError):
    """A file that can't be read completely."""


def families_of(place: Path) -> dict[str, Path]:
    """Return the files of a folder by the names of their families, or a single file with its family.

    Raises:
        NoCasesError: there is none.
    """
    if not place.exists():
        raise NoCasesError(f"{place} does not exist")
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    found = {
        path.name.removesuffix(suffix): path
        for suffix in FAMILY_SUFFIXES
        for path in files
        if path.name.endswith(suffix) and path.is_file()
    }
    if not found:
        raise NoCasesError(f"{place} holds no conformance data: that is in files called <family>.jsonl.gz")
    return dict(sorted(found.items()))


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a family's file that are not empty.

    Raises:
        UnreadableFileError: the file is corrupt or truncated. The lines before that are yielded.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
            yield from (line for line in lines if line.strip())
    except (OSError, EOFError, zlib.error) as error:
        raise UnreadableFileError(f"{path.name} can't be read: {error}") from error
