"""A real node: containerd, kubelet and kube-proxy as plain processes in namespaces of their own."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from respread_sandbox.supervised import SupervisedProcesses, last_lines
from tests.node import cgroups
from tests.node.certificates import Certificates
from tests.node.programs import IMAGE, WORKLOAD_IMAGE, Programs, name_in
from tests.processes import wait_until

PODS: Final = "10.244.0.0/16"
CONTAINERD: Final = "containerd"
KUBELET: Final = "kubelet"
KUBE_PROXY: Final = "kube-proxy"
_SOCKET: Final = "/run/containerd/containerd.sock"
_NAMESPACES: Final = ("--net", "--mount", "--uts", "--pid", "--ipc")
_UNSHARE: Final = ("unshare", *_NAMESPACES, "--fork", "--kill-child=SIGKILL", "--mount-proc")
_GET: Final = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=30).read().decode(), end='')"


class Place(NamedTuple):
    """The names and addresses of a node."""

    name: str
    zone: str
    address: str
    pods: str
    """The CIDR of its pods."""
    bridge: str
    """The interface that connects the nodes with each other and with the API server."""
    gateway: str
    """The address of the bridge."""


class RealNode:
    """One node. It needs the bridge in the network namespace of this process."""

    def __init__(
        self, place: Place, folder: Path, programs: Programs, certificates: Certificates, server: str, cgroup: str
    ) -> None:
        """Start the node. Its kubelet is not ready yet.

        Args:
            place: where it is.
            folder: of the node; it must not exist, and is removed with the node.
            programs: the programs and images of the node.
            certificates: create those of its kubelet and of its kube-proxy.
            server: the URL of the API server.
            cgroup: the path of the cgroup for the node's pods, from the root of each hierarchy.
        """
        self.place = place
        self.cgroup = cgroup
        self._folder = folder
        self._programs = programs
        self._interface = f"to-{place.address}"
        folder.mkdir()
        cgroups.create(cgroup)
        certificates.for_client(place.name, f"system:node:{place.name}", "system:nodes")
        certificates.for_client(f"{place.name}-proxy", "system:kube-proxy")
        self._write("kubelet.kubeconfig", certificates.kubeconfig(place.name, server))
        self._write("kube-proxy.kubeconfig", certificates.kubeconfig(f"{place.name}-proxy", server))
        self._write("kubelet.yaml", self._kubelet(certificates.authority))
        self._write("kube-proxy.yaml", self._kube_proxy())
        self._write("network/10-pods.conflist", self._pod_network())
        (folder / "containerd.toml").write_text(self._containerd(), encoding="utf-8")
        (folder / "resolv.conf").touch()
        init = ["sh", str(Path(__file__).with_name("node.sh")), place.name, str(folder)]
        self._processes = SupervisedProcesses(folder, within=[*_UNSHARE, *init])
        try:
            self._processes.status()  # the answer comes when node.sh has mounted what the node needs
            self._connect()
            self._start_programs()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every process of the node, and remove its files."""
        self._processes.close()

    # Its programs

    def log(self, program: str) -> str:
        """Return the last lines of a program's log."""
        return last_lines(self._folder / f"{program}.log", 60)

    def stop(self, program: str) -> None:
        """Kill a program. It stays down until `start`."""
        self._processes.send_signal(program, signal.SIGKILL)

    def start(self, program: str) -> None:
        """Start a program."""
        commands = {
            CONTAINERD: ["--config", f"{self._folder}/containerd.toml"],
            KUBELET: [
                f"--config={self._folder}/kubelet.yaml",
                f"--kubeconfig={self._folder}/kubelet.kubeconfig",
                f"--hostname-override={self.place.name}",
                f"--node-ip={self.place.address}",
                f"--node-labels=topology.kubernetes.io/region=region-1,topology.kubernetes.io/zone={self.place.zone}",
                "--cert-dir=/var/lib/kubelet/pki",
            ],
            KUBE_PROXY: [f"--config={self._folder}/kube-proxy.yaml"],
        }
        environment = {"PATH": self._programs.path(), "HOME": str(self._folder), "TMPDIR": "/run"}
        program_path = shutil.which(program, path=environment["PATH"]) or program
        log = self._folder / f"{program}.log"
        self._processes.spawn(program, [program_path, *commands[program]], environment, log)

    def import_image(self, archive: Path, name: str) -> None:
        """Import one of our images under the name that the chart has for it."""
        self._ctr("images", "import", str(archive))
        self._ctr("images", "tag", "--force", name_in(archive), name)

    # Its network

    def cut_off(self) -> None:
        """Disconnect the node from all others and from the API server."""
        _ip("link", "set", self._interface, "down")

    def connect_again(self) -> None:
        """End `cut_off`."""
        _ip("link", "set", self._interface, "up")

    def get(self, url: str) -> str:
        """Return the body of an HTTP answer, to a request from the node.

        Raises:
            OSError: there is no such answer.
        """
        done = subprocess.run(
            [*self._in_namespaces("--net"), "python3", "-c", _GET, url], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise OSError(f"{url} from {self.place.name}: {done.stderr.strip().rpartition(chr(10))[2]}")
        return done.stdout

    def nft(self, commands: str) -> None:
        """Change the nftables rules for packets of the node and of its pods."""
        command = [*self._in_namespaces("--net"), "nft", "-f", "-"]
        subprocess.run(command, input=commands, text=True, check=True, env={"PATH": self._programs.path()})

    # Its containers, as the kernel shows them

    def cgroup_file(self, pod: dict[str, Any], controller: str, name: str) -> Path:
        """Return a file of the cgroup of a pod's only container."""
        (container,) = (
            each["containerID"].rpartition("/")[2]
            for each in pod["status"]["containerStatuses"]
            if "running" in each["state"]
        )
        (folder,) = (path for path in cgroups.folder(controller, self.cgroup).rglob(container) if path.is_dir())
        return folder / name

    def process_ids(self, pod: dict[str, Any]) -> list[int]:
        """Return the ids of the processes of a pod's only container, in the PID namespace of this process."""
        return sorted(map(int, self.cgroup_file(pod, "memory", "cgroup.procs").read_text(encoding="ascii").split()))

    # How it is started

    def _connect(self) -> None:
        place = self.place
        first = str(self._first_process())
        _ip("link", "add", self._interface, "type", "veth", "peer", "name", "eth0", "netns", first)
        _ip("link", "set", self._interface, "master", place.bridge, "up")
        for arguments in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{place.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", place.gateway),  # of this network, which leads nowhere else
        ):
            _ip(*arguments, within=self._in_namespaces("--net"))
        _ip("route", "add", place.pods, "via", place.address)

    def _start_programs(self) -> None:
        self.start(CONTAINERD)
        wait_until(self._containerd_answers, lambda: f"containerd to answer:\n{self.log(CONTAINERD)}")
        self._ctr("images", "import", str(self._programs.workload))
        self.import_image(self._programs.image, IMAGE)
        self.start(KUBELET)
        self.start(KUBE_PROXY)
        self._processes.keep_running([CONTAINERD, KUBELET, KUBE_PROXY])

    def _containerd_answers(self) -> bool:
        try:
            self._ctr("version")
        except subprocess.CalledProcessError:
            return False
        return True

    def _ctr(self, *arguments: str) -> None:
        command = [*self._in_namespaces("--all"), "ctr", "--namespace=k8s.io", *arguments]
        environment = {"PATH": self._programs.path()}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _in_namespaces(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self._first_process()}", *namespaces]

    def _first_process(self) -> int:
        """Return the id of the node's first process, in the PID namespace of this process."""
        unshare = self._processes.pid
        return int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="ascii"))

    # Its configuration

    def _write(self, name: str, content: dict[str, Any]) -> None:
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    def _containerd(self) -> str:
        runc = shutil.which("runc", path=self._programs.path())
        return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{_SOCKET}"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{WORKLOAD_IMAGE}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE, no process may have less than its parent
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    BinaryName = "{runc}"
    SystemdCgroup = false
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = {json.dumps([str(each) for each in self._programs.network_plugins])}
  conf_dir = "{self._folder}/network"
"""

    def _pod_network(self) -> dict[str, Any]:
        addresses = {
            "type": "host-local",
            "dataDir": "/var/lib/cni",
            "ranges": [[{"subnet": self.place.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        # Without a bridge of its own, so that nothing depends on bridge-nf-call-iptables.
        plugin = {"type": "ptp", "ipMasq": False, "mtu": 1500, "ipam": addresses}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}

    def _kubelet(self, authority: Path) -> dict[str, Any]:
        rarely = {"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%"}
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "failCgroupV1": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroup,
            "containerRuntimeEndpoint": f"unix://{_SOCKET}",
            "address": self.place.address,
            "healthzBindAddress": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(authority)}},
            "clusterDomain": "cluster.local",
            "clusterDNS": ["10.0.0.10"],  # nobody answers there
            "resolvConf": str(self._folder / "resolv.conf"),
            "evictionHard": {**rarely, "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        }

    def _kube_proxy(self) -> dict[str, Any]:
        # The size of the table of connections belongs to the whole machine.
        unchanged = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "hostnameOverride": self.place.name,
            "clientConnection": {"kubeconfig": str(self._folder / "kube-proxy.kubeconfig")},
            "clusterCIDR": PODS,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": unchanged,
        }


def _ip(*arguments: str, within: Sequence[str] = ()) -> None:
    subprocess.run([*within, "ip", *arguments], check=True)
