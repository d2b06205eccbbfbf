"""What to read of a cluster."""

from __future__ import annotations

from typing import NamedTuple

from respread.cluster.decode.decoder import Kind


class WantedKind(NamedTuple):
    """A kind to read."""

    kind: Kind
    required: bool
    """Whether the command can't continue without it."""
    namespace: str | None = None
    """Only the objects of this namespace."""

    @property
    def path(self) -> str:
        """The path of its list."""
        if self.namespace is None:
            return self.kind.path
        root, _, resource = self.kind.path.rpartition("/")
        return f"{root}/namespaces/{self.namespace}/{resource}"
