"""Finding QEMU: the installed one, or Debian 12's if that lacks plugin support."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.simulator import own_qemu
from edgekit.host.simulator.emulator import Emulator, find_emulator
from tests.support.fake_emulator import write_emulator


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home without fetched emulators."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))


def test_a_missing_emulator_names_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="found none; try: apt-get install qemu-user"):
        find_emulator("aarch64")


def test_an_emulator_without_plugins_is_refused(tmp_path, monkeypatch):
    write_emulator(tmp_path, usage="-strace")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InputError, match="expected a QEMU with plugins, found one without"):
        find_emulator("aarch64")


def test_an_emulator_that_is_too_old_is_refused(tmp_path, monkeypatch):
    write_emulator(tmp_path, version="5.2.0")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InputError, match=r"expected QEMU 7.2 or newer, found 5\.2"):
        find_emulator("aarch64")


@pytest.mark.parametrize(("version", "api"), [((7, 2), 1), ((9, 0), 2), ((9, 1), 3), ((10, 0), 4)])
def test_the_plugin_is_built_for_the_interface_of_the_emulator(version, api):
    assert Emulator("qemu-aarch64", version).plugin_api == api


def test_where_plugins_are_missing_another_emulator_is_fetched(tmp_path, monkeypatch):
    write_emulator(tmp_path, usage="-strace", version="10.0.13")
    (tmp_path / "kept").mkdir()
    kept = write_emulator(tmp_path / "kept")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = find_emulator("aarch64", print, fetch=lambda name, tell: kept)
    assert found == Emulator(str(kept), (7, 2), fetched=True)


def test_the_error_says_what_was_found_if_fetching_is_forbidden(tmp_path, monkeypatch):
    write_emulator(tmp_path, usage="-strace", version="10.0.13")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("EDGEKIT_NO_FETCH", "1")
    with pytest.raises(InputError, match="found one without, as Debian 13's is"):
        find_emulator("aarch64", print)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="fetched for these")
def test_a_fetched_emulator_runs_with_the_libraries_it_was_built_for():
    loaders = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
    roots = []

    def unpack_root(debian, packages, folder, mirror, tell):
        loader = folder / "usr/lib" / debian.library_folder / loaders[platform.machine()]
        loader.parent.mkdir(parents=True)
        loader.write_text('#!/bin/sh\necho "$@"\n')
        loader.chmod(0o755)
        roots.append((folder, packages))

    names = ("qemu-arm", "qemu-aarch64", "qemu-arm")
    paths = [own_qemu.fetch_emulator(name, print, unpack_root) for name in names]
    assert paths[0] == paths[2] == own_qemu.kept_emulator("qemu-arm")
    ((root, packages),) = roots  # one root serves all emulators
    assert packages == ("qemu-user",)
    said = subprocess.run([paths[1], "-h", "a b"], capture_output=True, text=True, check=True)
    libraries = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    program = root / "usr/bin/qemu-aarch64"
    assert said.stdout == f"--library-path {libraries} {program} -h a b\n"
