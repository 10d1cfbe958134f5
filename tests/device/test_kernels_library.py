"""A library of kernels that is cut at its end: one line, where mapping it would end the process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.errors import DeviceError
from edgekit.device.gemm_find import find_library
from edgekit.device.gemm_library import GemmLibrary
from edgekit.host.toolchain.artifact import Artifact


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
