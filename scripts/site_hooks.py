"""What mkdocs.yml asks for beyond MkDocs, so that the site needs neither a network nor other files
of the repository."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")
_LONG = re.compile(r"<code>(?=[^<]{41,}</code>)")
_FETCHED = re.compile(r'https://[^"]*/iframe-worker/shim')  # the theme's, for search from file://


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The site has only docs/, so `[CHANGELOG](../CHANGELOG.md)` could lead nowhere."""
    return _OUTSIDE.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Code in tables stays on one line, as site.css says, unless it is a sentence."""
    return _LONG.sub('<code class="long">', html)


def on_post_page(output: str, **_: Any) -> str:
    return _FETCHED.sub("site.js", output)


def on_post_template(output_content: str, **_: Any) -> str:
    return _FETCHED.sub("site.js", output_content)
