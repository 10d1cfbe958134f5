"""MkDocs hooks that make the site self-contained: no network, no files outside docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_README = Path(__file__).resolve().parents[1] / "README.md"
_OVERVIEW = "overview.md"  # the README of the project; that of docs/ is the first page
_LINK = re.compile(r"\]\((?!https?:)")
_OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./[^)]*\)")
_LONG = re.compile(r"<code>(?=[^<]{41,}</code>)")
_FETCHED = re.compile(r'https://[^"]*/iframe-worker/shim')  # by the theme, for file:// search


def on_files(files: Any, config: Any) -> Any:
    """Add the README of the project, with links relative to docs/."""
    text = _LINK.sub("](../", _README.read_text()).replace("](../docs/", "](")
    files.append(File.generated(config, _OVERVIEW, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Unlink references outside docs/, such as `[CHANGELOG](../CHANGELOG.md)`: they would be
    dead."""
    return _OUTSIDE.sub(r"\1", markdown.replace("](../README.md)", f"]({_OVERVIEW})"))


def on_page_content(html: str, **_: Any) -> str:
    """Let long code in tables wrap; site.css keeps all other code on one line."""
    return _LONG.sub('<code class="long">', html)


def on_post_page(output: str, **_: Any) -> str:
    return _FETCHED.sub("site.js", output)


def on_post_template(output_content: str, **_: Any) -> str:
    return _FETCHED.sub("site.js", output_content)
