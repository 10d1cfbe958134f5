"""edgekit board: the inventory, host keys, and bringing virtual boards up."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cache import cached
from edgekit.host.deploy.transport.ssh_keys import fingerprint
from edgekit.host.errors import InputError
from edgekit.host.fleet.address import Address, parse_address
from edgekit.host.virtual import status, virtual_board_names
from tests.support.fake_qemu import SSH_PORT, fake_virtual_boards
from tests.support.sshd import Sshd, make_key

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parents[2] / "src"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("host", Address(None, "host", None)),
        ("pi@host:2222", Address("pi", "host", 2222)),
        ("pi@[fe80::1%eth0]:22", Address("pi", "fe80::1%eth0", 22)),
        ("[::1]", Address(None, "::1", None)),
    ],
)
def test_addresses(text: str, found: Address) -> None:
    assert parse_address(text) == found


@pytest.mark.parametrize("text", ["", "@host", "pi@", "host:0", "host:70000", "::1", "a b", "h:x"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"expected \[USER@\]ADDRESS\[:PORT\]"):
        parse_address(text)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--profile", "nosuch", "--host", "h"], "nosuch"),
        (["--profile", "a57"], "--host"),
        (["--profile", "a57", "--transport", "serial"], "--device"),
        (["--profile", "a57", "--transport", "serial", "--device", "x", "--host", "h"], "--host"),
        (["--profile", "a57", "--host", "h", "--transport", "radio"], "radio"),
        (["--profile", "a57", "--host", "h", "--device", "x"], "no --device"),
    ],
)
def test_add_names_the_missing_option(edgekit: Any, options: list[str], expected: str) -> None:
    done = edgekit("board", "add", "b", *options)
    assert (done.code, done.out) == (2, "")
    assert expected in done.complaint


def test_this_machine_keeps_its_name(edgekit: Any) -> None:
    done = edgekit("board", "add", "local", "--profile", "a57", "--host", "h")
    assert (done.code, done.out) == (2, "")
    assert "found 'local'" in done.complaint


def test_a_wrong_name_is_refused_before_the_board_is_asked(edgekit: Any) -> None:
    done = edgekit("board", "add", "x/y", "--host", "127.0.0.1:1")
    assert done.code == 2
    assert "expected a board's name of letters" in done.complaint and "asking" not in done.err


def test_add_of_a_board_that_does_not_answer(edgekit: Any, home: Path) -> None:
    done = edgekit("board", "add", "b", "--profile", "a57", "--host", "127.0.0.1:1", "--yes")
    assert done.code == 3
    assert "127.0.0.1" in done.complaint
    assert list(home.iterdir()) == []


@pytest.mark.sshd
def test_added_board_is_pinned_enrolled_and_used(
    edgekit: Any, home: Path, server: Sshd, pinned: None, face_model: Path
) -> None:
    text = (home / "edgekit.toml").read_text()
    assert "[boards.here]" in text
    assert server.host_key in text
    assert (server.home / ".edgekit" / "trusted_keys").is_file()

    done = edgekit("deploy", face_model, "--board", "here", "--json")
    assert done.code == 0, done.err
    assert (done.document["board"], done.document["bench"]["emulated"]) == ("here", False)
    again = edgekit("deploy", face_model, "--board", "here", "--json").document
    assert (again["changed"], again["sent_bytes"]) == (False, 0)
    checks = {
        f["check"]: f["verdict"]
        for f in edgekit("doctor", "--board", "here", "--json").document["findings"]
    }
    assert checks["board here"] == checks["machine"] == checks["clock"] == "ok"

    listed = {b["name"]: b for b in edgekit("boards", "--json").document["boards"]}
    assert (listed["here"]["kind"], listed["here"]["host_key"]) == ("ssh", server.host_key)
    assert edgekit("board", "remove", "here").code == 0
    assert "boards" not in (home / "edgekit.toml").read_text()
    assert edgekit("status", "--board", "here").code == 2


@pytest.mark.sshd
def test_a_model_that_is_not_deployed_is_timed_over_ssh(
    edgekit: Any, server: Sshd, pinned: None, face_model: Path
) -> None:
    small = face_model.with_name("okay_nabu.tflite")
    done = edgekit("bench", "model", small, "--board", "here", "--runs", "5", "--json")
    assert done.code == 0, done.err
    assert done.document["latency_ms"]["n"] == 5
    assert edgekit("status", "--board", "here", "--json").document["current"] is None
    assert list((server.home / ".edgekit" / "temporary").iterdir()) == []


@pytest.mark.sshd
def test_host_key_is_never_pinned_unasked(
    edgekit_process: Any, home: Path, server: Sshd, add_options: list[str]
) -> None:
    done = edgekit_process("board", "add", *add_options, stdin=subprocess.DEVNULL)
    assert done.code == 4
    last = done.err.splitlines()[-1]
    assert f"--fingerprint {fingerprint(server.host_key)}" in last
    assert list(home.iterdir()) == []
    assert "Accepted" not in server.log


@pytest.mark.sshd
def test_other_fingerprint_is_refused(
    edgekit: Any, tmp_path: Path, home: Path, server: Sshd, add_options: list[str]
) -> None:
    make_key(tmp_path / "other")
    other = fingerprint((tmp_path / "other.pub").read_text())
    done = edgekit("board", "add", *add_options, "--fingerprint", other)
    assert done.code == 4
    assert other in done.err
    assert fingerprint(server.host_key) in done.err.splitlines()[-1]
    assert list(home.iterdir()) == []


def answered(answer: str, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a command on a terminal; `answer` is typed at its [y/N] prompt."""
    ours, theirs = pty.openpty()
    program = "from edgekit.host.cli.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(SOURCES), "TERM": "dumb"},
    ) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
                if seen.endswith(b"[y/N] "):
                    os.write(ours, answer.encode() + b"\n")
        except OSError:
            pass  # Linux raises EIO once the other end of a pty is closed
        os.close(ours)
    return process.returncode, seen.decode()


@pytest.mark.sshd
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 4), ("", 4)])
def test_host_key_is_shown_and_asked_for(
    home: Path, server: Sshd, add_options: list[str], answer: str, code: int
) -> None:
    ended, shown = answered(answer, "board", "add", *add_options)
    assert ended == code, shown
    assert fingerprint(server.host_key) in shown
    assert (home / "edgekit.toml").exists() == (code == 0)


@pytest.mark.sshd
def test_changed_host_key_is_refused(
    edgekit: Any, tmp_path: Path, home: Path, server: Sshd, pinned: None
) -> None:
    make_key(tmp_path / "other")
    other = " ".join((tmp_path / "other.pub").read_text().split()[:2])
    file = home / "edgekit.toml"
    file.write_text(file.read_text().replace(server.host_key, other))
    logins = server.log.count("Accepted")
    done = edgekit("status", "--board", "here")
    assert (done.code, done.out) == (4, "")
    assert fingerprint(server.host_key) in done.complaint
    assert server.log.count("Accepted") == logins
    assert done.complaint.endswith("pin it again: edgekit board add here")

    text = "# the one in the lab\n" + file.read_text() + "threads = 2  # it has four\n"
    file.write_text(text)
    again = edgekit("board", "add", "here", "--fingerprint", fingerprint(server.host_key))
    assert again.code == 0, again.err
    assert f"a different key is pinned now: ssh-ed25519 {fingerprint(other)}" in again.err
    assert file.read_text() == text.replace(other, server.host_key)
    assert edgekit("status", "--board", "here").code == 0


@pytest.mark.sshd
def test_board_unlike_its_profile_is_not_added(
    edgekit: Any, home: Path, add_options: list[str]
) -> None:
    options = [o if o != "local" else "rv64gc" for o in add_options]
    done = edgekit("board", "add", *options, "--yes")
    assert done.code == 5
    assert "riscv64" in done.err.splitlines()[-1]
    assert list(home.iterdir()) == []


@pytest.mark.sshd
def test_threads_and_cluster_are_kept_where_the_board_has_such_cores(
    edgekit: Any, home: Path, add_options: list[str]
) -> None:
    done = edgekit("board", "add", *add_options, "--yes", "--cluster", "a999")
    assert done.code == 2
    last = done.err.splitlines()[-1]
    assert "board 'here': --cluster: expected a cluster of this board" in last
    assert list(home.iterdir()) == []
    done = edgekit("board", "add", *add_options, "--yes", "--threads", "2", "--cluster", "all")
    assert done.code == 0, done.err
    assert 'threads = 2\ncluster = "all"\n' in (home / "edgekit.toml").read_text()


@pytest.mark.sshd
def test_board_without_a_profile_proposes_its_own(
    edgekit: Any, home: Path, add_options: list[str]
) -> None:
    at = add_options.index("--profile")
    done = edgekit("board", "add", *add_options[:at], *add_options[at + 2 :], "--yes", "--json")
    assert done.code == 0, done.err
    assert done.document["board"]["profile"] == "local"
    assert "profile of here: local (" in done.err
    assert "usable" not in done.err  # what was found to be right is not shown
    assert 'profile = "local"' in (home / "edgekit.toml").read_text()
    assert edgekit("status", "--board", "here").code == 0


@pytest.mark.sshd
def test_global_boards_are_there_in_every_folder(
    edgekit: Any, home: Path, tmp_path: Path, add_options: list[str], monkeypatch: Any
) -> None:
    done = edgekit("board", "add", *add_options, "--yes", "--global", "--json")
    assert done.code == 0, done.err
    assert done.document["schema"] == "edgekit.board.add/1"
    assert list(home.iterdir()) == []
    monkeypatch.chdir(tmp_path)
    assert edgekit("status", "--board", "here").code == 0


Up = Callable[[], list[str]]


@pytest.fixture
def up(edgekit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    """Virtual boards a57 and rv64v boot nothing; returns the names of those that are up."""
    fake_virtual_boards(tmp_path / "virtual", monkeypatch, "a57", "rv64v")
    yield lambda: [board.name for board in status() if board.running]
    assert edgekit("board", "down").code == 0


@pytest.mark.usefixtures("up")
def test_up_tells_how_to_get_there(edgekit: Any) -> None:
    done = edgekit("board", "up", "a57")
    assert done.code == 0, done.err
    assert "board a57: boot ..." in done.err
    assert "edgekit deploy --board a57" in done.out
    assert "emulated" in done.out
    document = edgekit("board", "up", "a57", "--json").document
    assert document["schema"] == "edgekit.board.up/1"
    assert (document["board"]["port"], document["board"]["emulated"]) == (SSH_PORT, True)
    assert "password" not in document["board"]


@pytest.mark.usefixtures("up")
def test_up_says_when_the_inventory_has_that_name(edgekit: Any, home: Path) -> None:
    (home / "edgekit.toml").write_text('[boards.a57]\nprofile = "a57"\nhost = "h"\n')
    assert "in the inventory" in edgekit("board", "up", "a57").err


@pytest.mark.usefixtures("up")
@pytest.mark.parametrize(
    "command",
    [
        ("lab", "bench", "gemm"),
        ("lab", "tune", "gemm"),
        ("lab", "bench", "sparse", "--matrix", "random:100:0.1"),
        ("lab", "tune", "sparse"),
    ],
)
def test_board_that_cannot_count_is_named_before_anything_is_compiled(
    edgekit: Any, command: tuple[str, ...]
) -> None:
    assert edgekit("board", "up", "a57").code == 0
    done = edgekit(*command, "--board", "a57")
    assert done.code == 5
    assert done.complaint.endswith(
        "edgekit board down a57, then edgekit board up a57 --count-instructions"
    )
    assert [kind.kind for kind in cached()] == ["boards"]


@pytest.mark.usefixtures("up")
def test_instructions_are_counted_on_one_thread(edgekit: Any) -> None:
    assert edgekit("board", "up", "a57", "--count-instructions").code == 0
    done = edgekit("lab", "tune", "gemm", "--board", "a57", "--threads", "2")
    assert done.code == 2
    assert "expected 1 thread for counting instructions, found 2" in done.complaint


def test_up_takes_the_name_of_a_profile(edgekit: Any, up: Up) -> None:
    assert edgekit("board", "up", "rv64gcv").code == 0
    assert up() == ["rv64v"]


def test_up_takes_a_board_with_such_a_core(edgekit: Any, up: Up) -> None:
    assert edgekit("board", "up", "jetson-nano").code == 0
    assert up() == ["a57"]


def test_status_and_down(edgekit: Any, up: Up) -> None:
    shown, _, _ = edgekit("boards").out.partition("\n\n")  # the profiles follow the boards
    head, *rows = [line.split()[:2] for line in shown.splitlines()]
    states = {name: "not" if name == "a7" else "built" for name in virtual_board_names()}
    assert (head, dict(rows)) == (["board", "state"], states)
    assert edgekit("board", "up", "a57").code == 0
    rows = [line.split() for line in edgekit("boards").out.splitlines()]
    (row,) = (row for row in rows if row[:1] == ["a57"] and row[2] == "virtual")
    assert (row[:2], row[-1]) == (["a57", "up"], f"edge@127.0.0.1:{SSH_PORT}")
    assert edgekit("board", "down", "--json").document["boards"] == ["a57"]
    assert up() == []
    assert edgekit("board", "down", "a57", "--json").document["boards"] == []
    assert edgekit("board", "down", "nosuch").err.startswith("edgekit: expected a virtual board")


def test_an_unknown_virtual_board_is_refused(edgekit: Any) -> None:
    done = edgekit("board", "up", "nosuch")
    assert (done.code, done.out) == (2, "")
    assert "a57, a7, a72, rv64, rv64v" in done.complaint
