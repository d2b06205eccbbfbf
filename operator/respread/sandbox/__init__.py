"""An embedded real control plane with simulated nodes, for the demo, the tests and for playing."""

from respread.sandbox.api import ApiError, SandboxApi
from respread.sandbox.binaries import Binaries
from respread.sandbox.errors import BuildError, ComponentError, SandboxError, ToolchainError
from respread.sandbox.options import NodeShape, SandboxOptions
from respread.sandbox.sandbox import Sandbox

__all__ = [
    "ApiError",
    "Binaries",
    "BuildError",
    "ComponentError",
    "NodeShape",
    "Sandbox",
    "SandboxApi",
    "SandboxError",
    "SandboxOptions",
    "ToolchainError",
]
