"""One single eviction: the steps that `controller.evictions` takes through the Eviction API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from respread.api.reasons import Held
from respread.cluster.pod import Pod
from respread.eviction.answers import Answer
from respread.eviction.eviction_api import EvictionApi, send_eviction


async def evict(
    api: EvictionApi, pod: Pod, last_look: Callable[[], Held | None] = lambda: None, **options: Any
) -> Answer | Held:
    """Read a pod, prepare its eviction, take a last look, and send it."""
    if (answer := await api.read(pod)) is not None:
        return answer
    request = await api.prepare(pod, **options)
    if isinstance(request, Answer):
        return request
    if (held := last_look()) is not None:
        return held
    return await send_eviction(request)
