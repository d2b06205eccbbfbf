"""`respread ui` as its own process, as a browser sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import requests

LONG_SECONDS = 120
"""Longer than any request takes on a slow machine."""


class Page:
    """A running `respread ui`."""

    def __init__(self, kubeconfig: Path, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "respread_cli.main", "ui", "--no-open", "--kubeconfig", str(kubeconfig), *options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdout is not None
        said, _, self.url = self._process.stdout.readline().strip().partition(" ")
        assert said == "Serving", self._process.wait(LONG_SECONDS)

    def get(self, path: str) -> Any:
        answer = requests.get(self.url + path, timeout=LONG_SECONDS)
        answer.raise_for_status()
        return answer.json()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield updates as they arrive; the first item is empty, after which no change is missed."""
        with requests.get(self.url + "api/changes", timeout=LONG_SECONDS, stream=True) as stream:
            name = ""
            for line in stream.iter_lines(chunk_size=1):
                field, _, value = line.decode().partition(": ")
                if field == "event":
                    name = value
                elif field == "data" and name in {"version", "update"}:
                    yield json.loads(value) if name == "update" else {}

    def end(self) -> int:
        self._process.terminate()
        self._process.communicate(timeout=LONG_SECONDS)
        return self._process.returncode
