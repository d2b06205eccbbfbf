"""A snapshot of a real cluster, made from lists."""

from __future__ import annotations

import json

from respread.cluster.decode.decoder import KINDS, Decoder
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread_sandbox import Sandbox


def take_snapshot(sandbox: Sandbox) -> ClusterSnapshot:
    """List every kind."""
    state, decoder = ClusterState(), Decoder()
    for resource, kind in KINDS.items():
        page = decoder.decode_page(resource, json.dumps(sandbox.api.get(kind.path)).encode())
        assert page.errors == []
        state.replace(resource, page.items)
    return state.snapshot
