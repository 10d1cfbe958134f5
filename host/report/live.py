"""The fleet's live page, which a profile server offers; it has no data of its own."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.report.page import csp_hash, fill

_WEB = Path(__file__).parent / "web"
_STYLES = ("style.css", "live.css")
_SCRIPTS = ("elements.js", "live.js")


def live_page() -> str:
    """The complete HTML file. Its script asks only the server that it came from."""
    style = "".join((_WEB / name).read_text(encoding="utf-8") for name in _STYLES)
    script = "".join((_WEB / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    policy = (
        f"default-src 'none'; style-src '{csp_hash(style)}'; script-src '{csp_hash(script)}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    values = {"policy": policy, "style": style, "script": script, "title": "edgekit fleet"}
    return fill("live.html", values)
