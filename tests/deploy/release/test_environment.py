"""A board's environment: an ordinary user, nothing touched outside its folder, a clock in 1970."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle, signing_key
from edgekit.host.deploy.release import enroll, probe
from edgekit.host.deploy.transport import LocalTransport, OnBytes
from edgekit.host.errors import TransferError
from tests.support.tiny_bundles import compile_shared

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
OTHER = 'TINY_NAME="other"'
X = np.array([1, 2, 3, -4], np.float32)
NOBODY = 65534
# System calls that change files, open ports or change users; openat is filtered by its flags.
CALLS = (
    "open,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,"
    "unlink,unlinkat,rmdir,chmod,fchmodat,chown,lchown,fchownat,truncate,mknod,mknodat,"
    "bind,listen,execve,setuid,setresuid,setgid,setresgid,utimensat"
)
CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (?!-1)")
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")


def wrapper(folder: Path, *before: str, python: str = sys.executable) -> str:
    """Writes a script that starts Python with the command prefix `before`."""
    script = folder / "python"
    words = " ".join(shlex.quote(word) for word in (*before, python))
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    return str(script)


def exercise(device: Device, tiny: TinyBundle) -> None:
    """Every operation a board supports."""
    assert device.deploy(tiny()).release.changed
    assert device.deploy(tiny(OTHER)).release.changed
    assert not device.deploy(tiny(OTHER)).release.changed
    np.testing.assert_array_equal(device.run({"x": X})[0]["y"], 2 * X + 1)
    assert device.bench(count=12).runs == 12
    found = device.rollback()
    assert found.current is not None
    assert found.current.model == "tiny"


def test_nothing_outside_its_folder_and_nothing_listens(
    board_root: Path, tiny: TinyBundle, tmp_path: Path
) -> None:
    log = tmp_path / "calls"
    strace = ("strace", "-A", "-qq", "-o", str(log), "-e", f"trace={CALLS}")
    script = tmp_path / "python"
    # With -f, strace would wait for the process that keeps the lock after `plan` has ended.
    script.write_text(
        "#!/bin/sh\nfollow=-f\n"
        'case "$*" in *" plan "*) follow=-y; esac\n'
        f'exec {shlex.join(strace)} $follow {shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o755)
    exercise(Device(LocalTransport(board_root, python=str(script))), tiny)
    programs, touched = set(), 0
    for line in log.read_text(errors="replace").splitlines():
        match = CALL.match(line)
        if match is None:
            continue
        call, arguments = match.groups()
        paths = re.findall(r'"([^"]*)"', arguments)
        if call == "execve":
            programs.add(Path(paths[0]).name)
        elif call not in ("open", "openat") or WRITES.search(arguments):
            assert call not in ("bind", "listen", "setuid", "setresuid", "setgid", "setresgid")
            for path in paths if not call.startswith("symlink") else paths[-1:]:
                absolute = Path(os.path.normpath(board_root / path))
                assert absolute.is_relative_to(board_root) or path == os.devnull, line
                touched += 1
    assert touched > 50
    assert programs <= {"ssh-keygen", Path(sys.executable).name}


class Nobody(LocalTransport):
    """A board whose commands run as a user who owns only the board's folder."""

    def put(
        self, data: bytes, path: str, *, deadline: float, on_bytes: OnBytes | None = None
    ) -> None:
        super().put(data, path, deadline=deadline, on_bytes=on_bytes)
        self.give_away()

    def give_away(self) -> None:
        if os.getuid() == 0:
            for path in (self._root, *self._root.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def test_ordinary_user_is_enough(
    tiny: TinyBundle, trusted: SigningKey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    root = Path("/tmp") / f"edgekit-test-{os.getpid()}"  # pytest's folders are private to root
    try:
        root.mkdir()
        root.chmod(0o755)
        transport = Nobody(root / "board", python=wrapper(root, *drop(), python=any_python()))
        (root / "board").mkdir()
        transport.give_away()
        enroll(Device(transport), trusted.public)
        exercise(Device(transport), tiny)
        if os.getuid() == 0:
            for name in ("current", "previous", "releases", "trusted_keys"):
                assert (root / "board" / name).lstat().st_uid == NOBODY
    finally:
        shutil.rmtree(root)


def drop() -> tuple[str, ...]:
    """Command prefix that drops root to an unprivileged user for good."""
    ids = (f"--reuid={NOBODY}", f"--regid={NOBODY}")
    return ("setpriv", *ids, "--clear-groups", "--no-new-privs") if os.getuid() == 0 else ()


def any_python() -> str:
    """A Python that an unprivileged user may start; the tests' own may be private to root."""
    for python in (sys.executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        can = "import os, sys; sys.exit(not os.access(sys.executable, os.X_OK))"
        command = [*drop(), python, "-I", "-S", "-c", can]
        if Path(python).exists() and subprocess.run(command, check=False).returncode == 0:
            return python
    raise RuntimeError("expected a Python that any user may start, found none")


def test_clock_in_1970(
    board_root: Path, tiny: TinyBundle, tmp_path: Path, trusted: SigningKey
) -> None:
    library = tmp_path / "clock.so"
    compile_shared(Path(__file__).parents[2] / "support" / "clock_moved.c", library)
    python = wrapper(tmp_path, "env", f"LD_PRELOAD={library}")
    device = Device(LocalTransport(board_root, python=python))
    assert probe(device).clock < 365 * 86400 * 5
    exercise(device, tiny)
    stranger = signing_key(tmp_path / "stranger")
    with pytest.raises(TransferError, match="found one by"):
        device.deploy(sign_bundle(tiny('TINY_NAME="third"'), stranger))
    device.transport = LocalTransport(board_root)  # now with the right clock
    assert device.deploy(tiny('TINY_NAME="third"')).release.changed
