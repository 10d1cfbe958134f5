"""Starts an application when the board boots.

Uses a user unit of systemd if the user's systemd responds and may run without a login; otherwise
cron, at boot plus every minute with a check of /proc that does not start Python. Both restart a
killed supervisor. Without either, the board's own start script needs a line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import List, Optional, Sequence

SYSTEMD, CRON, NOBODY = "systemd", "cron", ""

_SECONDS = 30.0
_NO_TABLE = ("no crontab", "no such file")  # messages of cron and busybox
_UNIT = """\
[Unit]
Description=edgekit {mark} in {root}

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=mixed

[Install]
WantedBy=default.target
"""


class Boot:
    """The systemd or cron entry of this user for `command`, which serves the folder `root` and has
    the word `word` in it. The file `lock` begins with its process id."""

    def __init__(self, root: Path, command: Sequence[str], lock: Path, word: str) -> None:
        self.line = f"{shlex.join(command)} >/dev/null 2>&1 &"
        mark = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        quoted = " ".join(_unit_quoted(word) for word in command)
        self._text = _UNIT.format(root=str(root).replace("%", "%%"), command=quoted, mark=word)
        self._unit = f"edgekit-{mark}.service"
        home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
        self._file = Path(home) / "systemd" / "user" / self._unit
        found = f"{{ read -r p _ <{shlex.quote(str(lock))}; }} 2>/dev/null"
        gone = f'{found}; grep -qs {word} "/proc/$p/cmdline" || {self.line}'
        rows = (f"@reboot {self.line} # {self._unit}", f"* * * * * {gone} # {self._unit}")
        self._rows = [row.replace("%", "\\%") + "\n" for row in rows]

    def who(self) -> str:
        """Returns which of them starts it at the next boot."""
        if self._is_current() and _systemctl("is-enabled", self._unit) and _is_linger_enabled():
            return SYSTEMD
        return CRON if set(self._rows) <= set(_cron_rows() or ()) else NOBODY

    def arrange(self) -> str:
        """Registers a start at boot; returns with which mechanism."""
        if who := self.who():
            return who
        if self._by_systemd():
            return SYSTEMD
        return CRON if self._by_cron() else NOBODY

    def start(self) -> bool:
        """Starts it now as at boot; returns False if that is not possible."""
        return self._is_current() and _systemctl("restart", self._unit)

    def forget(self) -> None:
        """Removes the start at boot."""
        if self._file.exists():
            _systemctl("disable", self._unit)
            self._file.unlink()
            _systemctl("daemon-reload")
        rows = _cron_rows() or []
        if (others := self._unrelated_rows(rows)) != rows:
            _write_cron_rows(others)

    def _is_current(self) -> bool:
        """Whether the unit exists for exactly this command."""
        with contextlib.suppress(OSError):
            return self._file.read_text(encoding="utf-8") == self._text
        return False

    def _unrelated_rows(self, rows: List[str]) -> List[str]:
        return [row for row in rows if not row.rstrip().endswith(f"# {self._unit}")]

    def _by_systemd(self) -> bool:
        if not _systemctl("daemon-reload"):
            return False
        if not _is_linger_enabled() and not (
            _run_succeeds("loginctl", "enable-linger") and _is_linger_enabled()
        ):
            return False
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(self._text, encoding="utf-8")
            if _systemctl("daemon-reload") and _systemctl("enable", self._unit):
                return True
            self._file.unlink()
        return False

    def _by_cron(self) -> bool:
        rows = _cron_rows()
        return rows is not None and _write_cron_rows([*self._unrelated_rows(rows), *self._rows])


def _systemctl(*arguments: str) -> bool:
    return _run_succeeds("systemctl", "--user", *arguments)


def _is_linger_enabled() -> bool:
    """Whether the user's systemd runs without a login, hence from boot on."""
    done = _run_command("loginctl", "show-user", str(os.getuid()), "--property=Linger")
    return done is not None and done.stdout.strip() == "Linger=yes"


def _cron_rows() -> Optional[List[str]]:
    """Returns the user's crontab; None if there is no cron or it denies access."""
    done = _run_command("crontab", "-l")
    if done is None:
        return None
    if done.returncode == 0:
        return done.stdout.splitlines(keepends=True)
    return [] if any(text in done.stderr.lower() for text in _NO_TABLE) else None


def _write_cron_rows(rows: List[str]) -> bool:
    table = "".join(row if row.endswith("\n") else row + "\n" for row in rows)
    return _run_succeeds("crontab", "-", given=table)


def _run_succeeds(*command: str, given: str = "") -> bool:
    done = _run_command(*command, given=given)
    return done is not None and done.returncode == 0


def _run_command(*command: str, given: str = "") -> Optional[subprocess.CompletedProcess[str]]:
    """Runs a program of the board; returns None if it is missing or does not exit."""
    program = shutil.which(command[0])
    if program is None:
        return None
    environment = {"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ, "LC_ALL": "C"}
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(
            [program, *command[1:]],
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            env=environment,
        )
    return None


def _unit_quoted(word: str) -> str:
    """Quotes a word of a unit's command, so that systemd expands nothing in it."""
    for special, plain in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, plain)
    return f'"{word}"'
