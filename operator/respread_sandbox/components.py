"""How each component of the control plane is started: its command line, its files, and its credentials.

All of them run in the sandbox's directory. etcd listens on Unix sockets there, so that no other user can reach it and
it needs no port; the only TCP port of a sandbox is kube-apiserver's.
"""

from __future__ import annotations

import base64
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from respread_sandbox.nodes import MANAGED_NODE_LABEL, stage_documents
from respread_sandbox.options import LOOPBACK, SandboxError, SandboxOptions

ETCD, API_SERVER, SCHEDULER, CONTROLLER_MANAGER, KWOK, KUBECTL = BINARIES = (
    "etcd",
    "kube-apiserver",
    "kube-scheduler",
    "kube-controller-manager",
    "kwok",
    "kubectl",
)

KARPENTER: Final = "karpenter"
"""It is not among the programs of the control plane: it is built only for sandboxes that need it."""

# Hosts of the form name:number make Unix sockets of that name in etcd's and kube-apiserver's working directory.
ETCD_CLIENT_URL: Final = "unix://etcd:1"
ETCD_PEER_URL: Final = "unix://etcd:2"
SERVICE_ACCOUNT_ISSUER: Final = "https://kubernetes.default.svc"
CLIENT_LIMITS: Final = ("--kube-api-qps=2000", "--kube-api-burst=4000")
"""So high that the clients' own rate limits, 20 to 50 requests a second, don't slow down the scaling of Deployments."""
NODE_LEASE_SECONDS: Final = 40
AUDIT_LOG_MEGABYTES: Final = 1_000_000
"""More than there will be: at the default of 100 the log is rotated, and earlier lines are in another file."""
P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
P256_OBJECT_IDENTIFIER: Final = bytes.fromhex("06082a8648ce3d030107")
INTEGER, OCTET_STRING, SEQUENCE, CONTEXT_0 = 0x02, 0x04, 0x30, 0xA0


class Files:
    """The files of a sandbox."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.signing_key = directory / "service-account.key"
        """The private key of service account tokens."""
        self.tokens = directory / "tokens.csv"
        """Static tokens: the administrator's and each component's."""
        self.serving_certificate = directory / "certificates" / "apiserver.crt"
        """The certificate that kube-apiserver creates at its start, with the authority that signed it."""
        self.audit_log = directory / "audit.log"
        """The audit log, if enabled: one JSON object for each request, one per line."""
        self.audit_policy = directory / "audit-policy.yaml"
        self.stages = directory / "stages.yaml"
        """KWOK's configuration."""
        self.scheduler_configuration = directory / "scheduler-configuration.yaml"
        """kube-scheduler's configuration, if there is one."""
        self.instance_types = directory / "instance-types.json"
        """The instance types that Karpenter may launch."""

    def has_serving_certificate(self) -> bool:
        """Return whether kube-apiserver has written its certificate completely.

        The file is there before its content is; kube-apiserver writes the key after the certificate is complete
        (MaybeDefaultWithSelfSignedCerts in k8s.io/apiserver), so that the key's file proves it.
        """
        return self.serving_certificate.with_suffix(".key").exists()

    def kubeconfig(self, user: str) -> Path:
        """Return a user's kubeconfig; a component's user has its name."""
        return self.directory / f"{user}.kubeconfig"

    def log(self, component: str) -> Path:
        """Return the file for a component's output."""
        return self.directory / f"{component}.log"


def wanted(options: SandboxOptions) -> tuple[str, ...]:
    """Return the components to run, in the order of their start."""
    optional = {
        SCHEDULER: options.scheduler,
        CONTROLLER_MANAGER: options.controller_manager,
        KWOK: options.kwok,
        KARPENTER: options.karpenter,
    }
    return (ETCD, API_SERVER, *(name for name, asked in optional.items() if asked))


def write_configurations(files: Files, options: SandboxOptions) -> None:
    """Write the files that command lines name, except those with secrets."""
    files.stages.write_text(stage_documents(options), encoding="utf-8")
    if options.certificates is not None:
        shutil.copytree(options.certificates, files.serving_certificate.parent)
    if options.scheduler_configuration:
        text = _scheduler_configuration(options.scheduler_configuration, files.kubeconfig(SCHEDULER))
        files.scheduler_configuration.write_text(text, encoding="utf-8")
    if options.audit:
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        files.audit_policy.write_text(yaml.safe_dump(policy), encoding="utf-8")


def arguments(component: str, files: Files, port: int, options: SandboxOptions) -> list[str]:
    """Return a component's command line without the program; `port` is kube-apiserver's."""
    make = {
        ETCD: _etcd,
        API_SERVER: _api_server,
        SCHEDULER: _scheduler,
        CONTROLLER_MANAGER: _controller_manager,
        KWOK: _kwok,
        KARPENTER: _karpenter,
    }[component]
    return make(files, port, options)


def environment(files: Files, inherited: Mapping[str, str], component: str = "") -> dict[str, str]:
    """Return a component's environment, with GOGC alone of the user's, so that no kubeconfig or proxy affects it."""
    own = {"PATH": inherited.get("PATH", ""), "HOME": str(files.directory), "TMPDIR": str(files.directory)}
    own |= {name: inherited[name] for name in ("GOGC",) if name in inherited}
    if component == KARPENTER:
        own |= {"KUBECONFIG": str(files.kubeconfig(KARPENTER)), "SYSTEM_NAMESPACE": "kube-system"}
    return own


def _etcd(_files: Files, _port: int, _options: SandboxOptions) -> list[str]:
    return [
        "--name=sandbox",
        "--data-dir=etcd",
        "--unsafe-no-fsync",
        f"--listen-client-urls={ETCD_CLIENT_URL}",
        f"--advertise-client-urls={ETCD_CLIENT_URL}",
        f"--listen-peer-urls={ETCD_PEER_URL}",
        f"--initial-advertise-peer-urls={ETCD_PEER_URL}",
        f"--initial-cluster=sandbox={ETCD_PEER_URL}",
        "--quota-backend-bytes=4294967296",
        "--log-level=warn",
    ]


def _api_server(files: Files, port: int, options: SandboxOptions) -> list[str]:
    flags = [
        f"--etcd-servers={ETCD_CLIENT_URL}",
        f"--bind-address={options.address}",
        f"--advertise-address={options.address}",  # else it looks for a default route, which some machines lack
        f"--secure-port={port}",
        "--permit-port-sharing",  # with the supervisor, which holds the port for us
        f"--cert-dir={files.serving_certificate.parent}",
        f"--token-auth-file={files.tokens}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
        f"--service-account-key-file={files.signing_key}",
        f"--service-account-signing-key-file={files.signing_key}",
        "--service-cluster-ip-range=10.0.0.0/16",
        "--profiling=false",
    ]
    if options.address == LOOPBACK:
        flags.append("--endpoint-reconciler-type=none")  # it is not allowed as the address of an endpoint
    if not options.controller_manager:
        flags.append("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
    if options.audit:
        flags += [f"--audit-policy-file={files.audit_policy}", f"--audit-log-path={files.audit_log}"]
        flags.append(f"--audit-log-maxsize={AUDIT_LOG_MEGABYTES}")
    return [*flags, *options.apiserver_flags]


def _scheduler(files: Files, _port: int, options: SandboxOptions) -> list[str]:
    connection = [f"--kubeconfig={files.kubeconfig(SCHEDULER)}", "--leader-elect=false", *CLIENT_LIMITS]
    if options.scheduler_configuration:
        connection = [f"--config={files.scheduler_configuration}"]
    return [*connection, "--secure-port=0", *options.scheduler_flags]


def _controller_manager(files: Files, _port: int, options: SandboxOptions) -> list[str]:
    return [
        f"--kubeconfig={files.kubeconfig(CONTROLLER_MANAGER)}",
        "--leader-elect=false",
        "--secure-port=0",
        *CLIENT_LIMITS,
        f"--service-account-private-key-file={files.signing_key}",
        f"--root-ca-file={files.serving_certificate}",
        f"--node-monitor-grace-period={options.node_monitor_grace_seconds}s",
        "--node-monitor-period=1s",
        "--node-eviction-rate=1000",  # by default one node in 10 s
        "--concurrent-deployment-syncs=20",
        "--concurrent-replicaset-syncs=20",
        "--concurrent-namespace-syncs=20",
        *options.controller_manager_flags,
    ]


def _kwok(files: Files, _port: int, _options: SandboxOptions) -> list[str]:
    return [
        f"--kubeconfig={files.kubeconfig(KWOK)}",
        f"--config={files.stages}",
        f"--manage-nodes-with-label-selector={MANAGED_NODE_LABEL}",
        f"--node-lease-duration-seconds={NODE_LEASE_SECONDS}",
        "--cidr=10.64.0.0/10",
    ]


def _karpenter(files: Files, _port: int, options: SandboxOptions) -> list[str]:
    return [
        f"--instance-types-file-path={files.instance_types}",
        "--disable-leader-election=true",
        "--metrics-port=0",
        "--health-probe-port=0",
        "--batch-idle-duration=200ms",
        "--batch-max-duration=1s",
        *options.karpenter_flags,
    ]


def _scheduler_configuration(text: str, kubeconfig: Path) -> str:
    try:
        configuration: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SandboxError(f"the scheduler configuration is not YAML: {error}") from None
    if not isinstance(configuration, dict) or configuration.get("kind") != "KubeSchedulerConfiguration":
        raise SandboxError("the scheduler configuration must be an object of kind KubeSchedulerConfiguration")
    configuration["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000}
    configuration["leaderElection"] = {"leaderElect": False}
    filled_in: str = yaml.safe_dump(configuration, sort_keys=False)
    return filled_in


def signing_key_pem() -> str:
    """Return a new EC P-256 private key for service account tokens.

    RFC 5915 makes the public point optional, and Go derives it, so that the key is a random number in its wrapping and
    needs no cryptography library.
    """
    scalar = secrets.randbelow(P256_ORDER - 1) + 1
    number = _der(OCTET_STRING, scalar.to_bytes(32, "big"))
    key = _der(SEQUENCE, _der(INTEGER, b"\x01") + number + _der(CONTEXT_0, P256_OBJECT_IDENTIFIER))
    return f"-----BEGIN EC PRIVATE KEY-----\n{base64.encodebytes(key).decode()}-----END EC PRIVATE KEY-----\n"


def _der(tag: int, content: bytes) -> bytes:
    return bytes([tag, len(content)]) + content  # contents below 128 bytes, whose length is one byte


def token() -> str:
    """Return a new bearer token."""
    return secrets.token_urlsafe(24)


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, replacing an older one atomically."""
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    partial.rename(path)


def kubeconfig(*, name: str, server: str, certificate_authority: Path, user: str, token: str) -> str:
    """Return a kubeconfig with one cluster, one user with a bearer token, and a context of the sandbox's name."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority": str(certificate_authority)}}
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user, "namespace": "default"}}],
        "current-context": name,
    }
    text: str = yaml.safe_dump(content, sort_keys=False)
    return text
