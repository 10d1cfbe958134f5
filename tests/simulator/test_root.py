"""Root file systems of other architectures, and the core identity they show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.simulator.identity import CoreIdentity, core_view, identity
from edgekit.host.simulator.root import SystemRoot, root_architectures, system_root, wheels
from edgekit.kb.targets.board import load_board
from tests.support.patience import AMPLE

_A53 = 0x410FD034


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SystemRoot:
    """A root as if fetched: a cache folder with one program."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    folder = tmp_path / "cache" / "roots" / "arm64-test"
    (folder / "usr" / "bin").mkdir(parents=True)
    (folder / "usr" / "bin" / "python3.11").write_text("program")
    (folder / "bin").symlink_to("usr/bin")
    return SystemRoot("aarch64", folder, "3.11")


def test_an_architecture_without_packages_is_named_beside_those_with_them():
    with pytest.raises(InputError, match=r"\(aarch64, armv7l, riscv64\), found 'x86_64'"):
        system_root("x86_64", print)


@pytest.mark.parametrize("arch", root_architectures())
def test_nothing_is_fetched_where_that_is_forbidden(tmp_path, monkeypatch, arch):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    monkeypatch.setenv("EDGEKIT_NO_FETCH", "1")
    with pytest.raises(InputError, match="EDGEKIT_NO_FETCH is set"):
        system_root(arch, print)
    with pytest.raises(InputError, match=f"wheels of ncnn for {arch} in the cache"):
        wheels(SystemRoot(arch, tmp_path, "3.11"), ["ncnn"], print)


def test_a_machine_without_apt_learns_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("EDGEKIT_NO_FETCH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"^estimates: expected apt-.* try: apt-get install apt"):
        system_root("aarch64", print)


def test_wheels_that_pip_cannot_have_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    monkeypatch.delenv("EDGEKIT_NO_FETCH", raising=False)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(InputError, match="expected wheels of nosuch for aarch64, found: ") as error:
        wheels(SystemRoot("aarch64", tmp_path, "3.11"), ["nosuch"], lambda text: None)
    assert "\n" not in str(error.value)
    assert not [p for p in (tmp_path / "cache" / "roots").iterdir() if p.suffix != ".lock"]


def test_a_view_has_the_programs_of_the_root_and_the_identity_of_the_core(root):
    core = CoreIdentity("rpi3", "aarch64", 4, 1400.0, _A53, l2_bytes=524288)
    view = core_view(root, core)
    assert view.interpreter.read_text() == "program"
    assert (view.folder / "bin" / "python3.11").read_text() == "program"
    cpu = view.folder / "sys/devices/system/cpu"
    cpuinfo = (view.folder / "proc/cpuinfo").read_text()
    assert cpuinfo.count("processor\t") == 4
    assert "CPU part\t: 0xd03\nCPU revision\t: 4" in cpuinfo
    assert (cpu / "possible").read_text() == "0-3\n"
    assert (cpu / "cpu3/regs/identification/midr_el1").read_text() == "0x00000000410fd034\n"
    assert (cpu / "cpu1/cache/index2/size").read_text() == "512K\n"
    assert (cpu / "cpu1/cache/index2/shared_cpu_map").read_text() == "f\n"
    assert (cpu / "cpu1/cache/index0/shared_cpu_map").read_text() == "2\n"
    assert not (cpu / "cpu0/cache/index3").exists()
    assert (cpu / "cpu0/cpufreq/cpuinfo_max_freq").read_text() == "1400000\n"


def test_a_view_is_made_once_and_another_core_gets_another(root):
    core = CoreIdentity("rpi3", "aarch64", 4, 1400.0, _A53)
    assert core_view(root, core) == core_view(root, core)
    assert core_view(root, core) != core_view(root, CoreIdentity("a", "aarch64", 1, 1400.0, _A53))


def test_a_riscv_core_tells_its_extensions():
    core = identity(load_board("bpi-f3"), 0, 1600.0, True)
    assert (core.arch, core.isa, core.midr) == ("riscv64", "rv64imafdcv", 0)


@pytest.mark.boards
def test_python_of_the_root_reads_the_core_of_the_view(monkeypatch):
    monkeypatch.delenv("EDGEKIT_NO_FETCH", raising=False)  # may fetch packages
    root = system_root("aarch64", lambda text: None)
    view = core_view(root, CoreIdentity("rpi3", "aarch64", 4, 1400.0, _A53))
    code = "print(open('/proc/cpuinfo').read().count('0xd03'))"
    command = ["qemu-aarch64", "-L", str(view.folder), str(view.interpreter), "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AMPLE)
    assert (done.stdout, done.stderr) == ("4\n", "")
