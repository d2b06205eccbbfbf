"""The cluster of the tests of evictions: one with Respread's definitions is as good as one of their own."""

from __future__ import annotations

import pytest

from respread_sandbox import Sandbox
from tests.integration.reused_sandbox import ReusedSandbox, lay_out


@pytest.fixture(scope="module")
def sandbox(reused_sandbox: ReusedSandbox) -> Sandbox:
    """Twelve nodes in three zones."""
    return lay_out(reused_sandbox.reset(), 4, 4, 4)
