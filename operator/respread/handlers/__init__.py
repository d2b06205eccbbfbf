"""Kopf: the session, the handlers and the informers. No other package imports Kopf."""

from respread.lean_process import hidden, no_authorities

with hidden("kubernetes", "kubernetes_asyncio", "pykube"), no_authorities():
    import kopf

__all__ = ["kopf"]
