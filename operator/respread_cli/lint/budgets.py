"""What is wrong with PodDisruptionBudgets, and which workloads need one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

import msgspec

from respread.cluster.decode.decoder import Decoder
from respread.cluster.objects import DecodeError, PodDisruptionBudget
from respread.cluster.selectors import compile_selector
from respread_cli.lint.manifests import Manifest
from respread_cli.lint.rules import LintFinding, parse_path
from respread_cli.lint.workloads import PodTemplate


class Budget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget, of a manifest or of the cluster."""

    budget: PodDisruptionBudget
    manifest: Manifest | None = None

    def selects(self, template: PodTemplate) -> bool:
        """Return whether it selects the pods of a template."""
        pod = template.pod
        return self.budget.namespace == pod.namespace and compile_selector(self.budget.selector).matches(pod.labels)


def is_budget(manifest: Manifest) -> bool:
    """Return whether a manifest is a PodDisruptionBudget."""
    return (manifest.group, manifest.kind) == ("policy", "PodDisruptionBudget")


def read_budget(manifest: Manifest, decoder: Decoder) -> Budget | LintFinding:
    """Return a manifest's budget, or what the API server would reject in it."""
    wire = {
        "metadata": {"name": manifest.name, "namespace": manifest.namespace},
        "spec": manifest.at(("spec",)) or {},
    }
    try:
        budget = decoder.decode_object("poddisruptionbudgets", msgspec.json.encode(wire))
    except DecodeError as error:
        return LintFinding(
            rule="Unreadable",
            field=parse_path(error.path),
            message=f"The API server rejects it: {error.message}.",
            cure="",
        )
    assert isinstance(budget, PodDisruptionBudget)  # noqa: S101 - the decoder of budgets
    return Budget(budget, manifest)


def check_budget(budget: Budget, templates: Sequence[PodTemplate], others: Sequence[Budget]) -> Iterator[LintFinding]:
    """Yield what is wrong with a budget of a manifest.

    Args:
        budget: the budget.
        templates: all pod templates.
        others: all budgets, itself included.
    """
    selected = [each for each in templates if budget.selects(each)]
    if budget.budget.selector is None:
        yield LintFinding(
            rule="BudgetSelectsNothing",
            field=("spec", "selector"),
            message="It has no selector, so it protects no pod.",
            cure="Add a selector that matches the pods, or {} for all pods of the namespace.",
        )
        return
    counts = [each.pods for each in selected]
    pods = None if None in counts or not counts else sum(each or 0 for each in counts)
    if (why := _allows_nothing(budget.budget, pods)) is not None:
        field, message = why
        yield LintFinding(
            rule="BudgetAllowsNothing",
            field=("spec", field),
            message=f"{message}: no pod can be evicted, so drains of nodes wait for ever.",
            cure="Use maxUnavailable: 1.",
        )
    for other in others:
        if other.budget.key == budget.budget.key:
            continue  # Itself, or as another file has it, such as of another environment.
        if (both := next((each for each in selected if other.selects(each)), None)) is not None:
            yield LintFinding(
                rule="SeveralBudgets",
                field=("spec", "selector"),
                message=f"The pods of {both.manifest.kind} {both.manifest.name} also have the PodDisruptionBudget "
                f"{other.budget.name}. The API server refuses to evict pods with two.",
                cure="Keep one of the two, or narrow a selector.",
            )


def _allows_nothing(budget: PodDisruptionBudget, pods: int | None) -> tuple[str, str] | None:
    """Return the field because of which a budget never allows an eviction, and why; None if it may allow one.

    Args:
        budget: the budget.
        pods: how many pods it selects when all are healthy; None if unknown.
    """
    if (most := budget.max_unavailable) is not None:
        amount = _amount(most, 100 if pods is None else pods)
        return ("maxUnavailable", f"maxUnavailable is {most}") if amount is not None and amount <= 0 else None
    least = 1 if budget.min_available is None else budget.min_available
    amount = _amount(least, 100 if pods is None else pods)
    if amount is None or (pods is None and isinstance(least, int)):
        return None
    if pods is None:
        return ("minAvailable", f"minAvailable is {least}") if amount >= 100 else None  # noqa: PLR2004 - per cent
    if not pods or amount < pods:
        return None
    return "minAvailable", f"minAvailable is {least}, and there {'is 1 pod' if pods == 1 else f'are {pods} pods'}"


def _amount(value: int | str, pods: int) -> int | None:
    """Return a number of pods; a percentage is rounded up, as the disruption controller does. None if it is neither."""
    if isinstance(value, int):
        return value
    number = value.removesuffix("%")
    return ceil(int(number) * pods / 100) if number.isdecimal() and number != value else None


def check_protection(template: PodTemplate, budgets: Sequence[Budget]) -> Iterator[LintFinding]:
    """Yield a finding for pods that are spread over domains, but can all be evicted at once."""
    hard = any(each.when_unsatisfiable == "DoNotSchedule" for each in template.pod.spec.topology_spread_constraints)
    single = template.pods is not None and template.pods < 2  # noqa: PLR2004 - two pods can go at once
    if hard and template.serves and not single and not any(each.selects(template) for each in budgets):
        yield LintFinding(
            rule="NoDisruptionBudget",
            field=template.constraint_path(0)[:-1],
            message="The pods must be spread, but no PodDisruptionBudget selects them: drains and evictions may take "
            "all of them at once.",
            cure="Add a PodDisruptionBudget with maxUnavailable: 1.",
        )
