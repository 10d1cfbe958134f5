"""Blocks of README and guide run as written, in order: `sh` in a shell, `python` in Python."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree
from tests.support.compiler_cache import home_with_shared_cache
from tests.support.places import few_or_all

ROOT = Path(__file__).parents[1]
RUNNERS = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}
ON_A_BOARD = re.compile(r"^edgekit (board|deploy --board|doctor --board)", re.MULTILINE)
SHIM = "#!{python}\nfrom edgekit.host.cli.main import run\n\nrun()\n"


@dataclass(frozen=True)
class Block:
    """One fenced block; `heading` is its section."""

    heading: str
    language: str
    text: str


def read_blocks(markdown: str) -> list[Block]:
    """All fenced blocks with their language, in order."""
    blocks, heading, fence, lines = [], "", "", []
    for line in markdown.splitlines():
        if opening := re.fullmatch(r"```(\w*)", line):
            if fence:
                blocks.append(Block(heading, fence, "\n".join(lines)))
                fence, lines = "", []
            else:
                fence = opening[1] or "text"
        elif fence:
            lines.append(line)
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return blocks


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = {
    page.stem: read_blocks(page.read_text(encoding="utf-8"))
    for page in (ROOT / "README.md", ROOT / "docs" / "guide.md")
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory like the repository's root, with `edgekit` on the path."""
    tools, work = tmp_path / "bin", tmp_path / "work"
    for folder in (tools, work):
        folder.mkdir()
    home = home_with_shared_cache(tmp_path / "home")
    (tools / "edgekit").write_text(SHIM.format(python=sys.executable))
    (tools / "edgekit").chmod(0o755)
    for name in ("models", "docs", "edgekit.toml"):
        (work / name).symlink_to(ROOT / name)
    monkeypatch.setenv("PATH", f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("EDGEKIT_HOME", str(home))
    return work


def run_all(blocks: Iterable[Block], place: Path) -> None:
    for block in blocks:
        done = subprocess.run(
            [*RUNNERS[block.language], block.text],
            cwd=place,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block.heading}\n{block.text}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", few_or_all(BLOCKS, ["README"]))
def test_blocks_run_in_order(page: str, place: Path) -> None:
    ran = [b for b in BLOCKS[page] if b.language in RUNNERS and not ON_A_BOARD.search(b.text)]
    assert len(ran) >= 4
    run_all(ran, place)


@pytest.mark.boards
@pytest.mark.parametrize("page", few_or_all(BLOCKS, ["README"]))
def test_blocks_with_a_virtual_board_run_in_order(page: str, place: Path) -> None:
    ran = [b for b in BLOCKS[page] if b.language in RUNNERS and ON_A_BOARD.search(b.text)]
    assert ran
    try:
        run_all(ran, place)
    finally:
        subprocess.run(["edgekit", "board", "down"], cwd=place, check=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    markdown = page.read_text(encoding="utf-8")
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", markdown):
        if "://" in target:
            continue
        found = page.parent / target if target else page
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {_anchor(h) for h in headings}, f"{target}#{anchor}"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        assert page.name == "README.md" or f"({page.name})" in index, page.name


@pytest.mark.slow
def test_messages_of_the_troubleshooting_page_are_ours() -> None:
    """The code has each quoted message; … is what differs."""
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(quoted) >= 12
    said = "\n".join(_texts())
    for message in quoted:
        pattern = ".*?".join(re.escape(part) for part in message.split("…"))
        assert re.search(pattern, said), message


def _texts() -> Iterator[str]:
    """Every string of the host's and the board's code; what is formatted into it as \\0."""
    for folder in ("host", "device"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = (v.value if isinstance(v, ast.Constant) else "\0" for v in node.values)
                    yield "".join(map(str, parts)).replace("\n", " ")
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value.replace("\n", " ")


def test_commands_that_are_only_shown_exist() -> None:
    blocks = itertools.chain.from_iterable(BLOCKS.values())
    shown = [line for b in blocks if b.language == "console" for line in b.text.splitlines()]
    scripts = {line.split()[0] for line in shown if line.startswith("scripts/")}
    assert scripts
    for script in scripts:
        assert os.access(ROOT / script, os.X_OK), script


SHOWN = ["README.md", *(f"docs/{name}.md" for name in ("guide", "tutorial", "commands"))]


@pytest.mark.parametrize("page", SHOWN)
def test_edgekit_commands_that_are_only_shown_are_understood(page: str) -> None:
    blocks = read_blocks((ROOT / page).read_text(encoding="utf-8"))
    shown = [line for b in blocks if b.language == "console" for line in b.text.splitlines()]
    lines = [shlex.split(line, comments=True)[1:] for line in shown if line.startswith("edgekit ")]
    assert len(lines) >= 3
    whole = command_tree(app)
    for words in lines:
        command = whole
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        command.make_context(command.name, words)
