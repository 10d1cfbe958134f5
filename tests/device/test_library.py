"""A compiled model in this process: outputs, timings, state, and rejected input."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.device.runtime.agent.model import LoadedModel, open_model
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.errors import DeviceError, IncompatibleError, InputError, TransferError
from edgekit.host.deploy.bundle import Bundle

Unpack = Callable[..., Path]
X = Array("f32", (4,), struct.pack("<4f", 0, 1, 2, -3))


_OPEN = """
import pathlib, sys
from edgekit.device.runtime.shared_library import open_library
open_library(pathlib.Path(sys.argv[1]))
"""


@pytest.fixture
def unpack(tmp_path: Path, tiny: Callable[..., Bundle]) -> Unpack:
    """Unpacks the files of a tiny bundle, laid out as in a release."""

    def write(*defines: str) -> Path:
        folder = tmp_path / "_".join(("model", *(d.split("=")[0] for d in defines)))
        (folder / "golden").mkdir(parents=True)
        for path, data in tiny(*defines).files.items():
            (folder / path).write_bytes(data)
        return folder

    return write


def values(array: Array) -> tuple[float, ...]:
    return struct.unpack("<4f", array.data)


def test_run_gives_outputs_and_times(unpack: Unpack) -> None:
    outputs, times = LoadedModel(ReleaseFiles(unpack())).run({"x": X})
    assert (outputs["y"].dtype, outputs["y"].shape) == ("f32", (4,))
    assert values(outputs["y"]) == (1, 3, 5, -5)
    assert len(times.operators) == 2
    assert 0 <= sum(times.operators) <= times.total


def test_numpy_arrays_are_accepted(unpack: Unpack) -> None:
    outputs, _ = LoadedModel(ReleaseFiles(unpack())).run({"x": np.arange(8, dtype=np.float32)[::2]})
    assert values(outputs["y"]) == (1, 5, 9, 13)


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_outlives_the_files_of_a_release(unpack: Unpack) -> None:
    folder, before = unpack(), _open_descriptors()
    for _ in range(2):
        model = LoadedModel(ReleaseFiles(folder))
        assert values(model.run({"x": X})[0]["y"]) == (1, 3, 5, -5)
        model.close()
    assert _open_descriptors() == before


def test_bench_times_every_run(unpack: Unpack) -> None:
    model = LoadedModel(ReleaseFiles(unpack()))
    model.set_inputs({"x": X})
    times = model.bench(50)
    assert len(times.totals) == len(times.operators) == 50
    assert all(sum(row) <= total for row, total in zip(times.operators, times.totals, strict=True))


def test_state_lives_from_run_to_run_until_reset(unpack: Unpack) -> None:
    model = LoadedModel(ReleaseFiles(unpack("TINY_STATE")))
    first = values(model.run({"x": X})[0]["y"])
    assert values(model.run({"x": X})[0]["y"]) == tuple(v + 1 for v in first)
    model.reset()
    assert values(model.run({"x": X})[0]["y"]) == first


def test_two_models_do_not_share_state(unpack: Unpack) -> None:
    folder = unpack("TINY_STATE")
    one, two = LoadedModel(ReleaseFiles(folder)), LoadedModel(ReleaseFiles(folder))
    assert values(one.run({"x": X})[0]["y"]) == values(two.run({"x": X})[0]["y"])


def test_threads(unpack: Unpack) -> None:
    folder = unpack()
    model = LoadedModel(ReleaseFiles(folder), threads=3)
    assert values(model.run({"x": X})[0]["y"]) == (1, 3, 5, -5)
    model.close()
    with pytest.raises(IncompatibleError, match="expected to start 1000 threads"):
        LoadedModel(ReleaseFiles(folder), threads=1000)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "expected inputs x, found none"),
        ({"X": X}, "expected inputs x, found X"),
        ({"x": X, "z": X}, "expected inputs x, found x, z"),
        ({"x": replace(X, dtype="s32")}, r"'x': expected f32 \[4\], found s32 \[4\]"),
        ({"x": replace(X, shape=(2, 2))}, r"'x': expected f32 \[4\], found f32 \[2, 2\]"),
        ({"x": np.zeros(4)}, r"expected f32 \[4\], found f64 \[4\]"),
        ({"x": [0, 0, 0, 0]}, "expected an array, found list"),
    ],
)
def test_wrong_inputs(unpack: Unpack, inputs: dict[str, Array], message: str) -> None:
    with pytest.raises(InputError, match=message):
        LoadedModel(ReleaseFiles(unpack())).run(inputs)


def test_other_abi_and_missing_feature(unpack: Unpack) -> None:
    with pytest.raises(IncompatibleError, match="expected ABI 1, found 7"):
        LoadedModel(ReleaseFiles(unpack("TINY_ABI=7")))
    with pytest.raises(IncompatibleError, match="expected a CPU with flux, found one without"):
        LoadedModel(ReleaseFiles(unpack('TINY_MISSING="flux"')))


def test_what_was_verified_is_loaded(unpack: Unpack) -> None:
    """The short version of tests/long/swap_files.py."""
    other = unpack("TINY_WRONG")
    for name in (LIBRARY, WEIGHTS):
        folder = unpack()
        files = ReleaseFiles(folder)
        with files.opened(name):  # as the verification does
            pass
        (folder / name).unlink()
        (folder / name).symlink_to(other / name)
        assert values(LoadedModel(files).run({"x": X})[0]["y"]) == (1, 3, 5, -5)
        with pytest.raises(
            TransferError, match=f"{name}: expected a readable file, found Too many"
        ):
            LoadedModel(ReleaseFiles(folder))
        shutil.rmtree(folder)


def test_a_library_is_not_taken_for_one_that_had_the_same_descriptor(unpack: Unpack) -> None:
    numbers = []
    for folder, expected in ((unpack(), 1), (unpack("TINY_STATE"), 2)):
        files = ReleaseFiles(folder)
        assert values(LoadedModel(files).run({"x": X})[0]["y"])[0] == expected
        with files.opened(LIBRARY) as descriptor:
            numbers.append(descriptor)
        files.close()
    assert numbers[0] == numbers[1]


def test_damaged_files(unpack: Unpack) -> None:
    folder = unpack()
    (folder / "weights.bin").write_bytes(bytes(7))
    with pytest.raises(TransferError, match=r"weights\.bin: expected 8 bytes, found 7"):
        LoadedModel(ReleaseFiles(folder))
    library = bytearray((folder / "model.so").read_bytes())
    library[18:20] = struct.pack("<H", 8)
    # Never overwrite the mapped file: this process would crash when it unloads the library.
    (folder / "model.so").unlink()
    (folder / "model.so").write_bytes(library)
    with pytest.raises(IncompatibleError, match="found one for ELF machine 8"):
        LoadedModel(ReleaseFiles(folder))
    (folder / "model.so").write_bytes(b"#!/bin/sh")
    with pytest.raises(TransferError, match=r"model\.so: expected a shared library"):
        LoadedModel(ReleaseFiles(folder))
    (folder / "model.so").unlink()
    with pytest.raises(TransferError, match="No such file"):
        LoadedModel(ReleaseFiles(folder))


@pytest.mark.parametrize("part", [0.01, 0.1, 0.2, 0.3, 0.5, 0.9])
def test_library_that_was_cut_kills_nobody(unpack: Unpack, part: float) -> None:
    """Rejected before it is mapped, unless only linker notes at the end are missing.

    Runs in a separate process, because accessing a mapping past the end of its file kills it.
    """
    library = unpack() / "model.so"
    data = library.read_bytes()
    library.write_bytes(data[: int(part * len(data))])
    done = subprocess.run([sys.executable, "-c", _OPEN, library], capture_output=True, check=False)
    assert done.returncode in (0, 1)
    assert done.returncode == 0 or b"TransferError: model.so: expected at least" in done.stderr
    assert part > 0.3 or done.returncode == 1


def test_library_of_something_else(unpack: Unpack) -> None:
    folder = unpack()
    whole = (folder / "model.so").read_bytes()
    (folder / "model.so").write_bytes(whole.replace(b"ek_abi", b"no_abi"))
    with pytest.raises(IncompatibleError, match=r"expected a compiled model, found .*ek_abi"):
        LoadedModel(ReleaseFiles(folder))


def test_manifest_must_tell_of_the_same_model(unpack: Unpack, tiny: Callable[..., Bundle]) -> None:
    folder, manifest = unpack(), tiny().manifest
    assert open_model(ReleaseFiles(folder), manifest).threads == 1
    other = replace(manifest, memory=replace(manifest.memory, arena_bytes=128))
    with pytest.raises(TransferError, match="expected tensors and sizes as in the manifest"):
        open_model(ReleaseFiles(folder), other)


def test_a_failing_run_is_an_error(unpack: Unpack) -> None:
    model = LoadedModel(ReleaseFiles(unpack("TINY_FAIL")))
    with pytest.raises(DeviceError, match="ek_run: expected 0, found 3"):
        model.run({"x": X})
