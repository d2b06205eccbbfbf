"""The operator's edge: Kopf, and only here."""

from respread.lean_imports import hidden, no_authorities

with hidden("kubernetes", "kubernetes_asyncio", "pykube"), no_authorities():
    import kopf

__all__ = ["kopf"]
