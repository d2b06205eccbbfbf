"""A real control plane with simulated nodes, for the demo and the tests."""

from respread_sandbox.api import ApiError, SandboxApi
from respread_sandbox.binaries import Binaries, BuildError, ToolchainError
from respread_sandbox.options import NodeShape, SandboxError, SandboxOptions
from respread_sandbox.sandbox import Sandbox
from respread_sandbox.supervised import ComponentError

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
