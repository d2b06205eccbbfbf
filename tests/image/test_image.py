"""The image is reproducible and described, and runs without write access or capabilities."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from respread import __version__
from respread.kube.access import FOLDER as SERVICE_ACCOUNT
from respread_sandbox import Sandbox
from tests import debian_base
from tests.image_sbom import Image, document, read_image
from tests.integration.operator_process import evictions, policy, refused
from tests.integration.pod_process import PodProcess
from tests.integration.reused_sandbox import lay_out
from tests.integration.tls_front import Authority, TlsFront
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    leave_in_zone,
    pods_per_domain,
    wait_for_ready_pods,
    wait_until,
)
from tests.registry import Registry, registry

ROOT = Path(__file__).parents[2]
USER = "65532:65532"
OPENSHIFT_USER = "1000650000:0"
"""OpenShift chooses a user for each namespace, with group 0."""
REVISION = "0123456789abcdef0123456789abcdef01234567"

pytestmark = pytest.mark.timeout(1800)
"""The fixture downloads Debian's packages first if they are not in the cache."""


def environment() -> dict[str, str]:
    """Build without the kernel features that nested containers lack."""
    return {**os.environ, "BUILDAH_ISOLATION": "chroot"}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The base that the Dockerfile names, if it can be pulled."""
    return debian_base.public_or_built("podman", tmp_path_factory.mktemp("base"))


def build(name: str, base: str, engine: str = "podman", target: str = "operator") -> str:
    make = ["make", "--no-print-directory", "-C", str(ROOT), "image"]
    commit = [f"REVISION={REVISION}", "COMMITTED=1800000000"]  # the same for all builds
    variables = [f"ENGINE={engine}", f"IMAGE={name}", f"PYTHON_IMAGE={base}", f"TARGET={target}", *commit]
    subprocess.run([*make, *variables], env=environment(), check=True, stdout=subprocess.DEVNULL)
    return name


@pytest.fixture(scope="module")
def image(base: str) -> str:
    return build("localhost/respread:tested", base)


@pytest.fixture(scope="module")
def page(base: str) -> str:
    return build("localhost/respread-ui:tested", base, target="page")


@pytest.fixture(scope="module")
def contents(image: str, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return contents_of(image, tmp_path_factory.mktemp("archive") / "image.tar")


def contents_of(image: str, archive: Path) -> Image:
    subprocess.run(["podman", "save", "--quiet", "--format", "oci-archive", "-o", archive, image], check=True)
    return read_image(archive)


def container(image: str, name: str, *options: str) -> list[str]:
    """Return the arguments that run a container as a kubelet does for manifests/base/deployment.yaml.

    It has no write access. Podman alone adds the container's user to its /etc/passwd.
    """
    # crun rejects machines with both versions of cgroups. No container may have more capabilities than this process.
    runtime = ["--runtime", found] if (found := shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")) else []
    limits = []
    for each in ("nofile", "nproc"):
        _, most = resource.getrlimit(getattr(resource, f"RLIMIT_{each.upper()}"))
        limits += ["--ulimit", f"{each}={min(most, 1024)}:{min(most, 1024)}"]
    bare = ["--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges"]
    bare += ["--passwd=false", "--network=host"]
    return ["podman", *runtime, "run", "--rm", "--name", name, *limits, *bare, *options, image]


def users() -> list[str]:
    """Return the users that containers of this machine can have: without root, podman has only some 65,536 numbers."""
    return [USER, OPENSHIFT_USER] if os.geteuid() == 0 else [USER]


@contextmanager
def running(image: str, sandbox: Sandbox, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the operator in a container while the context lasts. It must exit successfully."""
    name, log = f"respread-test-{os.getpid()}", folder / "log"
    (service_account := folder / "serviceaccount").mkdir()
    authority = Authority.create(folder, identifiers=False)  # as in a cluster that was made before Go 1.15
    with TlsFront(sandbox, authority.server("IP:127.0.0.1")) as front, log.open("w") as output:
        pod = PodProcess(sandbox, service_account, server=front.server)
        pod.write("ca.crt", authority.own.text)
        options = [f"--env={variable}={value}" for variable, value in pod.service.items()]
        options += [f"--volume={service_account}:{SERVICE_ACCOUNT}:ro", f"--user={users()[-1]}"]
        command = [*container(image, name, *options), "run", "--listen-address=127.0.0.1:0", "--log-format=json"]
        with subprocess.Popen(command, stdout=output, stderr=output) as operator:
            try:
                yield operator
            except AssertionError as error:
                raise AssertionError(f"{error}; its log:\n{log.read_text()[-4000:]}") from error
            finally:
                subprocess.run(["podman", "stop", "--time=60", name], check=False, capture_output=True)
                operator.wait(60)
    assert operator.returncode == 0, log.read_text()[-4000:]


def test_the_container_restores_the_spread_without_capabilities_or_writable_files(
    image: str, installed_sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox = lay_out(installed_sandbox, 3, 3, 3)
    sandbox.create_namespace("shop")
    create_deployment(sandbox, "shop", deployment("web", replicas=9, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, "shop", "web", 9)
    assert leave_in_zone(sandbox, "shop", "web", "zone-a") == 3
    skewed = {"zone-a": 3, "zone-b": 0, "zone-c": 0}
    wait_until(lambda: pods_per_domain(sandbox, "shop", "web") == skewed, "all that is left to be in one zone")
    sandbox.apply(json.dumps(policy()))

    with running(image, sandbox, tmp_path) as operator:
        evenly = {"zone-a": 1, "zone-b": 1, "zone-c": 1}

        def restored() -> bool:
            assert operator.poll() is None, "the operator has ended"
            return pods_per_domain(sandbox, "shop", "web") == evenly

        wait_until(restored, "the pods to be spread again")
    assert len(evictions(sandbox)) == 2
    assert refused(sandbox) == []


@pytest.mark.parametrize("user", users())
def test_the_container_runs_as_a_user_without_a_name_who_can_write_no_file(image: str, user: str) -> None:
    tell = (
        "import getpass, json, os, pathlib\n"
        "status = pathlib.Path('/proc/self/status').read_text()\n"
        "fields = dict(line.split(':', 1) for line in status.splitlines())\n"
        "writable = [each for each in ('/', '/tmp', '/opt/respread', '/home') if os.access(each, os.W_OK)]\n"
        "print(json.dumps([f'{os.getuid()}:{os.getgid()}', fields['CapEff'].strip(), writable]))\n"
        "try:\n"
        "    print(getpass.getuser())\n"
        "except (KeyError, OSError):\n"  # the former before Python 3.13
        "    print('nobody')\n"
    )
    command = container(image, f"respread-tells-{os.getpid()}", f"--user={user}", "--entrypoint=python3")
    told = subprocess.run([*command, "-c", tell], check=True, capture_output=True, text=True).stdout
    told, name = told.splitlines()
    assert json.loads(told) == [user, "0" * 16, []]
    assert name == "nobody"


def test_the_same_commit_builds_the_same_image(base: str, contents: Image, tmp_path: Path) -> None:
    engine = "buildah" if shutil.which("buildah") else "podman"
    again = build("localhost/respread:tested-again", base, engine)
    assert contents_of(again, tmp_path / "again.tar").digest == contents.digest


def test_the_bytecode_in_the_image_does_not_depend_on_the_age_of_files(image: str) -> None:
    """Python would ignore bytecode with another time than its source's."""
    tell = (
        "import json, pathlib\n"
        "found = list(pathlib.Path('/opt/respread').rglob('*.pyc'))\n"
        "by_time = [str(path) for path in found if path.read_bytes()[4:8] != bytes([1, 0, 0, 0])]\n"  # PEP 552
        "print(json.dumps([len(found), by_time]))\n"
    )
    command = container(image, f"respread-tells-{os.getpid()}", "--entrypoint=python3")
    told = subprocess.run([*command, "-c", tell], check=True, capture_output=True, text=True).stdout
    number, by_time = json.loads(told)
    assert number > 500
    assert by_time == []


def test_the_image_has_version_and_source_labels(contents: Image) -> None:
    config = contents.config["config"]
    prefix = "org.opencontainers.image."
    labels = {name.removeprefix(prefix): value for name, value in config["Labels"].items()}
    assert labels["revision"] == REVISION
    assert labels["version"] == __version__
    assert labels["licenses"] == "Apache-2.0"
    assert {"title", "description", "source", "documentation"} <= labels.keys()
    assert config["User"] == USER
    assert (config["Entrypoint"], config["Cmd"]) == (["respread"], ["run"])


def test_the_page_has_an_image_of_its_own_which_is_the_same_each_time(page: str, base: str, tmp_path: Path) -> None:
    found = contents_of(page, tmp_path / "page.tar")
    again = build(
        "localhost/respread-ui:tested-again", base, "buildah" if shutil.which("buildah") else "podman", "page"
    )
    assert contents_of(again, tmp_path / "again.tar").digest == found.digest
    config = found.config["config"]
    assert config["Labels"]["org.opencontainers.image.title"] == "respread-ui"
    assert config["Labels"]["org.opencontainers.image.revision"] == REVISION
    assert (config["User"], config["Entrypoint"], config["Cmd"][0]) == (USER, ["respread"], "ui")
    assert found.compressed_bytes <= 100e6
    names = {each["name"] for each in document(found)["components"]}
    assert {"respread", "respread-operator"} <= names
    assert names.isdisjoint({"kubernetes", "pip", "pytest", "respread-sandbox"})
    command = [*container(page, f"respread-page-{os.getpid()}"), "ui", "--no-open", "--kubeconfig=/none"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "/none" in done.stderr  # all that it imports is there


def test_the_image_is_small(contents: Image) -> None:
    assert contents.compressed_bytes <= 100e6


def test_the_sbom_names_exactly_the_contents_of_the_image(image: str, contents: Image) -> None:
    found = {(each["purl"].split("/")[0], each["name"], each["version"]) for each in document(contents)["components"]}
    ask = (
        "import importlib.metadata as m, json, re\n"
        "print(json.dumps([[re.sub(r'[-_.]+', '-', d.name).lower(), d.version] for d in m.distributions()]))"
    )
    command = container(image, f"respread-lists-{os.getpid()}", "--entrypoint=/opt/respread/bin/python3")
    python = subprocess.run([*command, "-c", ask], check=True, capture_output=True, text=True).stdout
    command = container(image, f"respread-lists-{os.getpid()}", "--entrypoint=dpkg-query")
    show = ["--show", "--showformat=${Package} ${Version}\\n"]
    debian = subprocess.run([*command, *show], check=True, capture_output=True, text=True).stdout.splitlines()
    expected = {("pkg:pypi", *each) for each in json.loads(python)} | {("pkg:deb", *each.split(" ")) for each in debian}
    assert {each for each in found if each[0] != "pkg:generic"} == expected
    names = {name for kind, name, _ in found if kind == "pkg:pypi"}
    assert ("pkg:pypi", "respread-operator", __version__) in found
    assert names.isdisjoint({"kubernetes", "pykube-ng", "requests", "respread", "respread-sandbox", "rich"})


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


def test_the_image_is_signed_with_its_sbom_and_runs_when_pulled(
    local: Registry, image: str, contents: Image, tmp_path: Path
) -> None:
    name = f"{local.address}/respread"
    digest = push(local, image, f"{name}:{__version__}")
    sbom = tmp_path / "image.cdx.json"
    sbom.write_text(json.dumps(document(contents)), encoding="utf-8")
    unsigned = local.make("check-image", IMAGE=f"{name}@{digest}", KEY=local.public_key)
    assert "no signatures found" in unsigned.stderr
    local.makes("sign-image", IMAGE=f"{name}@{digest}", KEY=local.secret_key)
    local.makes("attest-image", IMAGE=f"{name}@{digest}", SBOM=sbom, KEY=local.secret_key)
    local.makes("check-image", IMAGE=f"{name}:{__version__}", KEY=local.public_key)

    subprocess.run(["podman", "pull", "--quiet", "--tls-verify=false", f"{name}@{digest}"], check=True)
    command = container(f"{name}@{digest}", f"respread-pulled-{os.getpid()}")
    shown = subprocess.run([*command, "--version"], check=True, capture_output=True, text=True)
    assert __version__ in shown.stdout


def test_an_index_of_images_is_signed(local: Registry, image: str, tmp_path: Path) -> None:
    name = f"{local.address}/several"
    digest = tmp_path / "digest"
    digest.write_text(push(local, image, f"{name}:one"))
    of_index = tmp_path / "index.digest"
    local.makes("push-index", IMAGE=f"{name}:{__version__}", OF=digest, DIGEST=of_index)
    assert of_index.read_text() != digest.read_text()
    local.makes("sign-image", IMAGE=f"{name}@{of_index.read_text().strip()}", KEY=local.secret_key)
    local.makes("check-signed", IMAGE=f"{name}:{__version__}", KEY=local.public_key)


def push(local: Registry, image: str, name: str) -> str:
    """Push an image by another name, and return the digest that the registry has given it."""
    subprocess.run(["podman", "tag", image, name], check=True)
    digest = local.folder / "pushed.digest"
    local.makes("push-image", IMAGE=name, ENGINE="podman", DIGEST=digest, PLAIN_HTTP=1)
    subprocess.run(["podman", "untag", image, name], check=True)
    return digest.read_text().strip()
