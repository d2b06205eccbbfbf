"""The words by which users name workloads, pods and policies: what they mean, and what was probably meant.

Label selectors, `app=web,tier in (a,b),!canary`, are read as by apimachinery's `labels.Parse` (pkg/labels/selector.go),
except for `<` and `>`, which label selectors of the API don't have either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Final, Self

import click
import msgspec

from respread.api.fields import LabelSelector
from respread.api.policy import Policy
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.selectors import Requirement, Selector, SelectorError, compile_selector, requirement
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Move, Plan
from respread.program.command_line import CommandError
from respread.spread.group import SpreadGroup

SHORT_KINDS: Final[Mapping[str, str]] = {
    "DaemonSet": "ds",
    "Deployment": "deploy",
    "Pod": "pod",
    "ReplicaSet": "rs",
    "ReplicationController": "rc",
    "StatefulSet": "sts",
}
"""kubectl's short names."""
_API_GROUPS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"), "apps"),
    **dict.fromkeys(("CronJob", "Job"), "batch"),
}
_KIND_WORDS: Final[Mapping[str, str]] = {
    word: kind for kind, short in SHORT_KINDS.items() for word in (short, f"{short}s", kind.lower(), f"{kind.lower()}s")
} | {
    "deployments": "Deployment",
    "po": "Pod",
    "job": "Job",
    "jobs": "Job",
    "rollout": "Rollout",
    "rollouts": "Rollout",
    "clone": "CloneSet",
    "cloneset": "CloneSet",
    "clonesets": "CloneSet",
}
_POLICIES: Final = frozenset(
    {
        "policy",
        "crbp",
        "rbp",
        "clusterrebalancepolicy",
        "clusterrebalancepolicies",
        "rebalancepolicy",
        "rebalancepolicies",
    }
)
_PODS: Final = frozenset({"po", "pod", "pods"})
_WILDCARDS: Final = frozenset("*?[")
_MOST: Final = 3
_CLOSE: Final = 0.6
"""The similarity, from 0 to 1, of words of three letters of which one is wrong, is above this."""
_LETTERS_PER_MISSING: Final = 3
"""One letter in so many may be missing or too many, and one in any case."""
_TOKEN: Final = re.compile(r"\s*(?:(==|!=|[=!,()<>])|([^\s=!,()<>]+))")
_EQUALS: Final = ("=", "==")


class WorkloadReference(msgspec.Struct, frozen=True):
    """A workload, in the namespace of its group."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Return the form that kubectl accepts: `deploy/web`."""
        return f"{SHORT_KINDS.get(self.kind, self.kind.lower())}/{self.name}"

    @classmethod
    def of(cls, workload: WorkloadName) -> Self:
        """Return the reference to a workload."""
        return cls(workload.kind, workload.name)

    @property
    def full_name(self) -> str:
        """The form of kubectl's `-o name`: `deployment.apps/web`."""
        group = _API_GROUPS.get(self.kind)
        return f"{self.kind.lower()}{'' if group is None else f'.{group}'}/{self.name}"


def joined_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return arguments with each kind joined to the name after it: `deployment web` is `deployment/web`, as in kubectl.

    A word that follows no kind, or is the last one, stays as it is, because a workload may be named like a kind.
    """
    joined: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if left and word.partition(".")[0].lower() in _KIND_WORDS.keys() | _POLICIES and "/" not in left[0]:
            word = f"{word}/{left.pop(0)}"
        joined.append(word)
    return tuple(joined)


def is_pattern(word: str) -> bool:
    """Return whether a word has wildcards, as `web-*`."""
    return not _WILDCARDS.isdisjoint(word)


def workload_matches(pattern: str, workload: WorkloadName) -> bool:
    """Return whether an argument selects a workload: `web`, `deploy/web`, `deployments.apps/web`, `web-*`."""
    kind, slash, name = pattern.rpartition("/")
    word = kind.partition(".")[0].lower()
    if slash and _KIND_WORDS.get(word, word) not in {workload.kind, workload.kind.lower()}:
        return False
    return fnmatchcase(workload.name, name)


class Target:
    """What a command is about: pods or policies, never both."""

    def __init__(
        self,
        *,
        pods: Iterable[Pod] = (),
        whole_workloads: bool = True,
        policies: Iterable[Policy] = (),
        namespace: str | None = None,
    ) -> None:
        """Select pods, those of workloads if these are whole, or policies, in a namespace; None for all."""
        self.pods = tuple(sorted(pods, key=lambda pod: pod.key))
        self.workloads = tuple(sorted({workload_of(pod) for pod in self.pods}))
        self.whole_workloads = whole_workloads
        """Whether workloads are selected, and not single pods of them."""
        self.policies = tuple(policies)
        self._namespace = namespace
        self._policy_names = frozenset(policy.name for policy in self.policies)
        self._workload_names = frozenset(self.workloads)
        self._labels = frozenset((pod.namespace, pod.labels) for pod in self.pods)
        self._keys = frozenset(pod.key for pod in self.pods)

    def concerns(self, group: SpreadGroup, plan: Plan) -> bool:
        """Return whether the pods have a group's constraint or are counted by it, or the policies restore the group."""
        if self._namespace not in {None, group.key.namespace}:
            return False
        return (
            plan.policies.get(group.key) in self._policy_names
            or not self._workload_names.isdisjoint(group.workloads)
            or any((group.key.namespace, labels) in self._labels for labels in group.matched)
        )

    def has_moved(self, move: Move) -> bool:
        """Return whether a move evicts one of the pods, or is made for one of the policies."""
        if self.pods:
            return move.pod.key in self._keys
        return move.policy in self._policy_names and self._namespace in {None, move.pod.namespace}


def find_target(
    word: str, snapshot: ClusterSnapshot, policies: Iterable[Policy], namespace: str | None = None
) -> Target:
    """Return the target for `deploy/web`, `pod/web-1`, `crbp/default`, or just a name.

    A name is that of a workload, else of a pod, else of a policy. A namespace of None is everywhere, and all objects
    with the name are selected.

    Raises:
        CommandError: there is no such object.
    """
    policies = tuple(policies)
    kind, slash, name = word.rpartition("/")
    kind = kind.partition(".")[0].lower()

    def of_workloads() -> Target:
        return Target(pods=(pod for pod in _pods(snapshot, namespace) if workload_matches(word, workload_of(pod))))

    def single() -> Target:
        return Target(pods=(pod for pod in _pods(snapshot, namespace) if pod.name == name), whole_workloads=False)

    def of_policies() -> Target:
        found = (each for each in policies if name in {each.object_name, each.name})
        there = (each for each in found if each.is_cluster_policy or namespace in {None, each.namespace})
        return Target(policies=there, namespace=namespace)

    ways: tuple[Callable[[], Target], ...] = (of_workloads, single, of_policies)
    if slash:
        ways = (single,) if kind in _PODS else (of_policies,) if kind in _POLICIES else (of_workloads,)
    for way in ways:
        target = way()
        if target.pods or target.policies:
            return target
    where = "" if namespace is None else f" in namespace {namespace}"
    what = "policy" if ways == (of_policies,) else "pod" if ways == (single,) else "workload with pods"
    if not slash:
        what = "workload with pods, no pod and no policy"
    meant = _meant(name, snapshot, policies, namespace)
    raise CommandError(f"there is no {what} named {name}{where}.{did_you_mean(meant)}")


def _meant(name: str, snapshot: ClusterSnapshot, policies: Iterable[Policy], namespace: str | None) -> list[str]:
    """Return the targets with names close to one, or with this name and of another kind."""
    words: dict[str, str] = {}
    for pod in _pods(snapshot, namespace):
        workload = workload_of(pod)
        words[pod.name] = f"pod/{pod.name}"
        words[workload.name] = str(WorkloadReference.of(workload))
    for each in policies:
        words.setdefault(each.object_name, f"{'crbp' if each.is_cluster_policy else 'rbp'}/{each.object_name}")
    return [words[each] for each in close_to(name, words)]


def one_target(ctx: click.Context, _param: click.Parameter, words: Sequence[str]) -> str | None:
    """Return the target that a command line names in one word, or as kubectl's `deployment web`; None without words.

    Raises:
        click.UsageError: it names several.
    """
    joined = joined_words(words)
    if len(joined) > 1:
        raise click.UsageError(f"name one target, not {' and '.join(joined)}.", ctx)
    return joined[0] if joined else None


def check_namespace(namespace: str | None, snapshot: ClusterSnapshot) -> None:
    """Refuse a namespace that does not exist, because no result must not look as if all were well.

    Raises:
        CommandError: the snapshot contains namespaces, and this one is not among them.
    """
    if namespace is None or not snapshot.namespaces or namespace in snapshot.namespaces:
        return
    if namespace not in snapshot.pods_by_labels:
        close = did_you_mean(close_to(namespace, snapshot.namespaces))
        raise CommandError(f"there is no namespace {namespace}.{close}")


def _pods(snapshot: ClusterSnapshot, namespace: str | None) -> Iterator[Pod]:
    """Yield the unfinished pods of a namespace, or of all."""
    return (pod for pod in snapshot.pods_in(namespace) if not pod.finished)


def close_to(word: str, known: Iterable[str]) -> list[str]:
    """Return the known words that a word is probably a misspelling of, the closest first."""
    most = max(1, len(word) // _LETTERS_PER_MISSING)
    alike = [each for each in known if abs(len(each) - len(word)) <= most]
    return get_close_matches(word, alike, n=_MOST, cutoff=_CLOSE)


def did_you_mean(words: Collection[str]) -> str:
    """Return a question to append to an error, with a blank before it; nothing without words."""
    return f" Did you mean {' or '.join(words)}?" if words else ""


def parse_selector(text: str) -> Selector:
    """Return the selector that a text stands for. An empty text selects everything.

    Raises:
        SelectorError: the API server would reject it.
    """
    everything = compile_selector(LabelSelector())
    return everything.with_requirements(_Tokens(text).requirements())


class _Tokens:
    """The operators, keys and values of a selector, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [found[1] or found[2] for found in _TOKEN.finditer(text)]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        if not self._tokens:
            return
        yield self._requirement()
        while self._at < len(self._tokens):
            self._expect(",")
            yield self._requirement()

    def _requirement(self) -> Requirement:
        if self._take("!"):
            return requirement(self._word("a label key"), "DoesNotExist")
        key = self._word("a label key")
        operator = self._peek()
        if operator in {"", ","}:
            return requirement(key, "Exists")
        self._at += 1
        if operator in _EQUALS:
            return requirement(key, "In", [self._value()])
        if operator == "!=":
            return requirement(key, "NotIn", [self._value()])
        if operator == "in":
            return requirement(key, "In", self._values())
        if operator == "notin":
            return requirement(key, "NotIn", self._values())
        raise SelectorError(f"{self._text!r}: {operator!r} after {key!r} is none of =, ==, !=, in and notin")

    def _value(self) -> str:
        """Return a value, which may be empty."""
        return "" if self._peek() in {"", ","} else self._word("a label value")

    def _values(self) -> list[str]:
        self._expect("(")
        values: list[str] = []
        while True:
            values.append("" if self._peek() in {",", ")"} else self._word("a label value"))
            if self._take(")"):
                return values
            self._expect(",")

    def _word(self, what: str) -> str:
        found = self._peek()
        if not found or found in "==!=,()<>":
            raise SelectorError(f"{self._text!r}: expected {what}, found {found or 'its end'!r}")
        self._at += 1
        return found

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise SelectorError(f"{self._text!r}: expected {token!r}, found {self._peek() or 'its end'!r}")

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""
