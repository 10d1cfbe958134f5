"""The only list of old command and option names, with their replacements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COMMANDS = {
    "bench gemm": "lab bench gemm",
    "bench nna": "lab bench nna",
    "bench outlier": "lab bench outlier",
    "bench spmm": "lab bench spmm",
    "bench spmv": "lab bench spmv",
    "board status": "boards",
    "cache clean": "cache --clean",
    "cache show": "cache",
    "fleet bench": "bench model --select SELECTION",
    "fleet doctor": "doctor --select SELECTION",
    "fleet list": "boards",
    "fleet profile": "profile pull --select SELECTION",
    "fleet run": "run --select SELECTION",
    "fleet select": "boards --names --select SELECTION",
    "kb": "lab kb",
    "profile enroll": "profile server enroll",
    "profile export": "profile query -o FILE",
    "profile revoke": "profile server revoke",
    "profile serve": "profile server run",
    "profile switch": "profile sampling",
    "profile upload": "profile pull --spool FOLDER",
    "profile write": "profile server write",
    "tune": "lab tune",
    "verify": "status --verify",
}
# An option whose new name depends on the command has several rows; the first name the command has
# wins.
OPTIONS = (
    ("--all", "--all-layers"),
    ("--alone", "--no-base"),
    ("--anew", "--restart"),
    ("--as", "--name"),
    ("--cluster", "--dask"),
    ("--counting", "--count-instructions"),
    ("--data", "--samples"),
    ("--from", "--store"),
    ("--kbit", "--max-kbit"),
    ("--keep", "--max-size"),
    ("--most", "--limit"),
    ("--quantize", "--samples"),
    ("--random-seed", "--seed"),
    ("--root", "--sysroot"),
    ("--rows", "--remeasure"),
    ("--stop-at", "--max-failures"),
    ("--target", "--min-cosine"),
    ("--to", "--store"),
    ("--unsigned", "--allow-unsigned"),
    ("--via", "--transport"),
    ("--whole", "--entire-program"),
)
GONE = {
    "--activations": "--activations is gone: --weights int8 or int4 is enough",
    "--order": "--order is now an option of edgekit compile only",
    "--random-seed": "--random-seed is now an option of edgekit compile only",
}
_COMPILES = "--weights"  # commands with this option formerly had the options in GONE


def renamed_command(arguments: Sequence[str]) -> str | None:
    """The message for a command line with an old command name, or None."""
    for count in (2, 1):
        old = " ".join(arguments[:count])
        if now := COMMANDS.get(old):
            return f"'edgekit {old}' is now 'edgekit {now}'"
    return None


def renamed_option(option: str, context: Any) -> str | None:
    """The message for an option unknown to the command of `context`, or None."""
    if context is None:
        return None
    known = {name for parameter in context.command.params for name in parameter.opts}
    for old, now in OPTIONS:
        if option == old and now in known:
            return f"{old} is now {now}; see {context.command_path} --help"
    return GONE.get(option) if _COMPILES in known else None
