"""Label selectors, compiled so that matching is fast and equal selectors are equal; and which match which labels.

Mirrors apimachinery's `metav1.LabelSelectorAsSelector` and `labels.Selector`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias, TypeVar

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector, SelectorOperator
from respread.cluster.incremental import bounded_cache
from respread.cluster.meta import Labels

_NAME: Final = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_MAX_LENGTH: Final = 63
_DNS_SUBDOMAIN_MAX_LENGTH: Final = 253
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


class SelectorError(ValueError):
    """A selector that the API would reject. The message names the key and the error."""


class Requirement(msgspec.Struct, frozen=True, gc=False, order=True):
    """One requirement for labels. Create them with `requirement`, which sorts and checks them."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy it. An absent key satisfies `NotIn` and `DoesNotExist`."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "Exists")

    def __str__(self) -> str:
        """Return it as kubectl writes it."""
        if self.operator == "Exists":
            return self.key
        if self.operator == "DoesNotExist":
            return f"!{self.key}"
        if self.operator == "In" and len(self.values) == 1:
            return f"{self.key}={self.values[0]}"
        return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"


class Selector(msgspec.Struct, frozen=True, cache_hash=True):
    """A compiled selector. It equals every selector with the same requirements, in whatever order or form."""

    requirements: tuple[Requirement, ...]
    """Sorted, each once."""
    required: tuple[tuple[str, str], ...]
    """Labels (key and value) that everything it matches has. An index of pods by label can start from any of them."""
    others: tuple[Requirement, ...]
    """The requirements that `required` does not cover."""
    matches_nothing: bool = False
    """Whether it comes from an absent selector."""

    @property
    def size(self) -> int:
        """The number of its requirements and their values, on which the memory that it takes depends."""
        return sum(1 + len(each.values) for each in self.requirements)

    @property
    def matches_everything(self) -> bool:
        """Whether it comes from an empty selector, which has no requirements."""
        return not self.requirements and not self.matches_nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels satisfy every requirement."""
        for key, value in self.required:
            if labels.get(key) != value:
                return False
        for requirement in self.others:
            if not requirement.matches(labels):
                return False
        return not self.matches_nothing

    def with_requirements(self, requirements: Iterable[Requirement]) -> Selector:
        """Return a selector with additional requirements. If this one matches nothing, so does the result."""
        return self if self.matches_nothing else _selector((*self.requirements, *requirements))

    def with_labels(self, labels: Iterable[tuple[str, str]]) -> Selector:
        """Return a selector that also requires all these labels, as for `matchLabelKeys`."""
        return self.with_requirements([Requirement(key, "In", (value,)) for key, value in labels])

    def __str__(self) -> str:
        """Return it as kubectl writes it: `app=web,tier in (a,b)`, or `<nothing>` or `<everything>`."""
        if self.matches_nothing:
            return "<nothing>"
        return ",".join(map(str, self.requirements)) or "<everything>"


NOTHING: Final = Selector((), (), (), matches_nothing=True)
"""An absent selector: it matches nothing."""


def compile_selector(selector: LabelSelector | None) -> Selector:
    """Compile a selector of the API. `None` matches nothing, an empty one everything.

    Raises:
        SelectorError: the API would reject it.
    """
    return NOTHING if selector is None else _compiled(selector)


def _size(selector: LabelSelector) -> int:
    size = len(selector.match_labels)
    for each in selector.match_expressions:
        size += 1 + len(each.values)
    return size


@bounded_cache(_size)
def _compiled(selector: LabelSelector) -> Selector:
    return _selector(
        (
            *(requirement(key, "In", (value,), f"matchLabels[{key}]") for key, value in selector.match_labels.items()),
            *(
                requirement(each.key, each.operator, each.values, f"matchExpressions[{position}]")
                for position, each in enumerate(selector.match_expressions)
            ),
        )
    )


@bounded_cache(Map.__len__)
def selector_of_labels(labels: Labels) -> Selector:
    """Return a selector that requires all these labels. Without labels, it matches everything.

    The labels are not checked, as the scheduler does not check those of Services and ReplicationControllers.
    """
    return _selector(Requirement(key, "In", (value,)) for key, value in labels.items())


def requirement(key: str, operator: SelectorOperator, values: Iterable[str] = (), where: str = "") -> Requirement:
    """Create a requirement in its canonical form.

    `where` is the field that it comes from, for the message of an error.

    Raises:
        SelectorError: the API would reject it.
    """
    sorted_values = tuple(sorted(set(values)))
    at = f"{where}: " if where else ""
    if operator not in _OPERATORS:
        raise SelectorError(f"{at}{operator!r} is not an operator of a label selector: use {', '.join(_OPERATORS)}")
    if (fault := _fault_of_key(key)) is not None:
        raise SelectorError(f"{at}{key!r} is not a label key: {fault}")
    if operator in {"In", "NotIn"} and not sorted_values:
        raise SelectorError(f"{at}operator {operator} of key {key!r} needs at least one value")
    if operator in {"Exists", "DoesNotExist"} and sorted_values:
        raise SelectorError(f"{at}operator {operator} of key {key!r} takes no values")
    for value in sorted_values:
        if value and (fault := _fault_of_name(value)) is not None:
            raise SelectorError(f"{at}{value!r}, wanted for key {key!r}, is not a label value: {fault}")
    return Requirement(key, operator, sorted_values)


def _selector(requirements: Iterable[Requirement]) -> Selector:
    each_once = tuple(sorted(set(requirements)))
    return Selector(
        each_once,
        tuple((each.key, each.values[0]) for each in each_once if _is_exact(each)),
        tuple(each for each in each_once if not _is_exact(each)),
    )


def _is_exact(each: Requirement) -> bool:
    return each.operator == "In" and len(each.values) == 1


def _fault_of_key(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and not (len(prefix) <= _DNS_SUBDOMAIN_MAX_LENGTH and _DNS_SUBDOMAIN.fullmatch(prefix)):
        return "its prefix must be a DNS subdomain of at most 253 characters"
    if not name:
        return "it is empty" if not key else "there is no name after the '/'"
    return _fault_of_name(name)


def _fault_of_name(name: str) -> str | None:
    if len(name) > _NAME_MAX_LENGTH:
        return f"it is longer than {_NAME_MAX_LENGTH} characters"
    if _NAME.fullmatch(name) is None:
        return "it must be made of letters, digits, '-', '_' and '.', and begin and end with a letter or digit"
    return None


_K = TypeVar("_K")
_V = TypeVar("_V")
Filed: TypeAlias = dict[_K, _V | dict[_V, None]]
"""One value, or several in their order, by key. Values are not dicts and not None. Most keys have only one value, and a
set for each would take most of an index's memory."""


def under(filed: Filed[_K, _V], key: _K) -> Collection[_V]:
    """Return the values under a key."""
    found = filed.get(key)
    return () if found is None else found if isinstance(found, dict) else (found,)


def file(filed: Filed[_K, _V], key: _K, value: _V) -> None:
    """Add a value under a key, if it is not there."""
    found = filed.get(key)
    if found is None:
        filed[key] = value
    elif isinstance(found, dict):
        found[value] = None
    elif found != value:
        filed[key] = {found: None, value: None}


def unfile(filed: Filed[_K, _V], key: _K, value: _V) -> None:
    """Remove a value under a key."""
    found = filed[key]
    if isinstance(found, dict) and len(found) > 1:
        del found[value]
    else:
        del filed[key]


_Pair: TypeAlias = tuple[str, str]
"""A label's key and value."""


class Matching:
    """Selectors and label sets that are added and removed, and which match, without trying every pair.

    Label sets are found by the rarest label that a selector requires, and selectors by one of their required labels.
    Only selectors that require no label value are tried on everything.
    """

    def __init__(self) -> None:
        self._label_sets: dict[Labels, None] = {}
        self._with_pair: Filed[_Pair, Labels] = {}
        self._selectors: Filed[_Pair | None, Selector] = {}
        """By a required label, or under None for selectors that require no label value."""
        self._filed_under: dict[Selector, _Pair | None] = {}

    def add_labels(self, labels: Labels) -> None:
        """Add a label set."""
        self._label_sets[labels] = None
        for pair in labels.items():
            file(self._with_pair, pair, labels)

    def remove_labels(self, labels: Labels) -> None:
        """Remove an existing label set."""
        del self._label_sets[labels]
        for pair in labels.items():
            unfile(self._with_pair, pair, labels)

    def add_selector(self, selector: Selector) -> None:
        """Add a selector, if it is not there."""
        if selector not in self._filed_under:
            selectors = self._selectors
            pair = min(selector.required, key=lambda pair: len(under(selectors, pair)), default=None)
            self._filed_under[selector] = pair
            file(selectors, pair, selector)

    def remove_selector(self, selector: Selector) -> None:
        """Remove an existing selector."""
        unfile(self._selectors, self._filed_under.pop(selector), selector)

    def labels_of(self, selector: Selector) -> Iterator[Labels]:
        """Yield the label sets that a selector matches. The selector need not have been added."""
        having = [under(self._with_pair, pair) for pair in selector.required]
        candidates: Collection[Labels] = min(having, key=len, default=self._label_sets)
        return (labels for labels in candidates if selector.matches(labels))

    def selectors_of(self, labels: Labels) -> Iterator[Selector]:
        """Yield the added selectors that match a label set. The label set need not have been added."""
        for pair in (*labels.items(), None):
            for selector in under(self._selectors, pair):
                if selector.matches(labels):
                    yield selector
