"""The cases of descheduler's own test of its topology spread plugin, tried on Respread.

    python -m bench.peer_cases

The cases are not kept here: `go test` runs the test of the downloaded module, changed so that it also writes each case,
and what descheduler evicted, as JSON. Then `respread plan` plans for the same nodes and pods, as they are written and
with the same constraints on all pods of equal labels, as a Deployment would have them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.peer import VERSION, cache_folder, module_directory, run_go

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
    kinds: list[str]
    """The kinds of constraints that it restores; empty for its default, DoNotSchedule."""
    evicted: int

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
    reasons: tuple[str, ...]
    """Why something stays violated."""


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
        yield Case(
            each["name"], each["nodes"], each["pods"], each["args"].get("constraints") or [], int(each["evicted"])
        )


def _write(file: Path) -> None:
    module = module_directory(file.parent)
    source = module / PACKAGE / TEST
    text = source.read_text(encoding="utf-8")
    if text.count(_BEFORE) != 1 or text.count(_AFTER) != 1:
        raise SystemExit(f"{TEST} of descheduler {VERSION} has another form: adapt bench/peer_cases.py")
    before = 'written := map[string]any{"name": tc.name, "nodes": tc.nodes, "args": tc.args}\n'
    before += (
        "podsBefore := []*v1.Pod{}\nfor _, pod := range tc.pods {\npodsBefore = append(podsBefore, pod.DeepCopy())\n"
    )
    before += '}\nwritten["pods"] = podsBefore\n'
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
            *("test", "-count=1", "-mod=readonly", "-run=^TestTopologySpreadConstraint$", f"./{PACKAGE}"),
            directory=copy,
            variables={"RESPREAD_CASES": str(partial)},
        )
        partial.rename(file)


def plan(case: Case) -> Result:
    """Return what Respread plans for a case under a policy that restores the same kinds of constraints."""
    policy = {
        "apiVersion": "respread.dev/v1alpha1",
        "kind": "ClusterRebalancePolicy",
        "metadata": {"name": "peer"},
        "spec": {
            "constraints": {"whenUnsatisfiable": case.kinds or ["DoNotSchedule"]},
            "victims": {"minReplicas": 1, "minAge": "0s"},
        },
    }
    items = [*map(_node, case.nodes), *map(_pod, case.pods), *_others(case)]
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
    reasons = tuple(dict.fromkeys(each["reason"] for each in found["blocked"]))
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


def _others(case: Case) -> Iterator[dict[str, Any]]:
    """Yield the pods' namespace and their ReplicaSets."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    names = {each["name"] for pod in case.pods for each in pod["metadata"].get("ownerReferences") or ()}
    for name in sorted(names):
        metadata = {"name": name, "namespace": _NAMESPACE, "uid": name}
        yield {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}


def _labels(pod: Mapping[str, Any]) -> str:
    return json.dumps(pod["metadata"].get("labels") or {}, sort_keys=True)


def table(cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of a Markdown table: every case that differs, and how many are equal."""
    yield "| case of descheduler | it evicts | Respread evicts | and leaves violated |"
    yield "|---|---|---|---|"
    equal = {"as written": 0, "as meant": 0}
    tried = {"as written": 0, "as meant": 0}
    for case in cases:
        variants = {"as written": case} if case.is_as_meant else {"as written": case, "as meant": case.as_meant}
        for variant, each in variants.items():
            result = plan(each)
            tried[variant] += 1
            if result.evictions == each.evicted:
                equal[variant] += 1
                continue
            left = f"{result.violated - result.restored} of {result.violated}"
            said = f" ({', '.join(result.reasons)})" if result.reasons else ""
            yield f"| {each.name}, {variant} | {each.evicted} | {result.evictions} | {left}{said} |"
    for variant, number in equal.items():
        yield f"| {number} of {tried[variant]} cases {variant} | the same | the same | |"


def main() -> None:
    """Print the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for line in table(list(read_cases())):
        print(line)


if __name__ == "__main__":
    main()
