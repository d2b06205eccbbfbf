"""The conformance data as it lies in a folder: one family a file, one case a line. README.md says what is in one."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

FAMILY_SUFFIXES = (".jsonl.gz", ".jsonl")
QUANTITIES = "quantities"


class ExpectedNode(msgspec.Struct, rename="camel"):
    feasible: bool
    rejected_by: list[str] = []
    reasons: dict[str, list[str]] = {}


class ExpectedHard(msgspec.Struct, rename="camel"):
    topology_key: str
    max_skew: int
    min_domains: int
    node_affinity_policy: str
    node_taints_policy: str
    selector: str
    self_match: bool
    counts: dict[str, int]
    min_match_num: int


class ExpectedSoft(msgspec.Struct, rename="camel"):
    topology_key: str
    max_skew: int
    node_affinity_policy: str
    node_taints_policy: str
    selector: str
    weight: float
    counts: dict[str, int]


class ExpectedScore(msgspec.Struct):
    raw: int
    normalized: int


class ExpectedSpread(msgspec.Struct, rename="camel"):
    hard: list[ExpectedHard]
    soft: list[ExpectedSoft]
    scores: dict[str, ExpectedScore] = {}
    ignored_nodes: list[str] | None = None


class Expected(msgspec.Struct, rename="camel"):
    feasible_nodes: list[str]
    nodes: dict[str, ExpectedNode]
    topology_spread: ExpectedSpread
    errors: dict[str, Any] = {}


class Case(msgspec.Struct, rename="camel", kw_only=True):
    """A small cluster, a pod to be placed, and what the scheduler said of it."""

    id: str
    config: dict[str, Any]
    pod: msgspec.Raw
    expected: Expected
    nodes: list[msgspec.Raw]
    pods: list[msgspec.Raw] = []
    namespaces: list[msgspec.Raw] = []
    services: list[msgspec.Raw] = []
    replica_sets: list[msgspec.Raw] = []
    stateful_sets: list[msgspec.Raw] = []
    replication_controllers: list[msgspec.Raw] = []
    persistent_volumes: list[msgspec.Raw] = []
    persistent_volume_claims: list[msgspec.Raw] = []
    storage_classes: list[msgspec.Raw] = []
    csi_nodes: list[msgspec.Raw] = []

    def objects(self) -> Iterator[tuple[str, list[msgspec.Raw]]]:
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
    """A string, and what the API reads it as."""

    quantity: str
    error: str | None = None
    canonical: str | None = None
    value: int | None = None
    milli_value: int | None = None
    is_zero: bool | None = None


class NoCasesError(ValueError):
    """A folder that holds no conformance data."""


def families_of(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by the names of their families.

    Raises:
        NoCasesError: there is none.
    """
    found = {
        path.name.removesuffix(suffix): path for suffix in FAMILY_SUFFIXES for path in sorted(folder.glob(f"*{suffix}"))
    }
    if not found:
        raise NoCasesError(f"{folder} has no files called <family>.jsonl.gz: it holds no conformance data")
    return dict(sorted(found.items()))


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a family's file that are not empty."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as lines:
        yield from (line for line in lines if line.strip())
