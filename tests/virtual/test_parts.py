"""Components of virtual boards, without booting any."""

from __future__ import annotations

import itertools
import lzma
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.host.debian.architecture import ARM64, RISCV64
from edgekit.host.debian.packages import (
    PackageStore,
    apt_configuration,
    resolved,
    source_line,
)
from edgekit.host.debian.tools import find_tools
from edgekit.host.errors import InputError, UnreachableError
from edgekit.host.virtual import BoardOptions, find_running, process, up, virtual_board_names
from edgekit.host.virtual.initrd import Entry, cpio, initrd
from edgekit.host.virtual.machines import virtual_board
from edgekit.host.virtual.qemu import Drive, QemuMachine, connection_arguments, machine_arguments
from edgekit.host.virtual.records import (
    MachineRecord,
    clear_record,
    read_record,
    record_path,
    write_record,
)
from edgekit.host.virtual.types import RunningBoard
from edgekit.kb.targets.board import load_board

_SIMULATION = """NOTE: This is only a simulation!
Inst libc6 (2.36-9 Debian:12/oldstable [arm64])
Inst perl-base (5.36.0-7 Debian:12/oldstable [arm64])
Inst python3-numpy (1:1.24.2-1 Debian:12/oldstable [arm64]) [x:arm64 ]
Inst python3-pkg-resources (66.1.1 Debian:12/oldstable [all])
Conf libc6 (2.36-9 Debian:12/oldstable [arm64])
"""
_DUMP = """Acquire "";
Acquire::http "";
Acquire::http::Proxy "http://proxy.invalid:3128";
Acquire::Languages "de";
Acquire::https::Verify-Peer "true";
"""


def _entries(archive: bytes) -> list[tuple[str, int, bytes]]:
    """(name, mode, data) of each entry in a cpio archive, parsed by the format's specification."""
    found, at = [], 0
    while True:
        assert archive[at : at + 6] == b"070701" and at % 4 == 0
        field = [int(archive[at + 6 + 8 * i : at + 14 + 8 * i], 16) for i in range(13)]
        mode, size, length = field[1], field[6], field[11]
        name = archive[at + 110 : at + 110 + length - 1].decode()
        data = at + 110 + length + -(110 + length) % 4
        at = data + size + -size % 4
        if name == "TRAILER!!!":
            assert at == len(archive)
            return found
        found.append((name, mode, archive[data : data + size]))


def test_cpio_holds_what_went_in():
    entries = [Entry("bin", stat.S_IFDIR | 0o755), Entry("a/bc", stat.S_IFREG | 0o644, b"12345")]
    assert _entries(cpio(entries)) == [(e.name, e.mode, e.data) for e in entries]


def _module(folder: Path, name: str, depends: str, packed: bool) -> None:
    data = b"\x7fELF\0license=GPL\0depends=" + depends.encode() + b"\0name=" + name.encode()
    suffix = ".ko.xz" if packed else ".ko"
    (folder / f"{name}{suffix}").write_bytes(lzma.compress(data) if packed else data)


@pytest.mark.parametrize("packed", [False, True])
def test_initrd_loads_drivers_after_those_they_need(tmp_path, packed):
    _module(tmp_path, "ext4", "mbcache,crc-core", packed)
    _module(tmp_path, "mbcache", "", packed)
    _module(tmp_path, "crc-core", "", packed)
    _module(tmp_path, "virtio_blk", "", packed)
    _module(tmp_path, "sound", "", packed)
    found = {name: data for name, _, data in _entries(initrd(b"box", b"#!init", tmp_path))}
    assert found["order"].decode().split() == ["virtio_blk", "mbcache", "crc_core", "ext4"]
    assert found["drivers/ext4"].startswith(b"\x7fELF")
    assert found["bin/busybox"] == b"box" and found["init"] == b"#!init"
    assert "drivers/sound" not in found


def test_packages_without_those_of_installation_scripts():
    assert [(p.name, p.version) for p in resolved(_SIMULATION)] == [
        ("libc6", "2.36-9"),
        ("python3-numpy", "1:1.24.2-1"),
    ]


def test_apt_keeps_to_its_folder_and_takes_the_machine_s_proxy():
    text = apt_configuration(Path("/state of ours"), "riscv64", _DUMP)
    assert 'Acquire::http::Proxy "http://proxy.invalid:3128";' in text
    assert 'Acquire::https::Verify-Peer "true";' in text
    assert 'Acquire::Languages "none";' in text and '"de"' not in text
    assert 'Dir::Cache::pkgcache "";' in text and 'Dir::Cache::srcpkgcache "";' in text
    named = [line for line in text.splitlines() if line.startswith("Dir::")]
    folders = [line for line in named if "pkgcache" not in line]
    assert folders and all('"/state of ours/' in line for line in folders)


def test_apt_source_is_checked_against_debian_s_keys():
    line = source_line(RISCV64, "http://mirror.invalid/debian", Path("/keys.gpg"), "trixie")
    wanted = "deb [arch=riscv64 signed-by=/keys.gpg] http://mirror.invalid/debian trixie main\n"
    assert line == wanted


def test_missing_programs_are_named_with_their_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="apt-get install qemu-system-arm qemu-system-misc"):
        find_tools(["qemu-system-aarch64", "qemu-system-riscv64"])


def _machine() -> QemuMachine:
    root = Drive("/i/root.ext4", read_only=True)
    home = Drive("/i/home,1.ext4", keep=False)
    return QemuMachine(
        ARM64, Path("/i/kernel"), Path("/i/initrd"), root, home, "cortex-a57", 256, 2
    )


def _value(arguments: list[str], option: str, part: str) -> str:
    values = [b for a, b in itertools.pairwise(arguments) if a == option]
    return next(value for value in values if part in value)


def test_machine_cannot_write_to_the_image():
    arguments = machine_arguments(_machine())
    assert "readonly=on" in _value(arguments, "-drive", "root-disk")
    home = _value(arguments, "-drive", "home-disk")
    assert "snapshot=on" in home and "file=/i/home,,1.ext4" in home
    assert arguments[arguments.index("-cpu") + 1] == "cortex-a57"
    assert "-icount" not in arguments


def test_own_disk_is_written_and_counting_takes_the_instruction_clock():
    machine = replace(_machine(), home=Drive("nbd:unix:/s"), counting=True)
    arguments = machine_arguments(machine)
    assert "snapshot=off" in _value(arguments, "-drive", "home-disk")
    assert _value(arguments, "-icount", "shift") == "shift=0,sleep=on"


def test_guest_is_cut_off_and_reached_on_loopback_only():
    arguments = connection_arguments(Path("/c"), incoming=False)
    network = _value(arguments, "-netdev", "user")
    assert "restrict=on" in network and "hostfwd=tcp:127.0.0.1:0-:22" in network
    assert "host=127.0.0.1" in _value(arguments, "-chardev", "id=console")


def test_every_virtual_board_has_a_profile():
    assert virtual_board_names() == ["a53", "a57", "a7", "a72", "rv64", "rv64v"]
    for name in virtual_board_names():
        assert load_board(virtual_board(name).profile).arch


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("a99", BoardOptions(), "a53, a57"),
        ("a57", BoardOptions(cores=0), "1 to 8 cores"),
        ("a57", BoardOptions(memory_mib=64), "192 to 8192 MiB"),
    ],
)
def test_up_refuses_what_cannot_be(own_home, name, options, match):
    with pytest.raises(InputError, match=match):
        up(name, options=options)


def _running(pid: int, mark: str, control: Path) -> RunningBoard:
    ours = {"identity": Path("/i/client_key"), "control": control, "pid": pid, "mark": mark}
    texts = ("name", "profile", "ssh_host", "user", "password", "host_key", "console")
    numbers = {"ssh_port": 2222, "memory_mib": 512, "cores": 2, "counting": False, "disk": None}
    return RunningBoard(**ours, **numbers, **{name: name for name in texts})  # type: ignore[arg-type]


@pytest.fixture
def sleeper(own_home, tmp_path):
    """A process recorded as board a57."""
    control = tmp_path / "control"
    control.mkdir()
    record_path("a57").parent.mkdir(parents=True)
    child = subprocess.Popen(["sleep", "60"])
    mark = process.start_mark(child.pid)
    write_record("a57", MachineRecord(child.pid, mark, control, _running(child.pid, mark, control)))
    yield child
    child.kill()
    child.wait()


def test_record_of_a_running_board_comes_back(sleeper):
    found = find_running("a57")
    assert found is not None and found.alive
    assert found == _running(sleeper.pid, found.mark, found.control)


def test_record_of_a_process_that_is_gone_is_none(sleeper):
    sleeper.kill()
    assert sleeper.wait() != 0
    assert find_running("a57") is None


def test_record_of_a_number_given_out_again_is_none(sleeper):
    record = read_record("a57")
    write_record("a57", replace(record, mark=record.mark + "0"))
    assert find_running("a57") is None
    clear_record("a57")
    assert sleeper.poll() is None


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"schema": "other/1"}'])
def test_damaged_record_is_none(own_home, text):
    record_path("a57").parent.mkdir(parents=True)
    record_path("a57").write_bytes(text)
    assert find_running("a57") is None


def test_clearing_ends_the_process_and_removes_its_folder(sleeper, tmp_path):
    clear_record("a57")
    assert process.start_mark(sleeper.pid) is None
    assert not (tmp_path / "control").exists() and not record_path("a57").exists()


def test_board_that_was_only_starting_is_not_running(sleeper):
    write_record("a57", replace(read_record("a57"), board=None))
    assert find_running("a57") is None
    assert read_record("a57").pid == sleeper.pid


def test_own_mark_is_stable_and_another_s_is_different(sleeper):
    own = process.start_mark(os.getpid())
    assert own == process.start_mark(os.getpid())
    # The parent may have started within the same clock tick (10 ms) as this process.
    assert own != process.start_mark(sleeper.pid)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt here")
def test_no_network_names_the_mirror_and_the_option(tmp_path: Path) -> None:
    with pytest.raises(
        UnreachableError, match=r"from http://127\.0\.0\.1:9/debian, found: .*--mir"
    ):
        PackageStore(tmp_path, RISCV64, "http://127.0.0.1:9/debian").update()


_APT = """#!/bin/sh
case "$0 $*" in
*apt-config*) echo 'Acquire "";' ; exit ;;
esac
folder=$(sed -n 's/^Dir::State "\\(.*\\)";/\\1/p' "$APT_CONFIG")
suite=$(sed 's/.* \\([a-z]*\\) main/\\1/' "$(dirname "$folder")/etc/sources.list")
case $suite in
stable) codename=forky ;;
oldstable) codename=$WHOLE ;;
*) touch "$folder/lists/partial/m_dists_${suite}_InRelease"
    echo 'E: File has unexpected size (2 != 3). Mirror sync in progress?' >&2 ; exit 100 ;;
esac
printf 'Origin: Debian\\nCodename: %s\\n' $codename > "$folder/lists/m_dists_${suite}_InRelease"
"""


@pytest.fixture
def half_updated_mirror(tmp_path, monkeypatch):
    """A fake apt: the mirror has a new index but old lists under the suite's codename."""
    for name in ("apt-get", "apt-cache", "apt-config"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(_APT)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return PackageStore(tmp_path / "store", RISCV64, "http://mirror.invalid/debian")


def test_half_updated_mirror_is_asked_by_the_suite_s_other_name(
    half_updated_mirror, tmp_path, monkeypatch
):
    monkeypatch.setenv("WHOLE", "trixie")
    half_updated_mirror.update()
    line = (tmp_path / "store" / "etc" / "sources.list").read_text()
    assert line.endswith(" http://mirror.invalid/debian oldstable main\n")


def test_another_release_under_the_other_name_is_not_taken(half_updated_mirror, monkeypatch):
    monkeypatch.setenv("WHOLE", "bookworm")
    with pytest.raises(UnreachableError, match="found: E: File has unexpected size"):
        half_updated_mirror.update()
