"""The application of a release: a program of the user's, signed and installed with the model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Tuple

from edgekit.device.runtime.agent.specs import path_of
from edgekit.device.runtime.agent.strict import bad, each, keys_of, matching, text, whole

FOLDER = "app"  # of its files in the release
MOST_FILES = 256
MOST_SECONDS = 86400

_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,31}")


@dataclass(frozen=True)
class ApplicationSpec:
    """`entry`: which of its `files` is started, with `arguments`: by Python if it ends in .py, else
    as a program. Without a sign of life for `watchdog_seconds`, or with more than `memory_bytes`,
    it is started again; 0: not watched."""

    name: str
    entry: str
    arguments: Tuple[str, ...]
    watchdog_seconds: int
    memory_bytes: int
    files: Tuple[str, ...]

    @property
    def is_python(self) -> bool:
        return self.entry.endswith(".py")


def application_of(raw: object) -> ApplicationSpec:
    """The manifest's key, checked; InputError names what is wrong."""
    keys = keys_of(raw, "application", tuple(ApplicationSpec.__dataclass_fields__))
    found = ApplicationSpec(
        matching(keys["name"], "application.name", _NAME, "1 to 32 of a-z, 0-9, '-' and '_'"),
        path_of(keys["entry"], "application.entry"),
        each(keys["arguments"], "application.arguments", text),
        whole(keys["watchdog_seconds"], "application.watchdog_seconds", 0, MOST_SECONDS),
        whole(keys["memory_bytes"], "application.memory_bytes"),
        each(keys["files"], "application.files", path_of),
    )
    if not 0 < len(found.files) <= MOST_FILES:
        raise bad("application.files", f"1 to {MOST_FILES} files", len(found.files))
    if odd := [path for path in found.files if not path.startswith(FOLDER + "/")]:
        raise bad("application.files", f"files of {FOLDER}/", odd[0])
    if found.entry not in found.files:
        raise bad("application.entry", "one of its files", found.entry)
    return found
