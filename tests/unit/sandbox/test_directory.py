"""Sandboxes create their directories, keep them separate, and delete those of dead ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from respread_sandbox.components import Files
from respread_sandbox.directory import claim, living, root_directory
from respread_sandbox.options import SandboxError


@pytest.fixture(autouse=True)
def _own_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # so that TMPDIR is read again


def test_a_directory_without_a_lock_holder_is_deleted() -> None:
    dead, alive = claim("dead"), claim("alive")
    (dead.path / "etcd").mkdir()
    os.close(dead.lock_fd)
    nameless = claim(None)
    assert not dead.path.exists()
    assert alive.path.exists()
    assert living() == [alive.path]
    os.close(alive.lock_fd)
    os.close(nameless.lock_fd)
    assert living() == []


def test_unnamed_directories_never_collide() -> None:
    claimed = [claim(None) for _ in range(20)]
    assert len({each.path for each in claimed}) == 20
    for each in claimed:
        os.close(each.lock_fd)


def test_only_the_user_can_read_the_directories() -> None:
    claimed = claim("mine")
    os.close(claimed.lock_fd)
    assert claimed.path.stat().st_mode & 0o077 == 0
    assert root_directory().stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", "Default", "a b", "../up", "-a", "a-", "_x", "a" * 33, "ä"])
def test_an_invalid_name_is_rejected(name: str) -> None:
    with pytest.raises(SandboxError, match="cannot be a sandbox's name"):
        claim(name)


def test_a_root_that_other_users_can_access_is_rejected() -> None:
    root_directory().chmod(0o777)
    with pytest.raises(SandboxError, match="nobody else can use"):
        claim(None)


def test_a_root_that_is_a_symbolic_link_is_rejected(tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.mkdir(mode=0o700)
    root_directory().rmdir()
    (tmp_path / f"respread-sandboxes-{os.getuid()}").symlink_to(target)
    with pytest.raises(SandboxError, match="must be a directory of yours"):
        claim(None)


def test_a_certificate_counts_only_if_it_is_complete(tmp_path: Path) -> None:
    files = Files(directory=tmp_path)
    files.serving_certificate.parent.mkdir()
    assert not files.has_serving_certificate()
    files.serving_certificate.touch()  # kube-apiserver has opened it and has not written a line
    assert not files.has_serving_certificate()
    files.serving_certificate.with_suffix(".key").touch()
    assert files.has_serving_certificate()
