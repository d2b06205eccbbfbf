"""The options of `respread run`."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from respread.kube.leadership import LeaseTimes
from respread.scheduling.configuration import SchedulerConfiguration
from respread.telemetry.server import ListenAddress
from respread.telemetry.tls import ServedCertificate


class SecurePlace(NamedTuple):
    """Where `/metrics` is served over TLS, and with which certificate."""

    address: ListenAddress
    certificate: ServedCertificate


class LeaseOptions(NamedTuple):
    """Whether replicas elect a leader, and by which Lease."""

    elect: bool
    """Whether to act only while holding the Lease."""
    name: str
    namespace: str | None
    """None: the operator's own namespace in a cluster; elsewhere that of the installed one (see `lease.py`)."""
    times: LeaseTimes


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the operator runs. Logging is configured before."""

    kubeconfig: str | None
    """A file, or several joined as in `KUBECONFIG`; None: as kubectl finds it, or the pod's ServiceAccount."""
    context: str | None
    listen_address: ListenAddress
    """Of `/metrics`, `/livez` and `/readyz`."""
    secure_metrics: SecurePlace | None
    """Of `/metrics`, if whoever reads it is to be authenticated."""
    lease: LeaseOptions
    scheduler_configuration: SchedulerConfiguration
    """Of the cluster's schedulers. The API does not expose it."""
    namespaced_policies: bool
    """Whether RebalancePolicies are used. ClusterRebalancePolicies always are."""
    helm_release: str | None
    """The Helm release that installed the operator; None if manifests did."""
    permissions_seconds: float
    """How long an optional permission counts as missing until it is asked for again."""
    domain_metrics: bool
    """Whether metrics have the pods of each domain of a constraint with few domains."""
    placeholder_image: str
    """The image of the pods that ask for room in domains without a node. It does nothing."""
