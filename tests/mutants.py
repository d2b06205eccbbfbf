"""Checks that `make test` detects faults: puts plausible faults into a copy of the code, one after another.

    python -m tests.mutants [--only WORD] [--with-control-plane]

For each fault, the tests run until one fails. The tests of the packages that the fault concerns run first. By default,
the tests on the control plane are left out, so that only tests that run within seconds can catch a fault. Prints which
test caught which fault. The exit code is 1 if no test caught a fault, or if its code has changed so that it can't be
put in.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
CODE: Final = "operator/respread"


class Fault(NamedTuple):
    """A plausible fault."""

    name: str
    file: str
    """Relative to `CODE`."""
    right: str
    """The code to replace, which occurs exactly once."""
    wrong: str
    packages: tuple[str, ...]
    """Folders of tests to try first."""

    def put_into(self, code: str) -> str:
        """Return the code of the file with the fault.

        Raises:
            LookupError: what it replaces is not there, or more than once, because the code has changed.
        """
        if (times := code.count(self.right)) != 1:
            raise LookupError(f"{self.file} has this {times} times instead of once: {self.right!r}")
        return code.replace(self.right, self.wrong)


FAULTS: Final = (
    Fault(
        "maxSkew is compared with >=: what just holds is violated",
        "spread/group.py",
        "return self.skew > self.key.max_skew",
        "return self.skew >= self.key.max_skew",
        ("spread", "planning"),
    ),
    Fault(
        "one pod more than maxSkew allows counts as allowed while a plan is searched",
        "planning/search/tally.py",
        "self.max_skew = group.key.max_skew",
        "self.max_skew = group.key.max_skew + 1",
        ("planning",),
    ),
    Fault(
        "minDomains is ignored: the minimum is never 0 for want of domains",
        "spread/group.py",
        "if domains < self.key.min_domains or len(self.counts) < domains or not domains:",
        "if len(self.counts) < domains or not domains:",
        ("spread", "planning"),
    ),
    Fault(
        "terminating pods count for a constraint",
        "scheduling/filters/topology_spread.py",
        "return bool(pod.node_name) and pod.deletion_timestamp is None and not pod.finished",
        "return bool(pod.node_name) and not pod.finished",
        ("spread", "scheduling"),
    ),
    Fault(
        "disruptionsAllowed is ignored for the second pod of a budget",
        "planning/victims/budgets.py",
        "if allowed > taken:",
        "if allowed > 0:",
        ("planning",),
    ),
    Fault(
        "unhealthyPodEvictionPolicy is read the wrong way round",
        "planning/victims/budgets.py",
        'if budget.unhealthy_pod_eviction_policy == "AlwaysAllow":\n            return Free',
        'if budget.unhealthy_pod_eviction_policy != "AlwaysAllow":\n            return Free',
        ("planning",),
    ),
    Fault(
        "evictions that a budget's status does not show yet are not taken off it",
        "planning/victims/budgets.py",
        "by_status = budget.disruptions_allowed - self.unseen(budget)",
        "by_status = budget.disruptions_allowed",
        ("planning", "eviction"),
    ),
    Fault(
        "a pod with two budgets is evicted by the first",
        "planning/victims/budgets.py",
        "if len(budgets) > 1:",
        "if len(budgets) > 2:",
        ("planning",),
    ),
    Fault(
        "a pod exactly of the threshold's priority is not protected",
        "planning/victims/protection.py",
        "if pod.spec.priority < self.priority_threshold:",
        "if pod.spec.priority <= self.priority_threshold:",
        ("planning",),
    ),
    Fault(
        "a step is safe though another DoNotSchedule constraint gets worse",
        "planning/search/safety.py",
        "if verdict.hard_worse or (landing.likely and (verdict.worse or not verdict.better)):",
        "if landing.likely and (verdict.worse or not verdict.better):",
        ("planning",),
    ),
    Fault(
        "moves go together though one lowers the minimum of a constraint",
        "planning/search/together.py",
        "return self.lowest is None or self.lowest >= self.most(self.coming)",
        "return True",
        ("planning",),
    ),
    Fault(
        "moves go together though minDomains leaves too few places for all",
        "planning/search/together.py",
        "return allowed if sum(places[domain] for domain in allowed) >= level.coming else []",
        "return allowed",
        ("planning",),
    ),
    Fault(
        "moves go together though a pod on its way may land where it makes a group worse",
        "planning/search/together.py",
        "return None  # It could land where it makes a group worse.",
        "pass",
        ("planning",),
    ),
    Fault(
        "a pod that is on its way is forgotten by the next plan",
        "planning/moving_pods.py",
        "coming = tuple(task.of(moving.coming))",
        "coming = ()",
        ("planning",),
    ),
    Fault(
        "a workload whose replacements fail has as many in flight as others",
        "eviction/limits/trust.py",
        "return _Ready(0, failed=False, at=now)",
        "return _Ready(12, failed=False, at=now)",
        ("eviction",),
    ),
    Fault(
        "an evicted pod's room counts as free before the pod is gone",
        "planning/search/board.py",
        "self._leaving = (*self._leaving, pod)\n",
        "self.placement.view.remove(pod)\n",
        ("planning",),
    ),
    Fault(
        "preemption is ignored: no pod is preempted for a pod of higher priority",
        "planning/preemption.py",
        "return Preemptor(seeker, reach) if reach else None",
        "return None",
        ("planning",),
    ),
    Fault(
        "a replacement that has a node counts as Ready: places in flight come free too early",
        "eviction/following.py",
        "if replacement is not None and flight.stage is Stage.PLACED and replacement.ready:",
        "if replacement is not None and flight.stage is Stage.PLACED:",
        ("eviction",),
    ),
    Fault(
        "limits.inFlight lets one more through",
        "eviction/limits/tallies.py",
        'in_all, most = "inFlight", self.limiter.limits.in_flight\n',
        'in_all, most = "inFlight", self.limiter.limits.in_flight + 1\n',
        ("eviction",),
    ),
    Fault(
        "limits.perHour forgets what the same wave has evicted",
        "eviction/limits/tallies.py",
        "            self._in_last_hour += 1\n",
        "",
        ("eviction",),
    ),
    Fault(
        "the back-off never grows",
        "eviction/backoff.py",
        "self.factor ** max(0, min(failures - 1, 64))",
        "1",
        ("eviction",),
    ),
    Fault(
        "the quiet period is over at once",
        "controller/quiet_period.py",
        "        if left <= 0:\n",
        "        if left:\n",
        ("controller",),
    ),
    Fault(
        "the last look at what may stop an eviction is skipped",
        "controller/evictions.py",
        "        if (held := self._last_look(move, batch, begun=begun)) is not None:\n"
        "            return held\n        self.register.sent(",
        "        self.register.sent(",
        ("controller", "eviction"),
    ),
    Fault(
        "the last look at the pod's controller is skipped",
        "eviction/owners/last_look.py",
        "return await self._of_own(move, snapshot, in_flight, together) or await self._others",
        "return await self._others",
        ("controller", "eviction"),
    ),
    Fault(
        "an eviction carries no UID: a namesake that came after the pod is evicted",
        "eviction/eviction_api.py",
        '{"preconditions": {"uid": pod.uid}}',
        "{}",
        ("eviction",),
    ),
    Fault(
        "an eviction without an answer is taken not to have been made",
        "eviction/eviction_api.py",
        "EvictionResult.UNKNOWN if error.sent else EvictionResult.UNREACHABLE",
        "EvictionResult.UNREACHABLE",
        ("eviction",),
    ),
    Fault(
        "who could not renew the Lease in time goes on as the leader",
        "kube/leadership.py",
        "return max(0.0, self._renewed_at + self.times.renew_deadline_seconds - self._clock())",
        "return max(0.0, self._renewed_at + 2 * self.times.lease_seconds - self._clock())",
        ("kube",),
    ),
    Fault(
        "a request for the Lease over a dead connection takes until the Lease is lost",
        "kube/leadership.py",
        "seconds = self.times.renew_deadline_seconds / 2",
        "seconds = self.times.renew_deadline_seconds",
        ("kube",),
    ),
    Fault(
        "a silent watch is started again from its version instead of a new list",
        "handlers/health.py",
        "return self._clock() - self._heard[kind] >= SILENT_SECONDS",
        "return False",
        ("handlers",),
    ),
    Fault(
        "a kind that is missing in the first discovery is never watched",
        "handlers/discovery.py",
        "missing = self._needed.get(path, set()).difference(found.names())",
        "missing = set[str]()",
        ("handlers",),
    ),
    Fault(
        "an eviction that a webhook denies counts as possibly made",
        "eviction/answers.py",
        "EvictionResult.FORBIDDEN if _is_of_webhook(status) else _result",
        "_result",
        ("eviction",),
    ),
    Fault(
        "room for the later moves of a group is not reserved",
        "planning/planner.py",
        "            each.reserve()\n",
        "            pass\n",
        ("planning",),
    ),
    Fault(
        "no room is reserved for a group that our moves have begun to restore",
        "controller/quiet_period.py",
        "                self._begun[key] = now\n",
        "",
        ("controller",),
    ),
    Fault(
        "an evicted pod is taken to be gone when its move has ended",
        "controller/records/evicted_pods.py",
        "            self._known |= {uid: workload for uid, workload in before.items() if uid in here}\n",
        "",
        ("controller",),
    ),
    Fault(
        "an eviction that a former leader may have made does not count for the limits of an hour",
        "controller/records/doubts.py",
        "            self._history.expect(move.pod.uid, Expected(move.policy, (move.policy,), move.groups))\n",
        "",
        ("controller",),
    ),
    Fault(
        "an eviction counts as not made while a late request for it may still arrive",
        "controller/records/doubts.py",
        "CERTAIN_SECONDS: Final = 180.0",
        "CERTAIN_SECONDS: Final = 60.0",
        ("controller",),
    ),
    Fault(
        "an eviction that was requested again meanwhile counts as not made, by what was read before",
        "controller/records/doubts.py",
        "return self._doubts.get(doubt.move.pod.uid) is doubt",
        "return doubt.move.pod.uid in self._doubts",
        ("controller",),
    ),
    Fault(
        "an eviction without an answer does not count any more",
        "controller/records/accounts.py",
        "            else:\n                self._doubts.note(move)\n",
        "            else:\n                self.history.not_made(move.pod.uid)\n",
        ("controller",),
    ),
    Fault(
        "whoever may write a status can make evictions forgotten",
        "controller/records/recovery.py",
        "        and flight.uid in listed.get(flight.move.policy, ())\n",
        "",
        ("controller",),
    ),
    Fault(
        "evictions of a former leader are forgotten up to a minute too early",
        "controller/records/checkpoint.py",
        "last = min(minute.minute.timestamp(), now) + MINUTE_SECONDS",
        "last = min(minute.minute.timestamp(), now)",
        ("controller",),
    ),
    Fault(
        "records are written though another replica may lead",
        "controller/records/exclusive_requests.py",
        "        if self._exclusive_seconds() <= 0:",
        "        if self._exclusive_seconds() < -60:",
        ("controller",),
    ),
    Fault(
        "moves in flight don't count for the next choice",
        "controller/permits/choosing.py",
        "in_flight=in_flight,",
        "in_flight=(),",
        ("controller",),
    ),
    Fault(
        "a replica that leads again makes moves that it planned in an earlier term",
        "controller/permits/permission.py",
        " or self._leading.term() != planned.term",
        "",
        ("controller",),
    ),
    Fault(
        "a policy that the API server has changed and the watch has not brought evicts",
        "controller/permits/permission.py",
        "if confirmed.versions != planned.by_place.get(place, PoliciesThere()).versions:",
        "if confirmed.versions is None:",
        ("controller",),
    ),
    Fault(
        "steps of the same controller run at the same time",
        "controller/permits/lanes.py",
        "for controller in sorted({_controller(move) for move in step}):",
        "for controller in sorted(move.pod.uid for move in step):",
        ("controller",),
    ),
    Fault(
        "one kind whose watch is fresh is enough, however old the others are",
        "controller/permits/staleness.py",
        "kind, age = max(",
        "kind, age = min(",
        ("controller",),
    ),
    Fault(
        "a pod that an eviction in flight leaves behind is counted as still to be evicted",
        "controller/permits/begun_groups.py",
        "if still_there(snapshot, flight.move.pod) is not None and counts.get(domain):",
        "if still_there(snapshot, flight.move.pod) is None and counts.get(domain):",
        ("controller",),
    ),
    Fault(
        "evictions are kept for groups that nobody has begun",
        "controller/permits/begun_groups.py",
        "        if not observation.history.pace_of(group).in_last_hour:\n            continue\n",
        "",
        ("controller",),
    ),
    Fault(
        "what begun groups still need within the hour is given to others",
        "eviction/limits/hour.py",
        "- sum(each.evictions for each in kept if tally.applies(each.policy, each.namespace, each.labels))",
        "",
        ("eviction", "controller"),
    ),
    Fault(
        "groups are begun with the last evictions of an hour rather than finished",
        "eviction/limits/hour.py",
        "return step[0].wave > 0, rank, stretch.price, is_new",
        "return step[0].wave > 0, rank, -stretch.price, is_new",
        ("eviction", "controller"),
    ),
    Fault(
        "of new pods the oldest is deleted first",
        "prevention/ranks.py",
        "-created.timestamp()",
        "created.timestamp()",
        ("prevention",),
    ),
    Fault(
        "costs go below those with which others want pods deleted first",
        "prevention/ranks.py",
        "            above = max(above, cost.value)\n",
        "",
        ("prevention",),
    ),
    Fault(
        "a pod that is deleted earlier whatever its cost counts as one that outlasts the others",
        "prevention/ranks.py",
        "outlasting = [pod for pod in everyone if _band(pod) > band]",
        "outlasting = [pod for pod in everyone if _band(pod) != band]",
        ("prevention",),
    ),
    Fault(
        "costs stay though no integers are left for the pods between them",
        "prevention/costs.py",
        "if cost is None or not above + position < cost <= position - len(order):",
        "if cost is None or not above < cost < 0:",
        ("prevention",),
    ),
    Fault(
        "a domain with just as many pods as maxSkew allows counts as too full when pods are ranked",
        "prevention/layout.py",
        "if count > self.minimum + self._max_skew:\n            return -1",
        "if count >= self.minimum + self._max_skew:\n            return -1",
        ("prevention",),
    ),
    Fault(
        "patches that are queued are sent in a namespace where the permission is missing",
        "prevention/prevention.py",
        "while (patch := first()) is not None and self._resting.get(patch.pod.namespace, -inf) > now:",
        "while (patch := first()) is not None and False:",
        ("prevention",),
    ),
    Fault(
        "every request asks anew whether a missing permission is granted",
        "controller/permits/permissions.py",
        "return self._is_unknown(permission) if missing is None else missing.until <= now",
        "return missing is not None or self._is_unknown(permission)",
        ("controller",),
    ),
    Fault(
        "a pod counts for the reason of its group although it may not be evicted for another",
        "planning/explain/held_pods.py",
        "counts[protected.get(pod.uid, blocked[group.key])] += 1",
        "counts[blocked[group.key]] += 1",
        ("planning",),
    ),
    Fault(
        "a cost that somebody else wrote is replaced without being asked to",
        "prevention/deletion_costs.py",
        '**({"force": "true"} if replacing else {})',
        '"force": "true"',
        ("prevention",),
    ),
    Fault(
        "reading from a session that Kopf has closed ends all watches",
        "handlers/watch_stream.py",
        "except RuntimeError as error:  # aiohttp's",
        "except KeyError as error:  # aiohttp's",
        ("handlers",),
    ),
    Fault(
        "an empty file of authorities means those of the system",
        "kube/tls.py",
        "if not content.strip():",
        "if content is None:",
        ("kube",),
    ),
    Fault(
        "changed files of certificates are not read again",
        "kube/tls.py",
        "if (content := _read(self._endpoint)) != self._content:",
        "if (content := _read(self._endpoint)) is None:",
        ("kube",),
    ),
)


KINDS: Final = ("unit", "integration", "properties")
"""Folders of tests, the fast ones first."""
NOT_A_CATCH: Final = "tests/unit/project/test_mutants.py"
"""It fails with every fault, because none can be put in twice."""


class Verdict(NamedTuple):
    """The result of a fault."""

    by: str
    """The first test that failed; empty if none did."""
    seconds: float


@contextmanager
def tree() -> Iterator[Path]:
    """Copy the files under version control from the work tree."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="respread-mutants-") as directory:
        copy = Path(directory)
        for name in listed.stdout.splitlines():
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name)
        subprocess.run(["git", "init", "--quiet", "."], cwd=copy, check=True)
        yield copy


def caught(copy: Path, fault: Fault | None, selections: Sequence[Sequence[str]]) -> Verdict:
    """Run selections of tests in a copy with a fault until a test fails, and fails again when it runs alone.

    Raises:
        LookupError: the fault can't be put in, or the test also fails without it.
    """
    begun = time.monotonic()
    if fault is not None:
        file = copy / CODE / fault.file
        before = file.read_text(encoding="utf-8")
        file.write_text(fault.put_into(before), encoding="utf-8")
    try:
        failures = (found for selected in selections if (found := first_failure(copy, selected)))
        by = next((found for found in failures if first_failure(copy, [found])), "")
    finally:
        if fault is not None:
            file.write_text(before, encoding="utf-8")
    if by and fault is not None and first_failure(copy, [by]):
        raise LookupError(f"{by} fails without any fault, too")
    return Verdict(by, time.monotonic() - begun)


def first_failure(copy: Path, selected: Sequence[str]) -> str:
    """Run tests until one fails, and return its name."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "operator"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider"]
    command += ["--tb=no", f"--ignore={NOT_A_CATCH}"]
    done = subprocess.run([*command, *selected], cwd=copy, env=environment, check=False, capture_output=True, text=True)
    if done.returncode in {0, 5}:  # all passed, or there are none
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found[1] if found else f"pytest ended with {done.returncode}: {done.stderr[-300:]}"


def selections_for(copy: Path, packages: Sequence[str], *, marked: Sequence[str]) -> list[list[str]]:
    """Return the tests to run: first those of some packages, by type, then all."""
    by_kind = [[str(path) for package in packages for path in copy.glob(f"tests/{kind}/{package}")] for kind in KINDS]
    return [[*folders, *marked] for folders in by_kind if folders] + [["tests", *marked]]


def main() -> int:
    """Try all faults, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", default="", metavar="WORD", help="only faults that have it in their name or file")
    parser.add_argument("--with-control-plane", action="store_true", help="run tests on the control plane, too")
    options = parser.parse_args()
    marked = ["-m", "not long" if options.with_control_plane else "not long and not controlplane"]
    faults = [fault for fault in FAULTS if options.only in f"{fault.file} {fault.name}"]
    missed = 0
    with tree() as copy:
        if not options.only and (by := caught(copy, None, [["tests", *marked]]).by):
            print(f"Without any fault {by} fails.")
            return 1
        for fault in faults:
            try:
                by, seconds = caught(copy, fault, selections_for(copy, fault.packages, marked=marked))
            except LookupError as error:
                by, seconds = "", 0.0
                print(f"This says nothing: {error}")
            missed += not by
            print(f"{'caught' if by else 'MISSED'}  {seconds:4.0f} s  {fault.name}\n                {by}", flush=True)
    print(f"{len(faults) - missed} of {len(faults)} faults are caught.")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
