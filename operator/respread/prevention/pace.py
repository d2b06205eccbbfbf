"""How fast costs are written: slowly enough for an API server, and reranking even more slowly."""

from __future__ import annotations

from typing import Final

PATCHES_PER_SECOND: Final = 50.0
PATCHES_AT_ONCE: Final = 500
"""The largest burst, so that a starting Deployment is ranked at once."""
RERANKED_PER_MINUTE: Final = 300.0
"""Pods whose existing cost changes, in the whole cluster."""
RERANK_INTERVAL_SECONDS: Final = 60.0
"""The minimum time between two rerankings of a ReplicaSet."""
REST_SECONDS: Final = 5.0
"""A ReplicaSet is reranked after it has been unchanged this long with all of its pods Ready."""
UNREADY_REST_SECONDS: Final = 300.0
"""The same if some pods are not Ready. Kubernetes evicts pods from an unreachable node after this time
(`tolerationSeconds` of the taints that DefaultTolerationSeconds tolerates)."""
GATHER_SECONDS: Final = 1.0
"""New pods wait this long for other pods of their ReplicaSet without a node, so that they are ranked better, and only
once."""
