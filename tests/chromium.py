"""Drives Chromium through its debugging protocol, for tests of the page.

Debian's package `chromium` is enough; no other driver is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import tarfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import aiohttp
import pytest

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE_VERSION: Final = "4.10.3"
REQUIRED: Final = "RESPREAD_BROWSER_REQUIRED"
"""The environment variable that makes a missing browser a failure, in `make test-ui` and CI."""
PATIENCE_SECONDS: Final = 60.0
FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-port=0",
)


def find_chromium() -> str | None:
    """Return the program; None if none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


def chromium() -> str:
    """Return the program. Without one, the test is skipped, or fails if a browser is required."""
    return find_chromium() or _missing("no Chromium is installed: `make browser` installs Debian's, as root")


def _missing(message: str) -> NoReturn:
    if os.environ.get(REQUIRED):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


class Tab:
    """An open page."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, browser_process: int) -> None:
        self._socket = socket
        self.browser_process = browser_process
        """The process ID. The page's own process is one of its children."""
        self._numbers = count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        """Errors of scripts, refused resources and failed requests."""
        self.requested: list[str] = []
        """The URLs that the page requested."""

    async def listen(self) -> None:
        """Read the browser's messages until it is closed."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                details = said["params"]["exceptionDetails"]
                self.problems.append(str(details.get("exception", {}).get("description") or details["text"]))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.problems.append(f"{said['params']['entry']['text']} {said['params']['entry'].get('url', '')}")
            elif said["method"] == "Network.requestWillBeSent":
                self.requested.append(said["params"]["request"]["url"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command, and return its result."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answer, PATIENCE_SECONDS)
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Load a URL."""
        await self.send("Page.navigate", url=url)

    async def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page, or the result if it is a Promise."""
        result = await self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def wait_for(self, script: str) -> Any:
        """Wait until an expression is true, and return its value."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                with suppress(AssertionError):  # The page is not there yet.
                    if value := await self.run(f"((it) => it instanceof Node ? true : it)({script})"):
                        return value
                await asyncio.sleep(0.05)

    async def text(self, selector: str) -> str:
        """Wait for an element, and return the text that it shows."""
        return str(await self.wait_for(f"document.querySelector({json.dumps(selector)})?.innerText"))

    async def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window's size and the preferred color scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            await self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    async def screenshot(self, file: Path) -> None:
        """Write what the window shows, in the format that the file's suffix names: `.png` or `.webp`."""
        shot = await self.send("Page.captureScreenshot", format=file.suffix.removeprefix("."), quality=85)
        await asyncio.to_thread(file.write_bytes, b64decode(shot["data"]))


@asynccontextmanager
async def browser(program: str) -> AsyncIterator[Tab]:
    """Start Chromium with one empty page, which lasts as long as the context."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            program,
            *FLAGS,
            f"--user-data-dir={profile}",
            "about:blank",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as client:
                async with client.get(f"http://127.0.0.1:{port}/json/list") as response:
                    (target,) = (each for each in await response.json() if each["type"] == "page")
                async with client.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    tab = Tab(socket, process.pid)
                    listening = asyncio.create_task(tab.listen())
                    for domain in ("Page", "Runtime", "Log", "Network"):
                        await tab.send(f"{domain}.enable")
                    yield tab
                    listening.cancel()
        finally:
            process.kill()
            await process.wait()


async def _port(file: Path) -> int:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            lines = await asyncio.to_thread(_lines, file)
            if len(lines) > 1:
                return int(lines[0])
            await asyncio.sleep(0.05)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def axe_core() -> str:
    """Return the source of axe-core, which finds accessibility problems.

    The first call downloads it with npm into the cache. Without npm, the test is skipped or fails as without a browser.
    """
    folder = Path.home() / ".cache" / "respread" / f"axe-core-{AXE_VERSION}"
    source = folder / "axe.min.js"
    if not source.exists():
        if shutil.which("npm") is None:
            _missing("npm is not installed, which fetches axe-core: apt-get install npm")
        folder.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(
            ["npm", "pack", "--silent", f"axe-core@{AXE_VERSION}"],
            cwd=folder,
            check=False,
            capture_output=True,
            text=True,
        )
        if packed.returncode:
            _missing(f"npm could not fetch axe-core: {packed.stderr.strip()}")
        with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
            source.write_bytes(archive.extractfile(f"package/{source.name}").read())  # type: ignore[union-attr] # a file
    return source.read_text(encoding="utf-8")
