"""MkDocs hooks that make the site self-contained: no network, no files outside docs/."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")
_LONG = re.compile(r"<code>(?=[^<]{41,}</code>)")
_FETCHED = re.compile(r'https://[^"]*/iframe-worker/shim')  # by the theme, for file:// search


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Unlink references outside docs/, such as `[CHANGELOG](../CHANGELOG.md)`: they would be
    dead."""
    return _OUTSIDE.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Let long code in tables wrap; site.css keeps all other code on one line."""
    return _LONG.sub('<code class="long">', html)


def on_post_page(output: str, **_: Any) -> str:
    return _FETCHED.sub("site.js", output)


def on_post_template(output_content: str, **_: Any) -> str:
    return _FETCHED.sub("site.js", output_content)
