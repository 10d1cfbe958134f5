"""A report as one HTML file that needs nothing else: no network, no server, no other file.

Names come from models and boards, which others made. They stand in the page as JSON in which
nothing can end the block, the page's script shows them as text alone, and a policy in the page
lets run only that script.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import msgspec

from edgekit.host.report.document import Report

_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("page.js", "graph.js", "operators.js", "fleet.js", "main.js", "overview.js", "start.js")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(report: Report) -> str:
    """The whole file."""
    style = (_WEB / "style.css").read_text(encoding="utf-8")
    script = "".join((_WEB / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    values = {"policy": policy, "style": style, "script": script, "data": _json(report)}
    shell = (_WEB / "page.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], shell)


def _json(report: Report) -> str:
    """JSON that no browser takes for anything else."""
    text = msgspec.json.encode(report).decode()
    return re.sub("[<>&\u2028\u2029]", lambda found: _UNSAFE[found[0]], text)


def _digest(text: str) -> str:
    """What a policy calls a block by."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
