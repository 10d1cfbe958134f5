#!/usr/bin/env python3
"""Prints the size of the project: documentation, commands, files per operator, tests, code.

    scripts/counts [--operator HardSigmoid ...] [--log FILE] [--json]

Words are counted like `wc -w`, including generated tables; the total excludes commands.md, which is
generated. The files of an operator are all files in host/ and device/ that mention its class or its
C function. Small modules with one importer have fewer than 70 lines; each should be an idea of its
own. --log is the output of .ci/run; its stages are listed in minutes.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree

_ROOT = Path(__file__).resolve().parents[1]
_STAGE = re.compile(r"^ci: (\S+(?: --\w+)?) \w+ in (\d+) s$", re.MULTILINE)
_CODE = ("host", "device", "kb", "tests", "scripts")
_LABORATORY = "lab"
_SMALL_LINES = 70


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operator", nargs="+", default=["HardSigmoid"], metavar="CLASS")
    parser.add_argument("--log", type=Path, help="the output of .ci/run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = counts(options.operator, options.log.read_text() if options.log else "")
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        for title, values in found.items():
            print(title)
            for name, value in values.items():
                print(f"  {name:<44} {value:>8,}")
    return 0


def counts(operators: Sequence[str], log: str = "") -> dict[str, dict[str, Any]]:
    files = _code_files()
    tables = {"words of docs": words(_ROOT / "docs"), "commands": commands()}
    tables["files per operator"] = {name: files_of(name, files) for name in operators}
    if log:
        tables["minutes per stage"] = minutes(log)
    tables["modules"] = {f: sum(1 for _ in _python_files(f, files)) for f in _CODE}
    tables["modules"]["small ones with one importer"] = len(small_modules(files))
    tables["lines"] = {folder: _count_lines(folder, files) for folder in _CODE}
    return tables


def words(folder: Path) -> dict[str, int]:
    """Words of each page, of all pages but the generated one, and of the changelog's next
    section."""
    found = {page.name: len(page.read_text().split()) for page in sorted(folder.glob("*.md"))}
    written = {name: count for name, count in found.items() if name != "commands.md"}
    changes = (folder.parent / "CHANGELOG.md").read_text()
    unreleased = changes.partition("## Unreleased")[2].partition("\n## ")[0]
    return found | {
        "pages without commands.md": len(written),
        "words without commands.md": sum(written.values()),
        "CHANGELOG.md, Unreleased": len(unreleased.split()),
    }


def commands() -> dict[str, int]:
    """The number of commands, not counting groups that do nothing themselves."""
    paths = list(_walk_commands(command_tree(app), ()))
    laboratory = sum(path[0] == _LABORATORY for path in paths)
    return {"product": len(paths) - laboratory, "laboratory": laboratory}


def _walk_commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    inner = getattr(command, "commands", None) or {}
    if path and (not inner or command.invoke_without_command):
        yield path
    for name, each in inner.items():
        if not each.hidden:
            yield from _walk_commands(each, (*path, name))


def files_of(operator: str, files: Sequence[Path]) -> int:
    """The number of files in host/ and device/ that mention an operator: Python files its class,
    HardSigmoid; C files OP_HARD_SIGMOID or a function that ends in _hard_sigmoid."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", operator)
    in_c = re.compile(rf"_{snake}(?![a-z])", re.IGNORECASE)
    names = {".py": re.compile(rf"\b{operator}\b"), ".c": in_c, ".h": in_c}
    return sum(
        path.parts[0] in ("host", "device")
        and bool(names[path.suffix].search((_ROOT / path).read_text()))
        for path in files
        if path.suffix in names
    )


def minutes(log: str) -> dict[str, float]:
    return {stage: round(int(seconds) / 60, 1) for stage, seconds in _STAGE.findall(log)}


def small_modules(files: Sequence[Path]) -> list[Path]:
    """The modules of few lines that exactly one other module imports, apart from tests."""
    ours = [path for folder in _CODE if folder != "tests" for path in _python_files(folder, files)]
    importers = Counter(name for path in ours for name in _imported_names(path))
    return [
        path
        for path in ours
        if importers[".".join(("edgekit", *path.with_suffix("").parts))] == 1
        and len((_ROOT / path).read_text().splitlines()) < _SMALL_LINES
    ]


def _imported_names(path: Path) -> set[str]:
    """Full names of the modules that a file imports, and of what it imports from them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((_ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def _code_files() -> list[Path]:
    """Files that are tracked, or new and not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *_CODE]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in done.stdout.splitlines() if (_ROOT / line).is_file()]


def _python_files(folder: str, files: Sequence[Path]) -> Iterator[Path]:
    return (path for path in files if path.parts[0] == folder and path.suffix == ".py")


def _count_lines(folder: str, files: Sequence[Path]) -> int:
    own = (path for path in files if path.parts[0] == folder)
    kinds = (".py", ".c", ".h", ".js", ".css", "")
    return sum(
        (_ROOT / path).read_text(errors="replace").count("\n")
        for path in own
        if path.suffix in kinds
    )


if __name__ == "__main__":
    sys.exit(main())
