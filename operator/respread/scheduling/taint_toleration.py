"""TaintToleration: taints that keep pods off a node unless they tolerate them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from respread.cluster.node import Taint
from respread.cluster.pod import Toleration


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Tell whether some toleration tolerates a taint (`Toleration.ToleratesTaint`).

    An empty effect or key stands for all, an empty operator for Equal; Lt and Gt need a feature gate that is off in
    1.36, and tolerate nothing.
    """
    return any(
        (not each.effect or each.effect == taint.effect)
        and (not each.key or each.key == taint.key)
        and (each.operator == "Exists" or (each.operator in {"", "Equal"} and each.value == taint.value))
        for each in tolerations
    )


def untolerated_taint(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint that keeps a pod with these tolerations off a node; PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(tolerations, taint):
            return taint
    return None
