"""The only list of old command and option names, with their replacements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_OUTLIER, _ORDER = "lab bench gemm --dtype outlier", "lab tune model --orders N"
_PRUNED, _SPARSE = "lab bench sparse --weights FILE", "lab bench sparse"
_LAYOUTS, _REVOKE = "lab tune cost --layouts", "fleet enroll BOARD --revoke"
_WRITE = "fleet serve --nats URL --store FOLDER"
_SAMPLING = "profile pull --sampling on|off"
COMMANDS = {
    "app logs": "app status --lines N",
    "bench gemm": "lab bench gemm",
    "bench nna": "lab bench nna",
    "bench outlier": _OUTLIER,
    "bench spmm": _PRUNED,
    "bench spmv": _SPARSE,
    "board status": "boards",
    "cache clean": "cache --clean",
    "cache show": "cache",
    "fleet bench": "bench model --select SELECTION",
    "fleet doctor": "doctor --select SELECTION",
    "fleet list": "boards",
    "fleet profile": "profile pull --select SELECTION",
    "fleet rollback": "rollback --rollout ID",
    "fleet run": "run --select SELECTION",
    "fleet select": "boards --names --select SELECTION",
    "fleet status": "status --rollout ID",
    "kb": "lab kb",
    "kb diff": "lab kb lookup --table NEW --against OLD",
    "kb import": "lab kb build --import FILE",
    "kb show": "lab kb lookup",
    "lab bench outlier": _OUTLIER,
    "lab bench spmm": _PRUNED,
    "lab bench spmv": _SPARSE,
    "lab kb diff": "lab kb lookup --table NEW --against OLD",
    "lab kb import": "lab kb build --import FILE",
    "lab kb push": "deploy --tables",
    "lab kb show": "lab kb lookup",
    "lab tune layouts": _LAYOUTS,
    "lab tune order": _ORDER,
    "lab tune spmv": "lab tune sparse",
    "profile enroll": "fleet enroll",
    "profile export": "profile list -o FILE",
    "profile forget": "profile list --forget",
    "profile query": "profile list SQL",
    "profile revoke": _REVOKE,
    "profile sampling": _SAMPLING,
    "profile serve": "fleet serve",
    "profile server": "fleet serve",
    "profile server enroll": "fleet enroll",
    "profile server revoke": _REVOKE,
    "profile server run": "fleet serve",
    "profile server write": _WRITE,
    "profile switch": _SAMPLING,
    "profile upload": "profile pull --spool FOLDER",
    "profile write": _WRITE,
    "tune": "lab tune",
    "tune layouts": _LAYOUTS,
    "tune order": _ORDER,
    "tune spmv": "lab tune sparse",
    "verify": "status --verify",
}
# An option whose new name depends on the command has several rows; the first name the command has
# wins.
OPTIONS = (
    ("--all", "--all-layers"),
    ("--alone", "--no-base"),
    ("--anew", "--restart"),
    ("--as", "--name"),
    ("--candidates", "--orders"),
    ("--cluster", "--dask"),
    ("--counting", "--count-instructions"),
    ("--data", "--samples"),
    ("--from", "--store"),
    ("--kbit", "--max-kbit"),
    ("--keep", "--max-size"),
    ("--most", "--limit"),
    ("--quantize", "--samples"),
    ("--root", "--sysroot"),
    ("--rows", "--remeasure"),
    ("--stop-at", "--max-failures"),
    ("--storage", "--dtype"),
    ("--to", "--store"),
    ("--unsigned", "--allow-unsigned"),
    ("--via", "--transport"),
    ("--whole", "--entire-program"),
)
GONE = {
    "--activations": "--activations was removed: --weights is enough",
    "--order": "--order is now an option of edgekit compile only",
    "--random-seed": "--random-seed is now an option of edgekit compile only",
}
_COMPILES = "--group-size"  # commands with this option formerly had the options in GONE


def renamed_command(arguments: Sequence[str]) -> str | None:
    """The message for a command line with an old command name, or None."""
    for count in (3, 2, 1):
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
