"""A truncated kernel library is a one-line error; mapping it would kill the process."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.runtime.arrays.find import find_library
from edgekit.device.runtime.arrays.gemm_library import GemmLibrary
from edgekit.device.runtime.errors import DeviceError, IncompatibleError
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.toolchain.zig import kernels_folder


@pytest.mark.parametrize("percent", [0, 3, 20])
def test_a_cut_library_is_named(
    tiny_artifact: Callable[..., Artifact],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    percent: int,
) -> None:
    library = tiny_artifact().library
    path = tmp_path / "kernels.so"
    path.write_bytes(library[: len(library) * percent // 100])
    monkeypatch.setenv("EDGEKIT_KERNELS", str(path))
    with pytest.raises(DeviceError, match=r"kernels\.so: expected") as caught:
        GemmLibrary(*find_library())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("variable", ["EDGEKIT_KERNELS", "EDGEKIT_GEMM_TABLE"])
def test_a_variable_that_names_no_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    with pytest.raises(IncompatibleError, match=f"{variable}=.*: expected a .*, found no file"):
        find_library()


def test_the_board_needs_no_library_and_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EDGEKIT_KERNELS", raising=False)
    (tmp_path / "device").mkdir()
    (tmp_path / "device" / "__init__.py").touch()
    with pytest.raises(IncompatibleError, match="kernels library for this machine, found none"):
        find_library([str(tmp_path)])


def test_nothing_of_the_device_names_the_host() -> None:
    files = [p for p in kernels_folder().parent.rglob("*") if p.suffix in (".py", ".c", ".h")]
    assert not [p for p in files if re.search(r"edgekit\.host|\bhost/", p.read_text())]
