"""A CycloneDX document of the packages in an image, read from its archive.

    python -m tests.image_sbom IMAGE.tar IMAGE.cdx.json

It prints the image's digest and the size of a pull.
"""

from __future__ import annotations

import email
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple
from urllib.parse import quote

_DPKG_STATUS: Final = "var/lib/dpkg/status"
_WHITEOUT: Final = ".wh."


class Image(NamedTuple):
    """An image in an archive as `podman save --format oci-archive` writes it."""

    digest: str
    """The digest of its manifest."""
    compressed_bytes: int
    """The compressed size of its layers, as a registry stores and sends them."""
    config: dict[str, Any]
    package_files: dict[str, str]
    """The files that list installed packages, by path: those of dpkg and of Python distributions."""


def read_image(archive: Path) -> Image:
    """Return the content of an archive.

    Raises:
        ValueError: it does not hold exactly one image.
    """
    with tarfile.open(archive) as tar:
        manifests = _json(tar, "index.json")["manifests"]
        if len(manifests) != 1:
            raise ValueError(f"{archive} holds {len(manifests)} images; one is wanted")
        manifest = _json(tar, _blob(manifests[0]["digest"]))
        files: dict[str, str] = {}
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=tar.extractfile(_blob(layer["digest"]))) as content:
                _apply(content, files)
        return Image(
            manifests[0]["digest"],
            sum(layer["size"] for layer in manifest["layers"]),
            _json(tar, _blob(manifest["config"]["digest"])),
            files,
        )


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _json(tar: tarfile.TarFile, name: str) -> dict[str, Any]:
    file = tar.extractfile(name)
    assert file is not None
    found: dict[str, Any] = json.load(file)
    return found


def _apply(layer: tarfile.TarFile, files: dict[str, str]) -> None:
    """Apply a layer: its files replace those of lower layers, and its whiteouts remove some."""
    for member in layer:
        path = PurePosixPath(member.name.removeprefix("./"))
        if path.name.startswith(_WHITEOUT):
            gone = str(path.with_name(path.name.removeprefix(_WHITEOUT)))
            for name in [each for each in files if each == gone or each.startswith(f"{gone}/")]:
                del files[name]
        elif str(path) == _DPKG_STATUS or (path.name == "METADATA" and path.parent.suffix == ".dist-info"):
            file = layer.extractfile(member)
            assert file is not None
            files[str(path)] = file.read().decode()


def components(image: Image) -> list[dict[str, Any]]:
    """Return the packages of an image in CycloneDX form, in the order of their package URLs."""
    found = [*_debian_packages(image), *_python_distributions(image), *_python_itself(image)]
    return sorted(found, key=lambda each: str(each["purl"]))


def _debian_packages(image: Image) -> Iterator[dict[str, Any]]:
    for entry in filter(None, image.package_files.get(_DPKG_STATUS, "").split("\n\n")):
        fields = email.message_from_string(entry)
        if fields["Status"] == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{name}@{quote(version, safe='')}?arch={fields['Architecture']}"
            yield _component(name, version, purl)


def _python_distributions(image: Image) -> Iterator[dict[str, Any]]:
    for path, text in image.package_files.items():
        if path != _DPKG_STATUS:
            fields = email.message_from_string(text)
            name, version = re.sub(r"[-_.]+", "-", fields["Name"]).lower(), fields["Version"]
            yield _component(name, version, f"pkg:pypi/{name}@{quote(version, safe='')}")


def _python_itself(image: Image) -> Iterator[dict[str, Any]]:
    """Python, if it is not a Debian package: the official image has its version in a variable."""
    for variable in image.config["config"].get("Env", ()):
        name, _, version = variable.partition("=")
        if name == "PYTHON_VERSION":
            yield _component("python", version, f"pkg:generic/python@{version}")


def _component(name: str, version: str, purl: str) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def document(image: Image) -> dict[str, Any]:
    """Return the CycloneDX document of an image. The same image has the same document."""
    labels = image.config["config"]["Labels"]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": re.sub(r"\.\d+", "", image.config["created"]),
            "component": {
                "type": "container",
                "bom-ref": image.digest,
                "name": labels["org.opencontainers.image.title"],
                "version": labels["org.opencontainers.image.version"],
                "hashes": [{"alg": "SHA-256", "content": image.digest.removeprefix("sha256:")}],
            },
        },
        "components": components(image),
    }


def main() -> None:
    """Write the document, and print the image's digest and size."""
    archive, target = map(Path, sys.argv[1:])
    image = read_image(archive)
    target.write_text(f"{json.dumps(document(image), indent=2)}\n", encoding="utf-8")
    sys.stdout.write(f"{image.digest}, {image.compressed_bytes / 1e6:.1f} MB compressed\n")


if __name__ == "__main__":
    main()
