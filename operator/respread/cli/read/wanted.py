"""What is to be read of a cluster."""

from __future__ import annotations

from typing import NamedTuple

from respread.cluster.decode.decoder import Kind


class WantedKind(NamedTuple):
    """A kind to read."""

    kind: Kind
    required: bool
    """Whether it makes no sense to go on without it."""
    namespace: str | None = None
    """Only the objects of this namespace."""

    @property
    def path(self) -> str:
        """Where the API server lists it."""
        if self.namespace is None:
            return self.kind.path
        root, _, resource = self.kind.path.rpartition("/")
        return f"{root}/namespaces/{self.namespace}/{resource}"
