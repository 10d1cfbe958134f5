"""Who starts an application when the board boots.

A user unit of systemd, where the user's systemd answers and may run without a login. Else cron, at
boot and, with a look at /proc that starts no Python, each minute if it is gone. Both so start a
supervisor again that was killed. Else nobody, and a start script of the board's own needs a line.
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
_MARK = "app-supervise"  # in the command line of every supervisor
_NO_TABLE = ("no crontab", "no such file")  # as cron and busybox say it
_UNIT = """\
[Unit]
Description=edgekit application in {root}

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=5
KillMode=mixed

[Install]
WantedBy=default.target
"""


class Boot:
    """What this user's systemd or cron knows of `command`, the supervisor of the folder `root`,
    whose process id the file `lock` begins with."""

    def __init__(self, root: Path, command: Sequence[str], lock: Path) -> None:
        self.line = f"{shlex.join(command)} >/dev/null 2>&1 &"
        mark = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
        quoted = " ".join(_unit_quoted(word) for word in command)
        self._text = _UNIT.format(root=str(root).replace("%", "%%"), command=quoted)
        self._unit = f"edgekit-{mark}.service"
        home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
        self._file = Path(home) / "systemd" / "user" / self._unit
        found = f"{{ read -r p _ <{shlex.quote(str(lock))}; }} 2>/dev/null"
        gone = f'{found}; grep -qs {_MARK} "/proc/$p/cmdline" || {self.line}'
        rows = (f"@reboot {self.line} # {self._unit}", f"* * * * * {gone} # {self._unit}")
        self._rows = [row.replace("%", "\\%") + "\n" for row in rows]

    def who(self) -> str:
        """Who starts it at the next boot."""
        if self._is_current() and _systemctl("is-enabled", self._unit) and _lingers():
            return SYSTEMD
        return CRON if set(self._rows) <= set(_cron_rows() or ()) else NOBODY

    def arrange(self) -> str:
        """Has somebody start it at each boot; who that is."""
        if who := self.who():
            return who
        if self._by_systemd():
            return SYSTEMD
        return CRON if self._by_cron() else NOBODY

    def start(self) -> bool:
        """Starts it now as it is started at boot; False where that takes another way."""
        return self._is_current() and _systemctl("restart", self._unit)

    def forget(self) -> None:
        """Nobody starts it any more."""
        if self._file.exists():
            _systemctl("disable", self._unit)
            self._file.unlink()
            _systemctl("daemon-reload")
        rows = _cron_rows() or []
        if (others := self._others(rows)) != rows:
            _write_cron_rows(others)

    def _is_current(self) -> bool:
        """Whether the unit is there, and of this very command."""
        with contextlib.suppress(OSError):
            return self._file.read_text(encoding="utf-8") == self._text
        return False

    def _others(self, rows: List[str]) -> List[str]:
        return [row for row in rows if not row.rstrip().endswith(f"# {self._unit}")]

    def _by_systemd(self) -> bool:
        if not _systemctl("daemon-reload"):
            return False
        if not _lingers() and not (_done("loginctl", "enable-linger") and _lingers()):
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
        return rows is not None and _write_cron_rows([*self._others(rows), *self._rows])


def _systemctl(*arguments: str) -> bool:
    return _done("systemctl", "--user", *arguments)


def _lingers() -> bool:
    """Whether the user's systemd runs without a login, and so from boot on."""
    done = _call("loginctl", "show-user", str(os.getuid()), "--property=Linger")
    return done is not None and done.stdout.strip() == "Linger=yes"


def _cron_rows() -> Optional[List[str]]:
    """The user's table; None where there is no cron, or it does not let one see it."""
    done = _call("crontab", "-l")
    if done is None:
        return None
    if done.returncode == 0:
        return done.stdout.splitlines(keepends=True)
    return [] if any(text in done.stderr.lower() for text in _NO_TABLE) else None


def _write_cron_rows(rows: List[str]) -> bool:
    table = "".join(row if row.endswith("\n") else row + "\n" for row in rows)
    return _done("crontab", "-", given=table)


def _done(*command: str, given: str = "") -> bool:
    done = _call(*command, given=given)
    return done is not None and done.returncode == 0


def _call(*command: str, given: str = "") -> Optional[subprocess.CompletedProcess[str]]:
    """A program of the board's; None if there is none, or it does not end."""
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
    """A word of a unit's command, in which systemd replaces nothing."""
    for special, plain in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(special, plain)
    return f'"{word}"'
