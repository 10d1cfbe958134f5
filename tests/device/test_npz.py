"""Reading and writing .npz files, against NumPy."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from edgekit.device.runtime.agent.npz import (
    Array,
    npy_bytes,
    npz_bytes,
    parse_npz,
    read_npy,
    read_npz,
)
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError

DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
any_dtype = st.sampled_from(["?", *(order + d for order in "<>" for d in DTYPES)]).map(np.dtype)
any_array = any_dtype.flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=5, min_side=0))
)


def to_numpy(array: Array) -> NDArray[Any]:
    return np.frombuffer(array.data, BY_NAME[array.dtype].npy).reshape(array.shape)


@given(any_array, st.booleans(), st.booleans())
def test_reads_what_numpy_writes(value: NDArray[Any], fortran: bool, packed: bool) -> None:
    file = io.BytesIO()
    save = np.savez_compressed if packed else np.savez
    save(file, value=np.asfortranarray(value) if fortran and value.ndim else value)
    found = to_numpy(parse_npz(file, "test")["value"])
    assert found.shape == value.shape
    np.testing.assert_array_equal(found, value)


@given(any_array, st.sampled_from(["x", "serving_default_x:0", "a/b", "Größe", "file"]))
def test_numpy_reads_what_it_writes(value: NDArray[Any], name: str) -> None:
    with np.load(io.BytesIO(npz_bytes({name: Array.of(value)}))) as archive:
        found = archive[name]
    assert found.shape == value.shape
    assert found.dtype == value.dtype.newbyteorder("<")
    np.testing.assert_array_equal(found, value)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_the_format(version: tuple[int, int]) -> None:
    file = io.BytesIO()
    value = np.arange(6, dtype=np.int16).reshape(2, 3)
    np.lib.format.write_array(file, value, version=version)
    np.testing.assert_array_equal(to_numpy(read_npy(file.getvalue())), value)


def test_array_of_views_and_of_other_things() -> None:
    value = np.arange(12, dtype=">i4").reshape(3, 4)
    found = Array.of(value[::-1, ::2])
    assert (found.dtype, found.shape) == ("s32", (3, 2))
    np.testing.assert_array_equal(to_numpy(found), value[::-1, ::2])
    assert Array.of(found) is found
    with pytest.raises(InputError, match="expected an array, found list"):
        Array.of([1, 2])


@pytest.mark.parametrize(
    "value", [np.array("text"), np.array([{}], object), np.zeros(2, "c8"), np.zeros(1, "M8[s]"),
              np.zeros(2, [("a", "f4")])],
)  # fmt: skip
def test_other_than_numbers_is_refused(tmp_path: Path, value: NDArray[Any]) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=value)
    with pytest.raises(InputError, match=r"x\.npz: 'x\.npy': expected"):
        read_npz(path)


def test_every_truncation_is_refused_in_one_line() -> None:
    whole = npz_bytes({"x": Array("f32", (2, 2), bytes(16)), "y": Array("u8", (), b"\1")})
    for length in range(len(whole)):
        with pytest.raises(InputError) as caught:
            parse_npz(io.BytesIO(whole[:length]), "cut.npz")
        assert str(caught.value).startswith("cut.npz: ")
        assert "\n" not in str(caught.value)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_flipped_bytes_never_crash(place: int, flip: int) -> None:
    damaged = bytearray(npz_bytes({"x": Array("s16", (3,), b"abcdef")}))
    damaged[place % len(damaged)] ^= flip
    try:
        found = parse_npz(io.BytesIO(damaged), "flipped.npz")
    except InputError:
        return
    assert all(len(a.data) == to_numpy(a).nbytes for a in found.values())


def test_sizes_that_do_not_fit() -> None:
    npy = npy_bytes(Array("f32", (3,), bytes(12)))
    with pytest.raises(InputError, match=r"expected 12 bytes for shape \(3,\), found 8"):
        read_npy(npy[:-4])
    huge = npy.replace(b"(3,), }", b"(99999999999999,), }")
    with pytest.raises(InputError):
        read_npy(huge)


def test_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(Array("u8", (1 << 20,), bytes(1 << 20))))
        archive.infolist()[0].file_size = 3 << 30
    with pytest.raises(InputError, match="expected at most 2147483648 bytes, found 3221225472"):
        read_npz(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.npz: expected an \.npz file, found No such file"):
        read_npz(tmp_path / "none.npz")
    with pytest.raises(InputError, match="Is a directory"):
        read_npz(tmp_path)
