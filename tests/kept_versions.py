"""The versions of Respread whose CRDs and objects are kept in tests/golden/versions, and how to add one.

`python -m tests.kept_versions NAME [REVISION]` runs the operator of a git revision on a sandbox until the statuses of
its policies have all fields, and keeps the policies and the CustomResourceDefinitions.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import yaml

from respread.api.policy import GROUP, PLURALS, PolicyKind
from respread_sandbox import Sandbox, SandboxOptions
from tests.faults.rounds import POLICY, wait_for
from tests.faults.stuck import skewed
from tests.integration.operator_process import REPOSITORY, OperatorProcess, evictions, install
from tests.integration.workloads import scale
from tests.policy_specs import GOOD_SPECS

KEPT: Final = REPOSITORY / "tests" / "golden" / "versions"
FILES: Final = {kind: f"{plural}.{GROUP}.yaml" for kind, plural in PLURALS.items()}
"""The files of the definitions, by the kind of policy."""
OLDEST: Final = "410469d"
"""The version before the first release with other fields than today's. Its name is its git revision."""
_SOURCE: Final = ("operator", "crds", "manifests")
_EVICTIONS: Final = 5
"""The number of workloads: three for the policy whose moves fail, and two for the one with two moves in flight."""
_SETTLED_SECONDS: Final = 8.0


class KeptVersion(NamedTuple):
    """The kept files of a version."""

    name: str
    definitions: dict[PolicyKind, dict[str, Any]]
    policies: list[dict[str, Any]]
    """The policies as the API server showed them, with the status that this version's operator wrote."""
    records: list[dict[str, Any]]
    """The records of the policies; none if this version had no records."""

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read a version from a folder that `keep` has written."""
        definitions = {
            kind: yaml.safe_load((folder / name).read_text(encoding="utf-8")) for kind, name in FILES.items()
        }
        kept = list(yaml.safe_load_all((folder / "policies.yaml").read_text(encoding="utf-8")))
        policies = [each for each in kept if each["kind"] in PLURALS]
        return cls(folder.name, definitions, policies, [each for each in kept if each not in policies])

    def schema(self, kind: PolicyKind, part: str) -> dict[str, Any]:
        """Return the schema of a policy's spec or status."""
        return schema_of(self.definitions[kind], part)


def kept_versions() -> list[KeptVersion]:
    """Return all kept versions."""
    return [KeptVersion.read(folder) for folder in sorted(KEPT.iterdir()) if folder.is_dir()]


def schema_of(definition: dict[str, Any], part: str) -> dict[str, Any]:
    """Return the schema of a policy's spec or status from a definition."""
    (version,) = definition["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def pruned(value: Any, schema: dict[str, Any]) -> Any:
    """Return a value without the fields that a schema lacks, as the API server prunes it."""
    match value:
        case dict() if "properties" in schema:
            known = schema["properties"]
            return {name: pruned(each, known[name]) for name, each in value.items() if name in known}
        case list():
            return [pruned(each, schema["items"]) for each in value]
        case _:
            return value


def source_of(revision: str, folder: Path) -> Path | None:
    """Write the source of a git revision into a folder, and return that; None if this clone does not have it."""
    command = ["git", "archive", revision, *_SOURCE]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False)
    if done.returncode != 0:
        return None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def keep(name: str, source: Path) -> None:
    """Run a version's operator on a sandbox, and keep its CRDs and its statuses of two policies."""
    with tempfile.TemporaryDirectory() as folder, Sandbox.start(SandboxOptions(nodes=9, audit=True)) as sandbox:
        install(sandbox, source)
        scale(sandbox, "respread-system", "respread", 0)
        _make_policies(sandbox)
        with OperatorProcess(sandbox, Path(folder), source=source) as operator:
            operator.wait_until_ready()
            wait_for(lambda: len(evictions(sandbox)) >= _EVICTIONS, "pods to be evicted for both policies")
            time.sleep(_SETTLED_SECONDS)
        plurals = [path.name.partition(".")[0] for path in sorted((source / "crds").glob("*.respread.dev.yaml"))]
        lists = [sandbox.api.get(f"/apis/respread.dev/v1alpha1/{plural}") for plural in plurals]
        found = [item for each in lists for item in each["items"]]
    kept = KEPT / name
    kept.mkdir(exist_ok=True)
    for file in FILES.values():
        (kept / file).write_bytes((source / "crds" / file).read_bytes())
    for each in found:
        each["metadata"].pop("managedFields", None)
        each["metadata"].pop("annotations", None)
    (kept / "policies.yaml").write_text(yaml.safe_dump_all(found, sort_keys=False, width=118), encoding="utf-8")


def _make_policies(sandbox: Sandbox) -> None:
    """Create one policy whose moves fail, one whose moves stay in flight, and one with every field."""
    for namespace in ("failing", "moving", "idle"):
        sandbox.create_namespace(namespace)
    for namespace in ("failing", "moving"):
        skewed(sandbox, namespace, "web", "api", "db", replicas=3, broken=True)
    hurried = {"mode": "Enforce", "quietPeriod": "1ms", "victims": {"minAge": "0s"}}
    # Its priority is above that of the installed policy.
    failing = {**hurried, "priority": 1, "limits": {"perHour": 100}, "eviction": {"readyTimeout": "1s"}}
    _, everything = GOOD_SPECS["everything, cluster"]
    everything = {name: each for name, each in everything.items() if name != "namespaceSelector"}
    made: tuple[tuple[PolicyKind, str, str, dict[str, Any]], ...] = (
        ("ClusterRebalancePolicy", "", POLICY, failing),
        ("RebalancePolicy", "moving", "own", {**hurried, "limits": {"inFlight": 2, "perHour": 100}}),
        ("RebalancePolicy", "idle", "everything", everything),
    )
    for kind, namespace, name, spec in made:
        path = f"/apis/respread.dev/v1alpha1{f'/namespaces/{namespace}' if namespace else ''}/{PLURALS[kind]}"
        body = {"apiVersion": "respread.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        sandbox.api.request("POST", path, json.loads(json.dumps(body)))


def main(arguments: list[str]) -> int:
    """Keep the version of the command line: a name, and the git revision if that is not the name."""
    if len(arguments) not in (1, 2):
        sys.stderr.write("usage: python -m tests.kept_versions NAME [REVISION]\n")
        return 2
    name, revision = arguments[0], arguments[-1]
    with tempfile.TemporaryDirectory() as folder:
        if (source := source_of(revision, Path(folder))) is None:
            sys.stderr.write(f"git has no revision {revision} here\n")
            return 2
        keep(name, source)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
