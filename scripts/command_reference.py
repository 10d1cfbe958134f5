#!/usr/bin/env python3
"""Generates docs/commands.md from the command line itself: every command with its options.

    scripts/command_reference.py [--check]

--check writes nothing and reports whether the page is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree

PAGE = Path(__file__).resolve().parents[1] / "docs" / "commands.md"
_HEAD = """# Commands

Written by `scripts/command_reference.py` from the command line itself. Each command has `--help` \
(`-h`) with examples and `--json` with one versioned document on stdout; `--verbose` says what is \
being done. `edgekit --install-completion` lets the shell complete commands, boards and models. \
An error is one line with what was expected, what was found and what to do next: \
[messages](troubleshooting.md). The exit code tells its kind:

| code | means |
| --- | --- |
| 0 | ok |
| 1 | a bug of edgekit; `--debug` shows the traceback |
| 2 | wrong usage or bad input |
| 3 | board not reachable |
| 4 | login or host key refused |
| 5 | board, CPU features or memory do not fit; this machine is not fit (`doctor`) |
| 6 | transfer or verification failed |
| 7 | the new release was unhealthy, the one before runs again |
| 8 | of several boards, some failed; the table says which and why |
| 9 | a release is slower than `profile compare --fail-above` allows |
| 130 | interrupted |
"""


def page() -> str:
    """The complete page: one section per command, in the order of `edgekit --help`."""
    root = command_tree(app)
    sections = [
        _HEAD,
        *(_format_section(path, command) for path, command in _walk_commands("edgekit", root)),
    ]
    return "\n".join(sections)


def _walk_commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if not inner or command.invoke_without_command:
        yield path, command
    for name, each in (inner or {}).items():
        yield from _walk_commands(f"{path} {name}", each)


def _format_section(path: str, command: Any) -> str:
    context = command.make_context(path, [], resilient_parsing=True)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f"## {path}\n",
        f"{_reflow(command.help)}\n",
        "```",
        f"{path} {usage}".rstrip(),
        "```\n",
    ]
    rows = [record for p in command.params if (record := p.get_help_record(context))]
    if rows:
        lines += ["| | |", "| --- | --- |"]
        lines += [f"| `{_escape_cell(name)}` | {_escape_cell(text)} |" for name, text in rows]
        lines.append("")
    if command.epilog:
        lines += ["```console", *(x.strip() for x in _example_lines(command.epilog)), "```", ""]
    return "\n".join(lines)


def _example_lines(epilog: str) -> list[str]:
    return [line for line in epilog.splitlines() if line.strip().startswith("edgekit")]


def _reflow(help_text: str | None) -> str:
    return "\n\n".join(" ".join(p.split()) for p in (help_text or "").split("\n\n"))


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        if PAGE.is_file() and PAGE.read_text() == wanted:
            return 0
        print("docs/commands.md is not what the commands say; run scripts/command_reference.py")
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
