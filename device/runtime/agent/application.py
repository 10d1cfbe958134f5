"""The application of a release: a user program, signed and installed with the model."""

from __future__ import annotations

import re
from typing import Tuple

from edgekit.device.runtime.agent.specs import path_of
from edgekit.device.runtime.agent.strict import bad, each, integer, keys_of, matching, text
from edgekit.device.runtime.record import Record

FOLDER = "app"  # the release folder with its files
MOST_FILES = 256
MOST_SECONDS = 86400

_NAME = re.compile("[a-z0-9][a-z0-9_-]{0,31}")


OPTIONAL = ("priority", "cores", "scheduler")  # keys that most applications lack
MOST_CORE = 1023
SCHEDULERS = {"fifo": 1, "rr": 2, "batch": 3, "idle": 5}  # Linux' numbers; "" is the usual one
REAL_TIME = ("fifo", "rr")


class ApplicationSpec(Record):
    """`entry` is the one of `files` to start with `arguments`: by Python if it ends in .py,
    otherwise as an executable. It is restarted after `watchdog_seconds` without a heartbeat, or
    when it uses more than `memory_bytes`; 0 disables the check. It runs at the nice value
    `priority`, on the given `cores` only, if there are any, with the scheduler of SCHEDULERS."""

    name: str
    entry: str
    arguments: Tuple[str, ...]
    watchdog_seconds: int
    memory_bytes: int
    files: Tuple[str, ...]
    priority: int = 0
    cores: Tuple[int, ...] = ()
    scheduler: str = ""

    @property
    def is_python(self) -> bool:
        return self.entry.endswith(".py")

    @property
    def real_time_priority(self) -> int:
        """1 to 21, the larger the first; 0 for a scheduler that is not of real time."""
        return 1 - self.priority if self.scheduler in REAL_TIME else 0


_NEEDED = tuple(name for name in ApplicationSpec.field_names if name not in OPTIONAL)


def application_of(raw: object) -> ApplicationSpec:
    """Parses the manifest's `application` key; InputError names the invalid part."""
    keys = keys_of(raw, "application", _NEEDED, OPTIONAL)
    found = ApplicationSpec(
        matching(keys["name"], "application.name", _NAME, "1 to 32 of a-z, 0-9, '-' and '_'"),
        path_of(keys["entry"], "application.entry"),
        each(keys["arguments"], "application.arguments", text),
        integer(keys["watchdog_seconds"], "application.watchdog_seconds", 0, MOST_SECONDS),
        integer(keys["memory_bytes"], "application.memory_bytes"),
        each(keys["files"], "application.files", path_of),
        integer(keys.get("priority", 0), "application.priority", -20, 19),
        each(
            keys.get("cores", ()), "application.cores", lambda n, at: integer(n, at, 0, MOST_CORE)
        ),
        text(keys.get("scheduler", ""), "application.scheduler"),
    )
    if found.scheduler not in ("", *SCHEDULERS):
        raise bad("application.scheduler", f"one of {', '.join(SCHEDULERS)}", found.scheduler)
    if found.scheduler in REAL_TIME and found.priority > 0:
        raise bad("application.priority", f"-20 to 0 for {found.scheduler}", found.priority)
    if not 0 < len(found.files) <= MOST_FILES:
        raise bad("application.files", f"1 to {MOST_FILES} files", len(found.files))
    if odd := [path for path in found.files if not path.startswith(FOLDER + "/")]:
        raise bad("application.files", f"files of {FOLDER}/", odd[0])
    if found.entry not in found.files:
        raise bad("application.entry", "one of its files", found.entry)
    return found
