"""edgekit fleet add: adding many boards at once, and verifying their host keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgekit.host.deploy.inventory import boards
from edgekit.host.deploy.transport.ssh_keys import fingerprint
from tests.support.sshd import Sshd

pytestmark = pytest.mark.sshd

OTHER = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.fixture
def row(server: Sshd) -> str:
    """The server as a CSV row: host, profile, identity."""
    return f"{server.user}@{server.host}:{server.port},local,{server.identity}"


def write(home: Path, *lines: str) -> Path:
    file = home / "boards.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.slow
def test_a_csv_becomes_boards_with_labels_and_pinned_keys(
    edgekit: Any, home: Path, server: Sshd, row: str
) -> None:
    known = home / "known_hosts"
    known.write_text(f"[{server.host}]:{server.port} {server.host_key}\n")
    file = write(home, "name,host,profile,identity,site", f"pi-1,{row},lab")
    arguments = ("fleet", "add", "--csv", file, "--known-hosts", known, "--label", "line=3")
    done = edgekit(*arguments)
    assert done.code == 0, done.err
    (entry,) = boards(home)
    assert (entry.name, entry.labels) == ("pi-1", {"site": "lab", "line": "3"})
    assert entry.host_key == server.host_key
    assert edgekit("doctor", "--select", "name=*").code == 0

    logins = server.log.count("Accepted publickey")
    again = edgekit(*arguments, "--label", "line=4", "--json").document
    assert (again["known"], again["boards"]) == (["pi-1"], [])
    assert boards(home)[0].labels == {"site": "lab", "line": "4"}
    assert server.log.count("Accepted publickey") == logins


def test_boards_that_fail_are_named_and_the_others_are_added(
    edgekit: Any, home: Path, server: Sshd, row: str
) -> None:
    key = fingerprint(server.host_key)
    file = write(
        home,
        "name,host,profile,identity,fingerprint",
        f"good,{row},{key}",
        f"asleep,127.0.0.1:1,local,{server.identity},{key}",
        f"liar,me@localhost:{server.port},local,{server.identity},{OTHER}",
    )
    done = edgekit("fleet", "add", "--csv", file, "--json")
    assert done.code == 8, done.err
    states = {board["board"]: board["state"] for board in done.document["boards"]}
    assert states == {"good": "ok", "asleep": "failed", "liar": "failed"}
    said = {board["board"]: board["error"] for board in done.document["boards"]}
    assert (said["asleep"]["exit_code"], said["liar"]["exit_code"]) == (3, 4)
    assert f"expected the host key {OTHER}" in said["liar"]["message"]
    assert [entry.name for entry in boards(home)] == ["good"]


def test_a_board_that_is_not_what_it_is_said_to_be_is_not_added(
    edgekit: Any, home: Path, row: str
) -> None:
    file = write(home, "name,host,profile,identity", f"liar,{row.replace(',local,', ',a57,')}")
    done = edgekit("fleet", "add", "--csv", file, "--yes")
    assert done.code == 8
    assert "profile a57 is for aarch64" in done.out
    assert boards(home) == ()


def test_keys_that_nobody_vouches_for_are_shown_and_not_pinned(
    edgekit: Any, home: Path, server: Sshd, row: str
) -> None:
    file = write(home, "name,host,profile,identity", f"pi-1,{row}")
    done = edgekit("fleet", "add", "--csv", file)
    assert done.code == 4
    assert f"host key of pi-1  ssh-ed25519 {fingerprint(server.host_key)}" in done.err
    assert "expected confirmation of 1 host keys" in done.err
    assert boards(home) == () and "Accepted" not in server.log
    assert edgekit("fleet", "add", "--csv", file, "--yes").code == 0
    assert boards(home)[0].host_key == server.host_key


def test_hosts_of_an_ssh_config_become_boards(
    edgekit: Any, home: Path, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home))
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(
        f"Host pi-* other\n  User {server.user}\n  IdentityFile {server.identity}\n"
        f"Host pi-1\n  HostName {server.host}\n  Port {server.port}\n"
        f"Host pi-2\n  HostName {server.host}\n  Port {server.port}\n"
        "Host gate\n  HostName 192.0.2.1\n"
    )
    done = edgekit("fleet", "add", "--ssh", "nosuch*")
    assert (done.code, "hosts there: gate, other, pi-1, pi-2" in done.complaint) == (2, True)
    done = edgekit("fleet", "add", "--ssh", "pi-*", "--yes")
    assert (done.code, "where 'pi-1' of" in done.complaint) == (2, True)
    done = edgekit("fleet", "add", "--ssh", "pi-1", "--profile", "local", "--yes")
    assert done.code == 0, done.err
    (entry,) = boards(home)
    assert (entry.name, entry.host, entry.port, entry.user) == ("pi-1", "pi-1", None, None)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["name,site", "a,b"], "line 1: expected names of columns including host"),
        (["name,host", "a,"], "line 2: host: expected"),
        (["name,host", "a,h", "", "a,k"], "line 4: expected a name that no other board has"),
        (["name,host", "a,h", "b,h:22"], "line 3: expected each board once, found 'b' at"),
        (["name,host", "a,h,x"], "line 2: expected 2 cells, found 3"),
        (["name,host,host", "a,h,h"], "each once, found host"),
        (["name,host,port", f"a,h,{'9' * 5000}"], "line 2: port: expected 1 to 65535, found '999"),
        (["name,host", f"a,h:{'9' * 5000}"], "line 2: host: expected"),
        (["name,host,port", "a,h,ssh"], "line 2: port: expected 1 to 65535, found 'ssh'"),
        (["name,host,host_key", "a,h,nokey"], "line 2: host_key: expected a host key"),
        (["name,host,fingerprint", "a,h,aa:bb"], "line 2: fingerprint: expected SHA256:"),
        (["name,host,profile", "a,h,nosuch"], "boards.a.profile: expected one that"),
        (["name,host,site", "a,h,b c"], "boards.a.labels: expected"),
        (["name,host", "a b,h"], "expected a board's name of letters"),
        (["name,host", "local,h"], "line 2: expected a name, found 'local'"),
        (["name,host"], "expected a board on each line below the first"),
        ([""], "expected a line with the names of columns"),
        (["name,host", 'a,"h'], "expected CSV in UTF-8"),
    ],
)
def test_files_that_are_wrong_are_named_by_line(
    edgekit: Any, home: Path, lines: list[str], found: str
) -> None:
    done = edgekit("fleet", "add", "--csv", write(home, *lines), "--yes")
    assert (done.code, done.out) == (2, "")
    assert found in done.complaint
    assert not (home / "edgekit.toml").exists()


def test_a_missing_option_is_named(edgekit: Any, home: Path) -> None:
    assert "--csv FILE, or --ssh" in edgekit("fleet", "add").complaint
    assert "found none" in edgekit("fleet", "add", "--csv", "no.csv").complaint
    file = write(home, "name,host", "a,h")
    done = edgekit("fleet", "add", "--csv", file, "--known-hosts", "no")
    assert "expected a known_hosts file, found none at no" in done.complaint
    done = edgekit("fleet", "add", "--csv", file, "--label", "lab")
    assert "--label: expected KEY=VALUE, found 'lab'" in done.complaint
