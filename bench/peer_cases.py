"""The cases of descheduler's own test of its topology spread plugin, tried on Respread: the table in docs/compare.md.

    python -m bench.peer_cases

The cases are not kept here: `go test` runs the test of the downloaded module, changed so that it also writes each case,
and what descheduler evicted, as JSON. Then `respread plan` plans for the same nodes and pods, as they are written and
with the same constraints on all pods of equal labels, as a Deployment would have them.

It ends with 1 if Respread contradicts itself, or differs from descheduler in a way that this page can't explain.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from bench.compare.page import PAGE
from bench.peer import VERSION, cache_folder, module_directory, run_go
from respread.api.reasons import Reason
from tests.generated_parts import GeneratedParts

PARTS: Final = GeneratedParts("make peer-tests")

PACKAGE: Final = "pkg/framework/plugins/removepodsviolatingtopologyspreadconstraint"
TEST: Final = "topologyspreadconstraint_test.go"
WRITTEN: Final = "respread_cases.jsonl"
_BEFORE: Final = "plugin.(frameworktypes.BalancePlugin).Balance(ctx, tc.nodes)\n"
_AFTER: Final = "podsEvicted := podEvictor.TotalEvicted()\n"
_WRITER: Final = """package removepodsviolatingtopologyspreadconstraint

import (
	"encoding/json"
	"os"
	"testing"
)

func writeCase(t *testing.T, written map[string]any) {
	line, err := json.Marshal(written)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(os.Getenv("RESPREAD_CASES"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\\n')); err != nil {
		t.Fatal(err)
	}
}
"""
_NAMESPACE: Final = "ns1"


class Case(NamedTuple):
    """One case, with what descheduler did."""

    name: str
    nodes: list[dict[str, Any]]
    pods: list[dict[str, Any]]
    args: Mapping[str, Any]
    """Of the plugin."""
    evicted: int

    @property
    def spec(self) -> dict[str, Any]:
        """The spec of a policy that says the same as the plugin's arguments."""
        return {
            "constraints": {"whenUnsatisfiable": self.args.get("constraints") or ["DoNotSchedule"]},
            "victims": {"minReplicas": 1, "minAge": "0s"},
            **({"podSelector": selector} if (selector := self.args.get("labelSelector")) else {}),
        }

    @property
    def as_meant(self) -> Case:
        """The case with equal constraints on all pods of equal labels; those of the first pod that has some."""
        carried: dict[str, Any] = {}
        for pod in self.pods:
            if own := pod["spec"].get("topologySpreadConstraints"):
                carried.setdefault(_labels(pod), own)
        pods = [
            {**pod, "spec": {**pod["spec"], "topologySpreadConstraints": carried.get(_labels(pod), [])}}
            for pod in self.pods
        ]
        return self._replace(pods=pods)

    @property
    def is_as_meant(self) -> bool:
        """Whether all pods of equal labels have equal constraints."""
        return all(
            (one["spec"].get("topologySpreadConstraints") or []) == (other["spec"]["topologySpreadConstraints"] or [])
            for one, other in zip(self.pods, self.as_meant.pods, strict=True)
        )


class Result(NamedTuple):
    """What Respread plans for a case."""

    evictions: int
    violated: int
    restored: int
    reasons: frozenset[str]
    """Why something stays violated."""


class Verdict(StrEnum):
    """How the evictions of both compare, as the table says it."""

    EQUAL = "equal"
    ROOM = "better: no evictions whose replacements find no room, and stay Pending"
    LOWER = "better: lowers the skew by evictions for which descheduler sees no place"
    OTHERS = "on purpose: leaves pods without the constraint alone, whose replacements may land in any domain"
    PENDING = "on purpose: evicts no pod to have its replacement Pending, as `topologyBalanceNodeFit: false` does"
    CONTRADICTORY = "contradictory: another plan for the same cluster without its ReplicaSets"


def judge(case: Case) -> Verdict:
    """Return how what Respread plans for a case compares with what descheduler did.

    Raises:
        SystemExit: it differs in a way that has no verdict yet.
    """
    result = plan(case)
    if result != plan(case, replica_sets=False):
        return Verdict.CONTRADICTORY
    if result.evictions == case.evicted:
        return Verdict.EQUAL
    if result.evictions > case.evicted and result.violated and Reason.UNKNOWN_REPLACEMENT in result.reasons:
        return Verdict.LOWER
    if result.evictions < case.evicted and Reason.NO_FEASIBLE_NODE in result.reasons:
        return Verdict.ROOM if case.args["topologyBalanceNodeFit"] else Verdict.PENDING
    if result.evictions < case.evicted and Reason.UNKNOWN_REPLACEMENT in result.reasons:
        return Verdict.OTHERS
    raise SystemExit(f"{case.name}: descheduler evicts {case.evicted}, Respread plans {result}; judge it")


def read_cases() -> Iterator[Case]:
    """Yield the cases, after running descheduler's test once for its version.

    Raises:
        SystemExit: Go is missing or failed, or the module's test has changed.
    """
    file = cache_folder() / WRITTEN
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        _write(file)
    for line in file.read_text(encoding="utf-8").splitlines():
        each = json.loads(line)
        yield Case(each["name"], each["nodes"], each["pods"], each["args"], int(each["evicted"]))


def _write(file: Path) -> None:
    module = module_directory(file.parent)
    source = module / PACKAGE / TEST
    text = source.read_text(encoding="utf-8")
    if text.count(_BEFORE) != 1 or text.count(_AFTER) != 1:
        raise SystemExit(f"{TEST} of descheduler {VERSION} has another form: adapt bench/peer_cases.py")
    before = 'written := map[string]any{"name": tc.name, "nodes": tc.nodes, "args": tc.args}\n'
    before += "podsBefore := []*v1.Pod{}\nfor _, pod := range tc.pods {\npod = pod.DeepCopy()\n"
    # The zero time, by which it says that a pod terminates, is null in JSON.
    before += "if pod.DeletionTimestamp != nil {\nnow := metav1.Now()\npod.DeletionTimestamp = &now\n}\n"
    before += 'podsBefore = append(podsBefore, pod)\n}\nwritten["pods"] = podsBefore\n'
    after = 'written["evicted"] = podsEvicted\nwriteCase(t, written)\n'
    text = text.replace(_BEFORE, before + _BEFORE).replace(_AFTER, _AFTER + after)
    with tempfile.TemporaryDirectory() as directory:
        # Go replaces no file of its module cache by an overlay, so the module is laid out once more, for this run.
        copy = Path(directory) / "module"
        shutil.copytree(module, copy, copy_function=shutil.copyfile)
        for each in (copy, copy / PACKAGE):
            each.chmod(0o755)
        (copy / PACKAGE / TEST).write_text(text, encoding="utf-8")
        (copy / PACKAGE / "respread_writer_test.go").write_text(_WRITER, encoding="utf-8")
        partial = file.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        run_go(
            *("test", "-count=1", "-vet=off", "-mod=readonly", "-run=^TestTopologySpreadConstraint$", f"./{PACKAGE}"),
            directory=copy,
            variables={"RESPREAD_CASES": str(partial)},
        )
        partial.rename(file)


def plan(case: Case, *, replica_sets: bool = True) -> Result:
    """Return what Respread plans for a case under a policy that says the same as the plugin's arguments.

    Args:
        case: the case.
        replica_sets: whether the snapshot contains the pods' ReplicaSets. The plan must be the same.
    """
    policy = {
        "apiVersion": "respread.dev/v1alpha1",
        "kind": "ClusterRebalancePolicy",
        "metadata": {"name": "peer"},
        "spec": case.spec,
    }
    items = [*map(_node, case.nodes), *map(_pod, case.pods), *_others(case, replica_sets=replica_sets)]
    with tempfile.TemporaryDirectory() as directory:
        snapshot, file = Path(directory) / "cluster.json", Path(directory) / "policy.json"
        snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
        file.write_text(json.dumps(policy), encoding="utf-8")
        command = [sys.executable, "-m", "respread_cli.main", "plan", "-o", "json"]
        done = subprocess.run(  # noqa: S603 - our own command
            [*command, "--snapshot", str(snapshot), "-f", str(file)], capture_output=True, text=True, check=True
        )
    found = json.loads(done.stdout)
    staying = sum(each["group"]["violated"] and each["violatedAfter"] for each in found["groups"])
    reasons = frozenset(each["reason"] for each in found["blocked"])
    return Result(found["evictions"], found["violated"], found["violated"] - staying, reasons)


def _node(node: Mapping[str, Any]) -> dict[str, Any]:
    return {**node, "apiVersion": "v1", "kind": "Node"}


def _pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pod as the API server would show it: its ReplicaSet is complete, and it is Ready."""
    metadata = {**pod["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}
    metadata["ownerReferences"] = [
        {**each, "apiVersion": "apps/v1", "uid": each["name"], "controller": True}
        for each in metadata.get("ownerReferences") or ()
    ]
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    return {**pod, "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


def _others(case: Case, *, replica_sets: bool) -> Iterator[dict[str, Any]]:
    """Yield the pods' namespace, and their ReplicaSets if wanted."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    names = {each["name"] for pod in case.pods for each in pod["metadata"].get("ownerReferences") or ()}
    for name in sorted(names) if replica_sets else ():
        metadata = {"name": name, "namespace": _NAMESPACE, "uid": name}
        yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}


def _labels(pod: Mapping[str, Any]) -> str:
    return json.dumps(pod["metadata"].get("labels") or {}, sort_keys=True)


def table(written: Counter[Verdict], meant: Counter[Verdict]) -> Iterator[str]:
    """Yield the lines of a Markdown table: how many cases have each verdict, as written and as meant."""
    yield f"| the evictions of Respread are | {written.total()} cases as written | {meant.total()} as meant |"
    yield "|---|---|---|"
    for verdict in Verdict:
        yield f"| {verdict} | {written[verdict]} | {meant[verdict]} |"


def main() -> None:
    """Judge every case, print the verdicts and write the table."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    judged: dict[Literal["written", "meant"], Counter[Verdict]] = {"written": Counter(), "meant": Counter()}
    for case in read_cases():
        judged["written"][verdict := judge(case)] += 1
        told = [f"as written {verdict.name}"]
        if not case.is_as_meant:
            judged["meant"][verdict := judge(case.as_meant)] += 1
            told.append(f"as meant {verdict.name}")
        print(f"{case.name}: {', '.join(told)}")
    text = "".join(f"{line}\n" for line in table(judged["written"], judged["meant"]))
    PAGE.write_text(PARTS.write(PAGE.read_text(encoding="utf-8"), "peer cases", f"{text}"), encoding="utf-8")
    print(f"\n{text}")
    if any(each[Verdict.CONTRADICTORY] for each in judged.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
