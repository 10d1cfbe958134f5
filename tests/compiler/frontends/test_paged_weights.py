"""Weights of large models are kept in a file while they are compiled."""

from __future__ import annotations

import mmap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.common.content import PagedBytes, parts_of, release_pages
from edgekit.host.common.paged import LEAST_ARRAY, PagedArrays
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.ir.types import Array, DType, Tensor
from edgekit.host.compiler.lowering.context import WeightsFile
from edgekit.host.compiler.lowering.packing import fits_int2, fits_int3, fits_int4
from edgekit.host.errors import InputError
from tests.support.gguf_files import Q8_0, Stored, random_model

_WORDS, _WIDTH = 1 << 20, 64


def resident(array: Array) -> int:
    """Bytes of the file behind an array that are in this process's memory."""
    maps = Path("/proc/self/smaps").read_text().split("VmFlags")
    at = array.__array_interface__["data"][0]
    for text in maps:
        head = next(line for line in text.splitlines() if "-" in line.split(" ")[0])
        first, end = (int(part, 16) for part in head.split(" ")[0].split("-"))
        if first <= at < end:
            row = next(line for line in text.splitlines() if line.startswith("Rss:"))
            return int(row.split()[1]) << 10
    raise AssertionError("expected the array in memory")


def test_arrays_leave_memory_and_keep_their_values(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) for shape in ((300, 301), (LEAST_ARRAY // 8,), (7, 9))]
    pages = PagedArrays(tmp_path, 1 << 21)
    kept = [pages.keep(each) for each in arrays]
    assert kept[2] is arrays[2] and not list(tmp_path.iterdir())
    for before, after in zip(arrays, kept, strict=True):
        np.testing.assert_array_equal(after, before)
    assert resident(kept[0]) >= kept[0].nbytes
    release_pages()
    assert resident(kept[0]) < mmap.PAGESIZE
    np.testing.assert_array_equal(kept[1], arrays[1])


def test_counting_packed_bytes_leaves_no_weights_in_memory(tmp_path: Path) -> None:
    array = PagedArrays(tmp_path, 1 << 21).keep(np.ones((1024, 1024), np.int8))
    assert Tensor("w", array.shape, DType.I8, data=array).packed_bytes == array.nbytes // 4
    assert resident(array) < mmap.PAGESIZE


def test_asking_for_the_bits_of_values_leaves_no_weights_in_memory(tmp_path: Path) -> None:
    """Boards without dot products ask all products of a model first."""
    array = PagedArrays(tmp_path, 1 << 21).keep(np.full((1024, 1024), 3, np.int8))
    assert fits_int4(array) and fits_int3(array) and not fits_int2(array)
    assert resident(array) < mmap.PAGESIZE


@pytest.mark.parametrize("size", [0, LEAST_ARRAY, 1 << 62])
def test_arrays_without_room_stay_in_memory(size: int, tmp_path: Path) -> None:
    array = np.ones(LEAST_ARRAY, np.float32)
    assert PagedArrays(tmp_path, size).keep(array) is array


@pytest.mark.slow
def test_constants_of_a_large_model_are_in_no_memory() -> None:
    rng, constants = np.random.default_rng(0), WeightsFile()
    part = rng.integers(0, 256, 12 << 20, np.uint8)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        places = []
        for value in range(4):
            part[0] = value
            places.append(constants.add(part).offset)
        made = constants.bytes()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1 << 20 and len(made) == 4 * part.nbytes
    assert [made[at] for at in places] == [0, 1, 2, 3]
    np.testing.assert_array_equal(np.frombuffer(made, np.uint8)[places[-1] + 1 :], part[1:])


def test_bytes_without_a_file_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, kind in ((tmp_path, memoryview), (tmp_path / "file", bytes)):
        kept = PagedBytes(folder, 100)
        for part in (b"a" * 99, b"b", b"c", b"d" * 4000):
            kept.append(part)
        assert isinstance(kept.view(), kind) and len(kept) == 4101
        assert kept.view() == b"a" * 99 + b"bc" + b"d" * 4000
        kept.append(b"e")
        assert len(kept) == len(kept.view()) == 4102


@pytest.mark.parametrize("size", [0, 100, (1 << 24) + 3])
def test_pages_leave_memory_behind_their_reader(size: int, tmp_path: Path) -> None:
    kept = PagedBytes(tmp_path, 1 << 20)
    kept.append(bytes(range(256)) * (size // 256) + bytes(size % 256))
    data, read = kept.view(), 0
    for part in parts_of(data):
        assert bytes(part) == bytes(data[read : read + len(part)])
        read += len(part)
    assert read == size
    if size > 1 << 24:
        assert resident(np.frombuffer(data, np.uint8)) < mmap.PAGESIZE


@pytest.mark.slow
def test_matrices_of_a_large_file_are_in_no_memory(tmp_path: Path) -> None:
    model = random_model("llama", Q8_0)
    blocks = np.zeros((_WORDS * _WIDTH // 32, 34), np.uint8)
    blocks[:, 1], blocks[:, 2] = 0x3C, 5  # a scale of 1.0
    model.tensors["token_embd.weight"] = Stored(Q8_0, blocks.tobytes(), (_WORDS, _WIDTH))
    graph = import_model(model.write(tmp_path / "m.gguf"))
    (large,) = (
        t.data for t in graph.tensors.values() if t.data is not None and t.data.nbytes >= 64 << 20
    )
    assert large.shape == (_WORDS, _WIDTH) and resident(large) < 1 << 20
    assert np.all(large[:, 0] == 5) and not large[:, 1].any()


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = random_model("llama").write(tmp_path / "m.gguf")
    file = read_gguf(path)
    path.write_bytes(path.read_bytes()[:-5000])
    name = max(file.tensors, key=lambda each: file.tensors[each].start)
    with pytest.raises(InputError, match="the file has changed while it was read"):
        file.data(name)
