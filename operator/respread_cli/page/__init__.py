"""The page for browsers: its files, and one HTML file that shows a report and requests nothing from anywhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Final, NamedTuple

_CONTENT_TYPES: Final = {".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    content_type: str


def _read() -> dict[str, Asset]:
    found = {}
    for file in files("respread_cli.page").joinpath("files").iterdir():
        content_type = _CONTENT_TYPES.get("." + file.name.rpartition(".")[2])
        if content_type is not None:
            found[file.name] = Asset(file.read_bytes(), content_type)
    return found


ASSETS: Final[Mapping[str, Asset]] = _read()
"""The files by name. Nothing else is served."""

_FIRST: Final = "app.js"
_IMPORT: Final = re.compile(r'^import (\{[^}]*\}) from "\./([a-z-]+\.js)";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:const|function|class) (\w+))", re.MULTILINE)
_LINKS: Final = re.compile(r"^<(?:link|script) .*>\n", re.MULTILINE)


def html_document(title: str, report: bytes) -> str:
    """Return a report as an HTML document.

    Its Content-Security-Policy allows its own script and style, known by their hashes, and no request.
    """
    script, style = _script(), ASSETS["style.css"].content.decode()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
    icon = f"data:image/svg+xml;base64,{b64encode(ASSETS['icon.svg'].content).decode()}"
    page = _LINKS.sub("", ASSETS["index.html"].content.decode()).replace("icon.svg", icon)
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        f'<link rel="icon" href="{icon}">\n<style>{style}</style>\n'
    )
    # In a script element, only "<" could begin something else.
    content = report.decode().replace("<", "\\u003c")
    body = f'<script type="application/json" id="report">{content}</script>\n<script type="module">{script}</script>\n'
    page = page.replace("<title>Respread</title>", f"<title>{escape(title)}</title>")
    return page.replace("</head>", f"{head}</head>").replace("</body>", f"{body}</body>")


def _script() -> str:
    """Return all modules as one script: each as a function that returns its exports, after those that it imports."""
    modules: dict[str, str] = {}

    def add(name: str) -> None:
        source = ASSETS[name].content.decode()
        for _, imported in _IMPORT.findall(source):
            if imported not in modules:
                add(imported)
        body = _IMPORT.sub(r'const \1 = modules["\2"];', source)
        exports = ", ".join(exported for _, exported in _EXPORT.findall(body))
        body = _EXPORT.sub(r"\1", body)
        modules[name] = f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();'

    add(_FIRST)
    return "\n".join(('"use strict";', "const modules = {};", *modules.values()))


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
