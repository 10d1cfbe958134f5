"""Products to tune: from files, from models, and the default set."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.lab.tune.products import (
    parse_shape,
    products_of_model,
    shapes_of_file,
    usual_shapes,
)
from edgekit.kb.features import GemmShape

MODELS = Path(__file__).parents[3] / "models"


def file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shapes.txt"
    path.write_text(text)
    return path


def test_a_file_holds_one_shape_per_line(tmp_path: Path):
    found = shapes_of_file(
        file(tmp_path, "# m,k,n\n500,1600,30  # the patent's\n\n1, 2,3\n1,2,3\n")
    )
    assert found == [GemmShape(m=500, k=1600, n=30), GemmShape(m=1, k=2, n=3)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,3\n1,2\n", "line 2"),
        ("1,-2,3", "line 1"),
        ("1,2,3000000000", "2147483647"),
        ("# nothing\n", "found none"),
        ("4,0,4", "sizes from 1 to"),
        ("one,two,three", "whole numbers"),
        ("1,2,3\n" * (1 << 18), "1572864 bytes, more than 1048576"),
    ],
)
def test_a_bad_file_is_one_line(text: str, words: str, tmp_path: Path):
    with pytest.raises(InputError) as error:
        shapes_of_file(file(tmp_path, text))
    assert words in str(error.value) and "shapes.txt" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path):
    with pytest.raises(InputError, match="nowhere"):
        shapes_of_file(tmp_path / "nowhere")


def test_shapes_are_m_k_n():
    assert parse_shape("500,1600,30", "--gemm") == GemmShape(m=500, k=1600, n=30)


def test_products_of_a_float_model_are_those_of_its_layers():
    products = products_of_model(MODELS / "face_detection_short_range.tflite", threads=2)
    assert {(p.dtype, p.threads, p.packed) for p in products} == {("f32", 2, "b")}
    assert sizes_of(products) >= {(64 * 64, 5 * 5 * 3, 24), (16 * 16, 88, 2), (8 * 8, 96, 6)}
    sizes = [p.shape.operations for p in products]
    assert sizes == sorted(sizes, reverse=True) and len(set(products)) == len(products)


def test_products_of_an_8_bit_model_are_of_bytes():
    products = products_of_model(MODELS / "okay_nabu.tflite", threads=1)
    assert {p.dtype for p in products} == {"s8"}


def sizes_of(products) -> set[tuple[int, int, int]]:
    return {(p.shape.m, p.shape.k, p.shape.n) for p in products}


def test_the_usual_shapes_are_many_different_ones_and_always_the_same():
    shapes = usual_shapes(100)
    assert shapes == usual_shapes(100) and len(set(shapes)) == len(shapes) > 150
    few = usual_shapes(20)
    assert few == shapes[: len(few)]
    assert max(s.operations for s in usual_shapes(100, most=2**20)) <= 2**20
    for axis in ("m", "k", "n"):
        sizes = [getattr(shape, axis) for shape in shapes]
        assert min(sizes) <= 3 and max(sizes) >= 2000
    assert {shape.scale for shape in shapes} >= {1, 2, 4, 8}


def test_weights_are_on_the_side_that_is_packed():
    a, b = ({*usual_shapes(40, side)} for side in ("a", "b"))
    assert GemmShape(1, 3000, 3000) in b - a and GemmShape(3000, 3000, 1) in a - b
    common = a & b
    assert common and {GemmShape(s.n, s.k, s.m) for s in b - common} & (a - common)
