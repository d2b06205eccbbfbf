"""A real control plane with simulated nodes, for the demo and the tests."""

from respread_sandbox.api import ApiError, SandboxApi
from respread_sandbox.binaries import Binaries
from respread_sandbox.errors import BuildError, ComponentError, SandboxError, ToolchainError
from respread_sandbox.options import NodeShape, SandboxOptions
from respread_sandbox.sandbox import Sandbox

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
