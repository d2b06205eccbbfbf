"""The files of a component are used only when they are complete."""

from __future__ import annotations

from pathlib import Path

from respread_sandbox.components import Files


def test_a_certificate_counts_only_if_it_is_complete(tmp_path: Path) -> None:
    files = Files(directory=tmp_path)
    files.serving_certificate.parent.mkdir()
    assert not files.has_serving_certificate()
    files.serving_certificate.touch()  # kube-apiserver has opened it and has not written a line
    assert not files.has_serving_certificate()
    files.serving_certificate.with_suffix(".key").touch()
    assert files.has_serving_certificate()
