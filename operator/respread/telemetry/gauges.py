"""Gauges that are replaced as a whole, so that a scrape never sees a mixture of two states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeAlias

import msgspec
from prometheus_client.core import GaugeMetricFamily

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values by the values of the labels, in the family's order."""


class GaugeDefinition(msgspec.Struct, frozen=True):
    """A gauge family's name, help text and label names."""

    name: str
    documentation: str
    labels: tuple[str, ...]


class ReplacedGauges:
    """A prometheus_client collector of gauge families whose samples are replaced all at once.

    Series that the new samples lack are gone at the next scrape, so no series of a deleted workload or policy remains.
    It may be replaced in one thread and scraped in another. Samples that are replaced before a scrape are never
    computed.
    """

    __slots__ = ("_definitions", "_read")

    def __init__(self, definitions: Sequence[GaugeDefinition]) -> None:
        self._definitions = tuple(definitions)
        self._read: Callable[[], Mapping[str, Samples]] = dict

    def replace(self, read: Callable[[], Mapping[str, Samples]]) -> None:
        """Show other samples from now on.

        Args:
            read: Returns the samples by family name, always the same. It is called once, at the first scrape, in its
                thread.
        """
        self._read = cache(read)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families without samples, so that the registry knows their names."""
        return (_make_family(definition, {}) for definition in self._definitions)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families with the samples of one moment."""
        samples = self._read()
        return (_make_family(definition, samples.get(definition.name, {})) for definition in self._definitions)


class ComputedGauge:
    """A prometheus_client collector of one gauge family whose samples are computed at each scrape, in its thread."""

    __slots__ = ("_definition", "_read")

    def __init__(self, definition: GaugeDefinition, read: Callable[[], Samples]) -> None:
        self._definition = definition
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the family without samples, so that the registry knows its name."""
        return (_make_family(self._definition, {}),)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the current family."""
        return (_make_family(self._definition, self._read()),)


def _make_family(definition: GaugeDefinition, samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(definition.name, definition.documentation, labels=definition.labels)
    for label_values, value in samples.items():
        family.add_metric(label_values, value)
    return family
