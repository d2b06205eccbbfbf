"""Workflows build and check only by targets of the Makefile and by existing scripts."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from respread import __version__
from tests.makefile import make

ROOT: Final = Path(__file__).parents[3]
WORKFLOWS: Final = sorted((ROOT / ".github" / "workflows").glob("*.yaml"))
BUILDERS: Final = re.compile(
    r"\b(pip|python3?|twine|helm|cosign|cyclonedx\S*|buildah|podman|docker build|docker buildx build)\b"
)


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda each: each.stem)
def test_workflows_run_existing_targets_and_scripts(workflow: Path) -> None:
    targets: set[str] = set()
    for step in steps(workflow):
        for line in step.get("run", "").splitlines():
            assert not BUILDERS.search(line), line
            for script in re.findall(r"\.ci/\w+", line):
                assert (ROOT / script).is_file()
            for command in re.findall(r"\bmake ([^>&|]*)", line):
                targets |= {word for word in command.split() if re.fullmatch(r"[a-z][a-z-]*", word)}
    assert targets
    # Make would look for an engine wherever the variable is used.
    subprocess.run(["make", "--dry-run", "ENGINE=podman", *sorted(targets)], cwd=ROOT, check=True, capture_output=True)


def test_releases_are_checked_before_they_are_published() -> None:
    (release,) = (each for each in WORKFLOWS if each.stem == "release")
    jobs = yaml.safe_load(release.read_text(encoding="utf-8"))["jobs"]
    assert (jobs["image"]["needs"], jobs["build"]["needs"]) == ("test", "image")
    assert jobs["publish"]["needs"] == ["build", "image"]
    build = " ".join(step.get("run", "") for step in jobs["build"]["steps"])
    order = ("make check-tag", "make dist", "make checksums check-dist", "make sign")
    assert sorted(order, key=build.index) == list(order)


def test_a_release_contains_the_sbom_of_each_image() -> None:
    (release,) = (each for each in WORKFLOWS if each.stem == "release")
    jobs = yaml.safe_load(release.read_text(encoding="utf-8"))["jobs"]
    image, build, publish = (jobs[name]["steps"] for name in ("image", "build", "publish"))
    (written,) = (step for step in image if step.get("run", "").startswith("make image-archive"))
    (kept,) = (step["with"] for step in image if "upload-artifact" in step.get("uses", ""))
    assert image.index(written) < len(image) - 1
    assert kept["path"].splitlines() == ["dist/*.cdx.json", "dist/*.digest"]
    (fetched,) = (step["with"] for step in build if "download-artifact" in step.get("uses", ""))
    assert fnmatch(kept["name"], fetched["pattern"])
    assert (fetched["path"], fetched["merge-multiple"]) == ("dist/", True)
    assert publish[-1]["run"].splitlines()[-1].startswith("find dist -type f -print0 | xargs -0 gh release create ")


def test_a_release_has_both_images_for_both_architectures() -> None:
    (release,) = (each for each in WORKFLOWS if each.stem == "release")
    jobs = yaml.safe_load(release.read_text(encoding="utf-8"))["jobs"]
    built = jobs["image"]["strategy"]["matrix"]["include"]
    names = {"respread": "operator", "respread-ui": "page"}  # the image and its target in the Dockerfile
    assert [(each["name"], each["target"], each["architecture"]) for each in built] == [
        (name, target, architecture) for name, target in names.items() for architecture in ("amd64", "arm64")
    ]
    assert jobs["image"]["env"]["TARGET"] == "${{ matrix.target }}"
    targets = re.findall(r"^FROM \S+ AS (\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(names.values()) <= set(targets)
    published = "\n".join(step.get("run", "") for step in jobs["publish"]["steps"])
    assert f"for name in {' '.join(names)}; do\n" in published
    values = yaml.safe_load((ROOT / "charts" / "respread" / "values.yaml").read_text(encoding="utf-8"))
    chosen = (values["image"]["repository"], values["ui"]["image"]["repository"])
    assert chosen == tuple(f"ghcr.io/respread/{name}" for name in names)


@pytest.mark.parametrize(("target", "name"), [("operator", "respread"), ("page", "respread-ui")])
def test_an_image_is_named_by_its_target(target: str, name: str) -> None:
    shown = make("--dry-run", "image", "image-archive", f"TARGET={target}", "ENGINE=podman", "STAMP=")
    assert f"--tag ghcr.io/respread/{name}:{__version__} " in shown.stdout
    assert f"--target {target} ." in shown.stdout
    assert f"--output dist/{name}-{__version__}-image.tar " in shown.stdout


def test_a_release_signs_digests_that_pushes_returned() -> None:
    (release,) = (each for each in WORKFLOWS if each.stem == "release")
    jobs = yaml.safe_load(release.read_text(encoding="utf-8"))["jobs"]
    kept = jobs["image"]["env"]["DIGEST"].replace("${{ github.ref_name }}", "$VERSION")
    written = {kept.replace("${{ matrix.name }}", "$name").replace("${{ matrix.architecture }}", "$each")}
    assert any(
        "make push-image" in (run := step.get("run", "")) and 'DIGEST="$DIGEST"' in run for step in steps(release)
    )
    signed: list[str] = []
    for step in jobs["publish"]["steps"]:
        for line in step.get("run", "").replace("$kept", "dist/$name-$VERSION-image").splitlines():
            written |= set(re.findall(r'make push-.* DIGEST="?([^" ]+)"?$', line))
            if re.search(r"make (sign|attest)-image", line):
                (file,) = re.findall(r'IMAGE="[^":]+@\$\(cat "?([^")]+)"?\)"', line)
                assert file in written, line
                signed.append(file)
    assert sorted(set(signed)) == sorted(written)


@pytest.mark.parametrize("target", ["sign-image", "attest-image"])
def test_a_tag_is_not_signed(release: Path, target: str) -> None:
    """The tag may have been moved since the push."""
    refused = make(target, "IMAGE=ghcr.io/respread/respread:1.0.0", "SBOM=sbom.json", "KEY=cosign.key", folder=release)
    assert refused.returncode != 0
    assert "ghcr.io/respread/respread:1.0.0 names a tag" in refused.stderr


def test_checksums_cover_sboms_and_digests_and_not_the_archives_of_images(release: Path) -> None:
    dist = release / "dist"
    dist.mkdir()
    images = [f"a-image-amd64.{each}" for each in ("cdx.json", "digest", "tar")]
    for name in ("a.whl", *images, "chart.tgz", "krew/plugin.yaml", "SHA256SUMS.sigstore.json"):
        (dist / name).parent.mkdir(exist_ok=True)
        (dist / name).write_text(name)
    assert make("checksums", folder=release).returncode == 0
    listed = [line.split()[1] for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert listed == ["a-image-amd64.cdx.json", "a-image-amd64.digest", "a.whl", "chart.tgz", "krew/plugin.yaml"]


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """Return the Makefile's variables for a version that has no section in the changelog."""
    for name in ("Makefile", "operator/respread/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n\n- News\n", encoding="utf-8")
    return tmp_path


def test_a_new_version_is_set_wherever_the_version_is_named(release: Path) -> None:
    (line,) = (each for each in (ROOT / "Makefile").read_text().splitlines() if each.startswith("VERSIONED = "))
    files = line.partition(" = ")[2].split()
    for name in files:
        (release / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, release / name)
    done = make("set-version", "TO=91.2.3", folder=release)
    assert (done.returncode, done.stderr) == (0, "")
    for name in files:
        before, after = ((folder / name).read_text(encoding="utf-8") for folder in (ROOT, release))
        assert after == re.sub(rf"(?<![\d.]){re.escape(__version__)}(?!\d)", "91.2.3", before)
        assert "91.2.3" in after, name
    assert make("set-version", "TO=soon", folder=release).returncode != 0


def test_a_tag_of_another_version_is_rejected(release: Path) -> None:
    other = make("check-tag", "TAG=v9.9.9", folder=release)
    assert other.returncode != 0
    assert f"The tag is v9.9.9, the version v{__version__}" in other.stderr


@pytest.mark.parametrize("option", [(), ("--print-directory",)])
def test_a_tag_without_a_section_in_the_changelog_is_rejected(release: Path, option: tuple[str, ...]) -> None:
    tag = f"TAG=v{__version__}"
    refused = make("check-tag", tag, *option, folder=release)
    assert refused.returncode != 0
    assert f"CHANGELOG.md has no section for {__version__}" in refused.stderr


@pytest.mark.parametrize("heading", [f"## {__version__} - 2026-01-31", f"## [{__version__}]"])
def test_a_tag_with_a_section_in_the_changelog_is_accepted(release: Path, heading: str) -> None:
    with (release / "CHANGELOG.md").open("a", encoding="utf-8") as changelog:
        changelog.write(f"\n{heading}\n\n- First\n\n## 0.0.1\n\n- Older\n")
    taken = make("check-tag", f"TAG=v{__version__}", folder=release)
    assert (taken.returncode, taken.stderr) == (0, "")
    assert make("release-notes", folder=release).stdout.strip() == "- First"
