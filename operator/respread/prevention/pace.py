"""How fast costs are written: no more at once than an API server takes in its stride, and reranking slower still."""

from __future__ import annotations

from typing import Final

PATCHES_PER_SECOND: Final = 50.0
PATCHES_AT_ONCE: Final = 500
"""What may be saved up: a Deployment that starts is ranked without waiting."""
RERANKED_PER_MINUTE: Final = 300.0
"""Pods that get another cost than they had, in the whole cluster."""
RERANK_INTERVAL_SECONDS: Final = 60.0
"""From one reranking of a ReplicaSet to the next."""
REST_SECONDS: Final = 5.0
"""A ReplicaSet that is reranked has been left unchanged for so long, and all of its pods are Ready."""
UNREADY_REST_SECONDS: Final = 300.0
"""The same where some are not Ready: a node that does not answer is given up on after as long (`tolerationSeconds` of
the taints that DefaultTolerationSeconds tolerates)."""
GATHER_SECONDS: Final = 1.0
"""New pods wait this long for others of theirs that have no node yet: they are ranked better, and once, together."""
