"""Quantities of resources (`100m`, `1.5Gi`, `12e6`), and what a pod uses of a node's resources.

Mirrors what apimachinery's `resource.ParseQuantity` accepts and rounds, including its peculiarities: a suffix alone is
zero, and nothing is finer than a billionth. What a pod uses is computed as by the scheduler (component-helpers
`resource.PodRequests`): summed exactly, in billionths, and rounded up once per pod, to thousandths for cpu, to whole
units otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.pod import Resources

NANO_PER_UNIT: Final = 10**9
"""The number of smallest amounts in one whole unit."""

MAX_VALUE: Final = 2**63 - 1
"""The largest number of whole units that the API can represent. Larger amounts are set to it."""

_NANO_PER_MILLI: Final = 10**6
_MAX_NANO: Final = MAX_VALUE * NANO_PER_UNIT
_FINEST_EXPONENT: Final = -9
_KEPT_LENGTH: Final = 64
"""Only results for strings up to this length are cached, because others may have a million characters."""
_MAX_DIGITS: Final = 20
"""More digits than this before the point exceed the largest amount in all formats."""
_DECIDING_BINARY_DIGITS: Final = 80
"""The number of digits after the point that affect an amount of Ei in billionths. For the others, only whether one is
not 0 matters."""

_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)0*+(?P<number>[0-9]*+)(?:\.(?P<fraction>[0-9]*+))?(?P<suffix>[eEinumkKMGTP]*+[+-]?[0-9]*)"
)
_COMMON: Final = re.compile(r"([1-9][0-9]{0,14})(m|Mi|Gi|Ki|)")
_COMMON_NANO: Final = {
    "": NANO_PER_UNIT,
    "m": _NANO_PER_MILLI,
    "Ki": NANO_PER_UNIT << 10,
    "Mi": NANO_PER_UNIT << 20,
    "Gi": NANO_PER_UNIT << 30,
}
_EXPONENT: Final = re.compile(r"[eE](?P<sign>[+-]?)0*+(?P<digits>[0-9]*)")
_EXPONENT_DIGITS: Final = 19
_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_LARGEST_BINARY_EXPONENT_ALONE: Final = 40
"""The API reads a suffix without digits as 0 up to this exponent, and down to `_FINEST_EXPONENT`."""


class QuantityError(ValueError):
    """A string that the API rejects as a quantity. The message is the API's own."""


def round_away_from_zero(amount: int, unit: int) -> int:
    """Return how many `unit`s contain `amount`. A part of a unit counts as a whole one, whatever the sign."""
    return -(-amount // unit) if amount >= 0 else amount // unit


def shown(nano: int) -> str:
    """Return an amount for people: whole units unchanged, fractions to a thousandth."""
    units, rest = divmod(nano, NANO_PER_UNIT)
    return f"{nano / NANO_PER_UNIT:.3f}".rstrip("0").rstrip(".") if rest else str(units)


def parse_nano(text: str) -> int:
    """Return a quantity in billionths of a unit, rounded away from zero.

    Beyond `MAX_VALUE` units in either direction it stays there, because nothing can offer or use more.

    Raises:
        QuantityError: the API would reject the string.
    """
    return _cached(text) if len(text) <= _KEPT_LENGTH else _parsed(text)


@lru_cache(maxsize=16384)
def _cached(text: str) -> int:
    common = _COMMON.fullmatch(text)
    if common is not None:
        return min(int(common[1]) * _COMMON_NANO[common[2]], _MAX_NANO)
    return _parsed(text)


def _parsed(text: str) -> int:
    match = _PATTERN.fullmatch(text)
    if not text or match is None:
        raise QuantityError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    is_binary, exponent = _interpret(match["suffix"])
    number, fraction = match["number"], match["fraction"] or ""
    if not any(character.isdigit() for character in text[: match.start("suffix")]):
        if exponent > _LARGEST_BINARY_EXPONENT_ALONE if is_binary else exponent < _FINEST_EXPONENT:
            raise QuantityError("unable to parse numeric part of quantity")
        return 0
    nano = (_binary if is_binary else _decimal)(number, fraction, exponent)
    return -nano if match["sign"] == "-" else nano


def _interpret(suffix: str) -> tuple[bool, int]:
    """Return whether a suffix stands for a power of 2, and not of 10, and the exponent."""
    if (exponent := _DECIMAL_SUFFIXES.get(suffix)) is not None:
        return False, exponent
    if (exponent := _BINARY_SUFFIXES.get(suffix)) is not None:
        return True, exponent
    written = _EXPONENT.fullmatch(suffix)
    if written is None or not suffix[-1].isdigit() or len(written["digits"]) > _EXPONENT_DIGITS:
        raise QuantityError("unable to parse quantity's suffix")
    exponent = int(f"{written['sign']}{written['digits'] or 0}")
    if not -(2**63) <= exponent < 2**63:
        raise QuantityError("unable to parse quantity's suffix")
    # The API stores the exponent in 32 bits without a check.
    return False, (exponent + 2**31) % 2**32 - 2**31


def _decimal(number: str, fraction: str, exponent: int) -> int:
    """Return an amount in billionths, without computing with digits that don't matter: there may be a million."""
    digits = (number + fraction).lstrip("0")
    whole = len(digits) - len(fraction) + exponent
    if not digits:
        return 0
    if whole > _MAX_DIGITS:
        return _MAX_NANO
    deciding = max(0, whole - _FINEST_EXPONENT)
    nano = int(digits[:deciding].ljust(deciding, "0") or "0")
    return min(nano + _is_any(digits[deciding:]), _MAX_NANO)


def _binary(number: str, fraction: str, exponent: int) -> int:
    """Return the same for a power of 2."""
    if len(number) > _MAX_DIGITS:
        return _MAX_NANO
    fraction, rest = fraction[:_DECIDING_BINARY_DIGITS], fraction[_DECIDING_BINARY_DIGITS:]
    fraction += str(int(_is_any(rest)))
    nano = (int(number + fraction) << exponent) * NANO_PER_UNIT
    return min(round_away_from_zero(nano, 10 ** len(fraction)), _MAX_NANO)


def _is_any(digits: str) -> bool:
    return bool(digits.strip("0"))


NanoAmounts: TypeAlias = Mapping[str, int]
"""Amounts in billionths of a unit, by resource name."""

_POD_LEVEL: Final = frozenset({"cpu", "memory"})
_NODE_LEVEL: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class ContainerRequests(msgspec.Struct, frozen=True):
    """What one container requests."""

    name: str
    requests: NanoAmounts
    restartable: bool = False
    """For an init container: whether it runs beside the others, as a sidecar (`restartPolicy: Always`)."""


class PodRequests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests in a pod spec, by part."""

    containers: Sequence[ContainerRequests]
    init_containers: Sequence[ContainerRequests] = ()
    pod_level: NanoAmounts = {}
    overhead: NanoAmounts = {}


class ContainerResize(msgspec.Struct, frozen=True):
    """The kubelet's status of a container's resources: those in effect, and those that it has allocated."""

    name: str
    actuated: NanoAmounts
    allocated: NanoAmounts


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a pod that can be resized in place (KEP 1287, and KEP 5419 for the pod level)."""

    containers: Sequence[ContainerResize] = ()
    pod_level: ContainerResize | None = None
    infeasible: bool = False
    """Whether the node can never satisfy the spec (`PodResizePending` with reason `Infeasible`)."""


def requests_of_spec(pod: PodRequests) -> Resources:
    """Return what a pod without a node needs."""
    return _rounded(total_requests(pod))


def requests_held(pod: PodRequests, resize: Resize) -> Resources:
    """Return what a pod uses of its node: for each container the largest of requested and allocated resources.

    While a resize is infeasible, its request does not count.
    """
    return _rounded(total_requests(pod, resize))


def allocatable(amounts: NanoAmounts) -> Resources:
    """Return the allocatable amounts of a node, for the resources that the scheduler uses."""
    return _rounded(amounts)


def is_schedulable_resource(name: str) -> bool:
    """Return whether the scheduler uses a resource of this name.

    These are cpu, memory, ephemeral-storage, pods, huge pages, attachable volumes and everything with a prefix, except
    the names that quotas use (`requests.…`).
    """
    if "/" not in name:
        return name in _NODE_LEVEL or name.startswith(("hugepages-", "attachable-volumes-"))
    return "kubernetes.io/" in name or not name.startswith("requests.")


def total_requests(pod: PodRequests, resize: Resize | None = None) -> NanoAmounts:
    """Return exactly what a pod needs, or with a resize what it uses, of all resources, as quotas count it."""
    total = _containers_total(pod, resize)
    if any(map(_is_pod_level, pod.pod_level)):
        in_force = None if resize is None or resize.pod_level is None else resize.pod_level
        for name, amount in pod.pod_level.items():
            if _is_pod_level(name):
                total[name] = amount if in_force is None else _effective(pod.pod_level, in_force, resize).get(name, 0)
    _add(total, pod.overhead)
    return total


def _containers_total(pod: PodRequests, resize: Resize | None) -> dict[str, int]:
    """Sum what runs at the same time, or use the peak of the init containers if that is more (KEP 753)."""
    resizes = {} if resize is None else {each.name: each for each in resize.containers}
    total: dict[str, int] = {}
    for container in pod.containers:
        _add(total, _effective(container.requests, resizes.get(container.name), resize))

    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.init_containers:
        if container.restartable:
            requests = _effective(container.requests, resizes.get(container.name), resize)
            _add(total, requests)
            _add(sidecars, requests)
        else:
            meanwhile = dict(sidecars)
            _add(meanwhile, container.requests)
            _raise_to(peak, meanwhile)
    _raise_to(total, peak)
    return total


def _effective(requests: NanoAmounts, in_force: ContainerResize | None, resize: Resize | None) -> NanoAmounts:
    if in_force is None or resize is None:
        return requests
    largest = {} if resize.infeasible else dict(requests)
    _raise_to(largest, in_force.actuated)
    _raise_to(largest, in_force.allocated)
    return largest


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _add(total: dict[str, int], amounts: NanoAmounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], amounts: NanoAmounts) -> None:
    for name, amount in amounts.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _rounded(amounts: NanoAmounts) -> Resources:
    return Map(_rounded_items(amounts.items()))


def _rounded_items(items: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    for name, nano in sorted(items):
        if is_schedulable_resource(name):
            yield name, round_away_from_zero(nano, _NANO_PER_MILLI if name == "cpu" else NANO_PER_UNIT)
