"""Renders a report as a single self-contained HTML file.

Names come from models and boards and are untrusted. They are embedded as JSON that cannot close the
script element, the page's script inserts them as text only, and a content security policy allows
only that script.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from edgekit.host.report.document import Report

_WEB = Path(__file__).parent / "web"
_SCRIPTS = (
    "elements.js",
    "page.js",
    "graph.js",
    "operators.js",
    "fleet.js",
    "main.js",
    "overview.js",
    "start.js",
)
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(report: Report) -> str:
    """The complete HTML file."""
    style = (_WEB / "style.css").read_text(encoding="utf-8")
    script = "".join((_WEB / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{csp_hash(style)}'; script-src '{csp_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {"policy": policy, "style": style, "script": script, "data": _script_safe_json(report)}
    return fill("page.html", values | {"title": "edgekit report"})


def _script_safe_json(report: Report) -> str:
    """JSON that is safe to embed in a script element."""
    text = msgspec.json.encode(report).decode()
    return re.sub("[<>&\u2028\u2029]", lambda found: _UNSAFE[found[0]], text)


def fill(name: str, values: Mapping[str, str]) -> str:
    """A page of web/ with the head that all pages share; `values` replace {{their names}}."""
    shell = "".join((_WEB / part).read_text(encoding="utf-8") for part in ("head.html", name))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], shell)


def csp_hash(text: str) -> str:
    """A block's hash source in the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
