"""What mkdocs.yml asks for beyond MkDocs, so that the site needs neither a network nor other files
of the repository."""

from __future__ import annotations

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")
_FETCHED = "https://unpkg.com/iframe-worker/shim"  # what the theme loads for search from file://


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The site has only docs/, so `[CHANGELOG](../CHANGELOG.md)` could lead nowhere."""
    return _OUTSIDE.sub(r"\1", markdown)


def on_post_page(output: str, **_: Any) -> str:
    return output.replace(_FETCHED, "site.js")


def on_post_template(output_content: str, **_: Any) -> str:
    return output_content.replace(_FETCHED, "site.js")
