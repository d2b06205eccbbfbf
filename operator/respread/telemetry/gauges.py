"""Gauges that are replaced as a whole, so that a scrape never sees half of one state and half of another."""

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
    """A prometheus_client collector of gauge families whose samples are exchanged all at once.

    What the new samples lack is gone at the next scrape: no series of a deleted workload or policy stays behind. May be
    replaced in one thread and scraped in another; samples that are replaced before a scrape are never made.
    """

    __slots__ = ("_definitions", "_read")

    def __init__(self, definitions: Sequence[GaugeDefinition]) -> None:
        self._definitions = tuple(definitions)
        self._read: Callable[[], Mapping[str, Samples]] = dict

    def replace(self, read: Callable[[], Mapping[str, Samples]]) -> None:
        """Show other samples from now on.

        Args:
            read: Makes the samples, by family name, always the same; called once, at the first scrape, in its thread.
        """
        self._read = cache(read)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families without samples, for the registry to know their names."""
        return (_make_family(definition, {}) for definition in self._definitions)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families with the samples of one moment."""
        samples = self._read()
        return (_make_family(definition, samples.get(definition.name, {})) for definition in self._definitions)


class ComputedGauge:
    """A prometheus_client collector of one gauge family whose samples are asked for at each scrape, in its thread."""

    __slots__ = ("_definition", "_read")

    def __init__(self, definition: GaugeDefinition, read: Callable[[], Samples]) -> None:
        self._definition = definition
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the family without samples, for the registry to know its name."""
        return (_make_family(self._definition, {}),)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the family as it is now."""
        return (_make_family(self._definition, self._read()),)


def _make_family(definition: GaugeDefinition, samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(definition.name, definition.documentation, labels=definition.labels)
    for label_values, value in samples.items():
        family.add_metric(label_values, value)
    return family
