"""A running control plane with simulated nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec
import yaml

from respread_sandbox import components
from respread_sandbox.api import ApiError, SandboxApi
from respread_sandbox.binaries import Binaries
from respread_sandbox.components import (
    API_SERVER,
    CONTROLLER_MANAGER,
    ETCD,
    KARPENTER,
    KUBECTL,
    KWOK,
    Files,
    kubeconfig,
    signing_key_pem,
    token,
    write_private,
)
from respread_sandbox.directory import DESCRIPTION_FILE, NamedSandbox, claim
from respread_sandbox.karpenter import Karpenter, instance_types, node_pool
from respread_sandbox.nodes import SimulatedNodes
from respread_sandbox.options import SandboxError, SandboxOptions
from respread_sandbox.supervised import ComponentError, SupervisedProcesses, last_lines

ADMINISTRATOR: Final = "admin"
POLL_SECONDS: Final = 0.06
START_SECONDS: Final = 120
TOKEN_SECONDS: Final = 86_400
SLOW_HOOKS: Final = ("rbac/bootstrap-roles", "scheduling/bootstrap-system-priority-classes")
"""Post-start hooks of kube-apiserver that the components do not need, because they are administrators."""


class Sandbox:
    """A control plane that belongs to this process. Use it as a context manager, or call close.

    Whatever happens to this process, no component and no file of the sandbox outlives it, unless it was detached.
    """

    def __init__(
        self,
        files: Files,
        processes: SupervisedProcesses,
        binaries: Binaries,
        options: SandboxOptions,
        karpenter: Karpenter | None,
    ) -> None:
        """Store the parts of a sandbox. Use `start` instead, which also boots it."""
        self.options = options
        self.files = files
        self._processes = processes
        self._binaries = binaries
        self._karpenter = karpenter
        self._port = processes.reserve_port()
        self._api: SandboxApi | None = None

    @classmethod
    def start(
        cls, options: SandboxOptions | None = None, *, name: str | None = None, binaries: Binaries | None = None
    ) -> Self:
        """Start a control plane and return when it and its nodes are ready, some 4 s later.

        Args:
            options: What it shall be; by default 12 nodes in 3 zones and all components.
            name: Under which `respread sandbox status` shows it; no other living sandbox may have it.
            binaries: Where its programs are, whatever version the options name; by default those of that version are
                found, or built, which takes minutes the first time.

        Raises:
            SandboxError: It cannot be started; everything that was is stopped again.
        """
        options = options or SandboxOptions()
        options.zone_sizes()  # wrong numbers are found before anything is started
        binaries = binaries or Binaries.find_or_build(kubernetes_version=options.kubernetes_version)
        karpenter = Karpenter.find_or_build() if options.karpenter else None
        directory = claim(name)
        try:
            processes = SupervisedProcesses(directory.path, directory.lock_fd)
            os.write(directory.lock_fd, str(processes.pid).encode())  # whom to end, for those who find the lock held
        finally:
            os.close(directory.lock_fd)  # the supervisor has inherited it
        try:
            sandbox = cls(Files(directory.path), processes, binaries, options, karpenter)
            sandbox._boot()  # a constructor's second half
        except BaseException:
            processes.close()
            raise
        return sandbox

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop all components and remove all files; a second call does nothing."""
        if self._api is not None:
            self._api.close()
        self._processes.close()

    def leave_running(self) -> NamedSandbox:
        """Keep the sandbox running after this process, until `respread sandbox down` or SIGTERM to its supervisor.

        `running` and `stop` find it by its name.
        """
        description = NamedSandbox(
            name=self.name,
            directory=self.files.directory,
            supervisor_pid=self.supervisor_pid,
            server=self.server,
            kubeconfig=self.kubeconfig,
            kubectl=self.kubectl_path,
            nodes_per_zone=self.options.zone_sizes(),
            started_at=time.time(),
        )
        (self.files.directory / DESCRIPTION_FILE).write_bytes(msgspec.json.encode(description, enc_hook=str))
        self._processes.detach()
        return description

    # -- using it ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The given or generated name, which is also the name of the kubeconfig's context."""
        return self.files.directory.name

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{self.options.address}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.files.kubeconfig(ADMINISTRATOR)

    @property
    def kubectl_path(self) -> Path:
        """The path of the kubectl that the method `kubectl` runs."""
        return self._binaries.path(KUBECTL)

    @property
    def supervisor_pid(self) -> int:
        """The process id of the supervisor, the parent of the components; SIGTERM to it stops the sandbox."""
        return self._processes.pid

    @property
    def api(self) -> SandboxApi:
        """A client with the administrator's permissions; `api.client` is the pykube-ng client."""
        if self._api is None:
            raise SandboxError("this sandbox has not been started")
        return self._api

    @property
    def nodes(self) -> SimulatedNodes:
        """The simulated nodes, to add, remove, cordon, fail and recover."""
        return SimulatedNodes(self.api)

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl, by default as the administrator, and return what it prints.

        Raises:
            SandboxError: It failed; the message is what it said.
        """
        command = [
            str(self.kubectl_path),
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.files.directory / 'kubectl-cache'}",
            *arguments,
        ]
        environment = components.environment(self.files, os.environ)
        done = subprocess.run(  # noqa: S603  # our own kubectl, with a test's or the product's own arguments
            command, input=stdin, capture_output=True, text=True, check=False, env=environment
        )
        if done.returncode != 0:
            raise SandboxError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def apply(self, manifests: Path | str) -> str:
        """`kubectl apply` a file, a folder (with a kustomization.yaml: as kustomize), or YAML text."""
        if isinstance(manifests, str):
            return self.kubectl("apply", "-f", "-", stdin=manifests)
        option = "-k" if (manifests / "kustomization.yaml").exists() else "-f"
        return self.kubectl("apply", option, str(manifests))

    def wait_for_definitions(self, *names: str) -> None:
        """Wait until the API server serves the kinds of CustomResourceDefinitions that were just applied.

        `kubectl wait` does that too, but fails if it looks before the definition has any condition.
        """
        self._wait(lambda: all(map(self._is_established, names)), f"the definitions {', '.join(names)}")

    def create_namespace(self, name: str) -> str:
        """Create a namespace, wait until it accepts pods (it has its default ServiceAccount), and return its name."""
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        if self.options.controller_manager:
            self._wait(lambda: self._has_default_service_account(name), f"the default ServiceAccount of {name}")
        return name

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig with a new token (TokenRequest) of a ServiceAccount, with only its permissions.

        A second call writes the same file again at once: a process that re-reads it sees a rotated token.
        """
        body = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
        answer = self.api.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
        user = f"{namespace}.{name}"
        return self._write_kubeconfig(user, answer["status"]["token"])

    # -- its components ------------------------------------------------------------------------------------------

    @property
    def components(self) -> tuple[str, ...]:
        """The names of the components that the sandbox was started with."""
        return components.wanted(self.options)

    def process_id(self, component: str) -> int:
        """Return the process id of a running component.

        Raises:
            SandboxError: There is none of that name, or it has been stopped.
        """
        if (pid := self._pid(component)) is None:
            raise SandboxError(f"{component} does not run in this sandbox")
        return pid

    def log(self, component: str) -> Path:
        """Return the path of a component's log; a restart appends to it."""
        return self.files.log(component)

    def stop_component(self, component: str) -> None:
        """Kill a component (SIGKILL), as a crash would."""
        self._processes.send_signal(component, signal.SIGKILL)

    def start_component(self, component: str) -> None:
        """Start a component again after `stop_component`, with all its data.

        After kube-apiserver or etcd, kube-apiserver is ready again when this returns, if both run, and the components
        that an outage leaves behind are restarted if they run. KWOK gives up a pod for good when the API server
        answers with a 500; a kubelet does not. kube-controller-manager's informers wait up to a minute after several
        outages, and its controllers then put off what they read too early by up to 1,000 s (since 1.36, feature gate
        StaleControllerConsistencyReplicaSet and its siblings); one
        that runs with leader election loses its Lease, ends, and is restarted by its kubelet.
        """
        self._spawn(component)
        if component in {ETCD, API_SERVER} and self._pid(API_SERVER) is not None:
            self._wait(self._is_ready, API_SERVER)
            if self._pid(KWOK) is not None:
                self.stop_component(KWOK)
                self.nodes.delete_leases()
                self._spawn(KWOK)
            if self._pid(CONTROLLER_MANAGER) is not None:
                self.stop_component(CONTROLLER_MANAGER)
                self._spawn(CONTROLLER_MANAGER)

    def freeze_component(self, component: str) -> None:
        """Pause a component (SIGSTOP)."""
        self._processes.send_signal(component, signal.SIGSTOP)

    def thaw_component(self, component: str) -> None:
        """Resume a frozen component (SIGCONT)."""
        self._processes.send_signal(component, signal.SIGCONT)

    # -- programs beside it --------------------------------------------------------------------------------------

    def start_program(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start another program, which is stopped with the sandbox; `log(name)` has its output."""
        self._processes.spawn(name, command, environment, self.log(name))

    def signal_program(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a program; nothing happens if it has ended."""
        self._processes.send_signal(name, number)

    def exit_code(self, name: str) -> int | None:
        """Return a program's exit code, or the negative number of the signal that ended it; None while it runs."""
        return self._processes.status()[name].exit

    # -- starting it ---------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        first, others = self.components[:2], self.components[2:]
        users = {user: token() for user in (ADMINISTRATOR, *others)}
        lines = [f'{secret},{user},{user},"system:masters"\n' for user, secret in users.items()]
        write_private(self.files.tokens, "".join(lines))
        write_private(self.files.signing_key, signing_key_pem())
        components.write_configurations(self.files, self.options)
        for component in first:
            self._spawn(component)
        self._wait(self.files.has_serving_certificate, f"{API_SERVER} to write its certificate")
        for user, secret in users.items():
            self._write_kubeconfig(user, secret)
        self._api = SandboxApi(self.kubeconfig)
        self._wait(lambda: self._is_ready(*SLOW_HOOKS), API_SERVER)
        for component in others:
            if component != KARPENTER:
                self._spawn(component)
        for zone, size in self.options.zone_sizes().items():
            self.nodes.add(size, zone, self.options.shape)
        self._wait(self._is_ready, API_SERVER)
        if self.options.controller_manager:
            self._wait(lambda: self._has_default_service_account("default"), "the default ServiceAccount")
            self._wait(
                lambda: len(self.nodes.ready()) == sum(self.options.zone_sizes().values()), "all nodes to be Ready"
            )
        if self._karpenter is not None:
            self._start_karpenter(self._karpenter)
        self._processes.keep_running(self.components)  # before, one that ends has the wrong options

    def _start_karpenter(self, karpenter: Karpenter) -> None:
        for folder in karpenter.definitions:
            self.apply(folder)
        names = [yaml.safe_load(file.read_bytes())["metadata"]["name"] for file in karpenter.definition_files()]
        self.wait_for_definitions(*names)
        self.files.instance_types.write_text(json.dumps(instance_types(self.options.zone_sizes())), encoding="utf-8")
        self._spawn(KARPENTER)
        self.apply(node_pool())

    def _pid(self, component: str) -> int | None:
        status = self._processes.status().get(component)
        return None if status is None or status.exit is not None else status.pid

    def _spawn(self, component: str) -> None:
        arguments = components.arguments(component, self.files, self._port, self.options)
        environment = components.environment(self.files, os.environ, component)
        program = str(self._program(component))
        self._processes.spawn(component, [program, *arguments], environment, self.log(component))

    def _program(self, component: str) -> Path:
        if component == KARPENTER and self._karpenter is not None:
            return self._karpenter.program
        return self._binaries.path(component)

    def _write_kubeconfig(self, user: str, secret: str) -> Path:
        file = self.files.kubeconfig(user)
        authority = self.files.serving_certificate
        write_private(
            file,
            kubeconfig(name=self.name, server=self.server, certificate_authority=authority, user=user, token=secret),
        )
        return file

    def _is_ready(self, *without_hooks: str) -> bool:
        excluded = "&".join(f"exclude=poststarthook/{hook}" for hook in without_hooks)
        try:
            self.api.get(f"/readyz?{excluded}")
        except (ApiError, OSError):  # as are the errors of requests and urllib3
            return False
        return True

    def _is_established(self, definition: str) -> bool:
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}"
        conditions = self.api.get(path).get("status", {}).get("conditions") or ()
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    def _has_default_service_account(self, namespace: str) -> bool:
        return self.api.exists(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")

    def _wait(self, until: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not until():
            self._check_components()
            if time.monotonic() > deadline:
                message = f"waited {START_SECONDS} s for {what}; {API_SERVER} says:\n{last_lines(self.log(API_SERVER))}"
                raise ComponentError(message)
            time.sleep(POLL_SECONDS)

    def _check_components(self) -> None:
        processes = self._processes.status()
        for component, status in ((name, processes[name]) for name in self.components if name in processes):
            if status.exit not in (None, -signal.SIGKILL):  # killed ones were stopped on purpose
                message = f"{component} ended with exit code {status.exit}:\n{last_lines(self.log(component))}"
                raise ComponentError(message)
