"""The options of `respread run`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from respread.kube.leadership import LeaseTimes
from respread.scheduling.configuration import SchedulerConfiguration
from respread.telemetry.server import ListenAddress
from respread.telemetry.tls import ServedCertificate

DEFAULT_PLACEHOLDER_IMAGE = "registry.k8s.io/pause:3.10"
DEFAULT_PERMISSIONS_SECONDS = 310.0
"""At most twice in 10 minutes."""
DEFAULT_LISTEN_ADDRESS = ListenAddress("127.0.0.1", 8080)


class SecurePlace(NamedTuple):
    """Where `/metrics` is served over TLS, and with which certificate."""

    address: ListenAddress
    certificate: ServedCertificate


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator runs. Logging is configured before."""

    kubeconfig: str | None = None
    """A file, or several joined as in `KUBECONFIG`; None: as kubectl finds it, or the pod's ServiceAccount."""
    context: str | None = None
    listen_address: ListenAddress = DEFAULT_LISTEN_ADDRESS
    """Of `/metrics`, `/livez` and `/readyz`."""
    secure_metrics: SecurePlace | None = None
    """Of `/metrics`, if whoever reads it is to be authenticated."""
    leader_election: bool = True
    """Whether to act only while holding the Lease."""
    lease_namespace: str | None = None
    """None: the operator's own namespace in a cluster; elsewhere that of the installed one (see `lease.py`)."""
    lease_name: str = "respread"
    lease_times: LeaseTimes = LeaseTimes()
    scheduler_configuration: SchedulerConfiguration = SchedulerConfiguration()
    """Of the cluster's schedulers. The API does not expose it."""
    namespaced_policies: bool = True
    """Whether RebalancePolicies are used. ClusterRebalancePolicies always are."""
    helm_release: str | None = None
    """The Helm release that installed the operator; None if manifests did."""
    permissions_seconds: float = DEFAULT_PERMISSIONS_SECONDS
    """How long an optional permission counts as missing until it is asked for again."""
    domain_metrics: bool = True
    """Whether metrics have the pods of each domain of a constraint with few domains."""
    placeholder_image: str = DEFAULT_PLACEHOLDER_IMAGE
    """The image of the pods that ask for room in domains without a node. It does nothing."""
