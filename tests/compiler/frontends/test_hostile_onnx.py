"""Absurd numbers in ONNX files: each is rejected in one line, immediately."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from onnx import defs

from edgekit.host.compiler.frontends import import_model
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value
from tests.support.patience import ends_by_itself

BIG = (2**62, -(2**62), 2**63 - 1, -(2**63), 2**40)


def _refused(tmp_path, nodes, shape, constants, match="expected", opset=17):
    path = save(model(nodes, [value("x", shape)], ["y"], constants, opset), tmp_path)
    with ends_by_itself(), pytest.raises(InputError, match=match) as error:
        import_model(path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize("number", BIG)
def test_sizes_beyond_all_bounds(number, tmp_path):
    whole = np.array([number], np.int64)
    for made, shape, constants in (
        (node("Pad", ["x", "p"], ["y"]), [2], {"p": np.array([number, 0], np.int64)}),
        (node("Tile", ["x", "p"], ["y"]), [2], {"p": whole}),
        (node("Expand", ["x", "p"], ["y"]), [1], {"p": whole}),
        (node("Reshape", ["x", "p"], ["y"]), [2], {"p": whole}),
        (node("TopK", ["x", "p"], ["y", "i"]), [2], {"p": whole}),
        (node("Gather", ["x", "p"], ["y"]), [2], {"p": whole}),
        (node("GatherElements", ["x", "p"], ["y"]), [2], {"p": whole}),
        (node("GatherND", ["x", "p"], ["y"]), [2], {"p": whole}),
        (node("Conv", ["x", "w"], ["y"], pads=[number, 0]), [1, 1, 3], {}),
        (node("Conv", ["x", "w"], ["y"], strides=[number], pads=[number, 0]), [1, 1, 3], {}),
        (node("MaxPool", ["x"], ["y"], kernel_shape=[number]), [1, 1, 3], {}),
        (node("Softmax", ["x"], ["y"], axis=number), [2], {}),
        (node("DepthToSpace", ["x"], ["y"], blocksize=number), [1, 4, 2, 2], {}),
    ):
        weights = {"w": np.ones((1, 1, 1), np.float32)}
        _refused(tmp_path, [made], shape, {**weights, **constants})


@pytest.mark.parametrize("equation", ["\0", "\x1bij", "ij->\n", "ij->\x1b"])
def test_an_equation_that_a_terminal_would_interpret_is_quoted(equation, tmp_path):
    made = [node("Einsum", ["x"], ["y"], equation=equation)]
    _refused(tmp_path, made, [2, 2], {}, r"found '[ -~]*';")


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e30])
def test_scales_that_are_no_sizes(scale, tmp_path):
    constants = {"s": np.array([1, 1, scale, 1], np.float32)}
    made = [node("Resize", ["x", "", "s"], ["y"])]
    _refused(tmp_path, made, [1, 1, 2, 2], constants, "expected scales above 0")
    made = [node("Upsample", ["x", "s"], ["y"])]
    _refused(tmp_path, made, [1, 1, 2, 2], constants, "expected scales above 0", opset=9)


@pytest.mark.parametrize("step", [np.nan, 0.0, 1e-30])
def test_ranges_without_end(step, tmp_path):
    bounds = {"a": np.array(0, np.float32), "b": np.array(4, np.float32),
              "c": np.array(step, np.float32)}  # fmt: skip
    made = [node("Range", ["a", "b", "c"], ["r"]), node("Add", ["x", "r"], ["y"])]
    _refused(tmp_path, made, [1], bounds, "a range that ends")


def test_a_shape_of_two_to_the_forty(tmp_path):
    path = save(model([node("Relu", ["x"], ["y"])], [value("x", [2**20, 2**20])], ["y"]), tmp_path)
    with pytest.raises(InputError, match="2147483647 elements"):
        import_model(path)
    wide, tall = np.ones((1, 2**20), np.float32), np.ones((2**20, 1), np.float32)
    made = [node("Add", ["a", "b"], ["c"]), node("Add", ["x", "c"], ["y"])]
    _refused(tmp_path, made, [1], {"a": wide, "b": tall}, "2147483647 elements|MiB")


@pytest.mark.parametrize(
    ("scale", "zero", "match"),
    [
        (np.float32(1), np.float32(1e30), "integer zero points"),
        (np.float32(1), np.float32(0.5), "integer zero points"),
        (np.float32(1), np.float32(np.nan), "integer zero points"),
        (np.float64(1e300), np.uint8(3), "positive finite scales"),
    ],
)
def test_quantizations_beyond_all_bounds(scale, zero, match, tmp_path):
    made = [node("DequantizeLinear", ["c", "s", "z"], ["d"]), node("Add", ["d", "x"], ["y"])]
    constants = {"c": np.ones(2, np.uint8), "s": np.array(scale), "z": np.array(zero)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _refused(tmp_path, made, [2], constants, match)


def test_more_operators_than_any_model_has(tmp_path):
    chain = [node("Relu", ["x" if i == 0 else f"t{i}"], [f"t{i + 1}"]) for i in range(16_385)]
    path = save(model(chain, [value("x", [1])], ["t16385"]), tmp_path)
    with pytest.raises(InputError, match="at most 16,384 operators, found 16,385"):
        import_model(path)


@pytest.mark.parametrize("kind", ["Sum", "Split"])
def test_more_operands_than_any_operator_has(kind, tmp_path):
    many = 4097
    made, shape = node("Sum", ["x"] * many, ["y"]), [1]
    if kind == "Split":
        made, shape = node("Split", ["x"], ["y", *(f"y{i}" for i in range(1, many))]), [many]
    _refused(tmp_path, [made], shape, {}, "4,096 inputs and outputs of an operator, found")


@pytest.mark.parametrize("sizes", [None, 1])
def test_more_parts_than_any_model_has(sizes, tmp_path):
    made = [node("SplitToSequence", ["x", *(["n"] if sizes else [])], ["s"], axis=0),
            node("ConcatFromSequence", ["s"], ["y"], axis=0)]  # fmt: skip
    held = {"n": np.array(sizes)} if sizes else {}
    _refused(tmp_path, made, [1 << 22, 2], held, "4,096 parts of a tensor, found 4,194,304")


_SIDE = 1 << 14  # the square of it has 256 Mi elements
_HUGE = np.array([1 << 27])
_TWO = np.array([1, 1])


@pytest.mark.parametrize(
    ("made", "shape", "constants"),
    [
        (node("Trilu", ["x"], ["y"]), [_SIDE, _SIDE], {}),
        (node("EyeLike", ["x"], ["y"]), [_SIDE, _SIDE], {}),
        (node("CumSum", ["x", "axis"], ["y"]), [1 << 13], {"axis": np.array(0)}),
        (node("Dropout", ["x"], ["z", "y"]), [_SIDE, _SIDE], {}),
        (node("MaxPool", ["x"], ["z", "y"], kernel_shape=[2]), [1, 1, 1 << 27], {}),
        (node("ReverseSequence", ["x", "n"], ["y"]), [1 << 25, 2], {"n": _TWO}),
        (node("Hardmax", ["x"], ["y"]), [1 << 27], {}),
        (node("Range", ["a", "n", "b"], ["y"]), [1], {"a": 0, "n": 1 << 27, "b": 1}),
        (node("ConstantOfShape", ["n"], ["y"]), [1], {"n": _HUGE}),
        (node("AffineGrid", ["t", "n"], ["y"]), [1],
         {"t": np.ones((1, 2, 3), np.float32), "n": np.array([1, 1, 1 << 27, 1])}),
        (node("MelWeightMatrix", ["b", "n", "r", "low", "high"], ["y"]), [1],
         {"b": 1 << 15, "n": 1 << 20, "r": 16000, "low": np.float32(0), "high": np.float32(8000)}),
        (node("Pad", ["x", "n"], ["y"], mode="edge"), [2], {"n": np.array([0, 1 << 27])}),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)  # fmt: skip
def test_constants_are_bounded_before_they_are_allocated(made, shape, constants, tmp_path):
    held = {name: np.asarray(number) for name, number in constants.items()}
    tracemalloc.start()
    try:
        _refused(tmp_path, [made], shape, held, "constants of at most 128 MiB")
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_constants_that_a_small_file_computes_are_bounded_in_total(tmp_path):
    """Each is small enough to be folded, all of them take 1 GiB; the rest is left to the board."""
    shape = np.array([4096, 1024], np.int64)
    made = [node("Expand", [f"c{i}", "s"], [f"e{i}"]) for i in range(64)]
    made += [node("Add", ["x" if i == 0 else f"a{i}", f"e{i}"], [f"a{i + 1}"]) for i in range(64)]
    constants = {f"c{i}": np.array([i], np.float32) for i in range(64)} | {"s": shape}
    graph = import_model(save(model(made, [value("x", [1])], ["a64"], constants), tmp_path))
    large = {t.data.nbytes for t in graph.tensors.values() if t.data is not None}
    held = sum(t.data.nbytes for t in graph.tensors.values() if t.data is not None)
    assert held <= 160 << 20 and max(large) == 16 << 20


def test_computed_constants_without_readers_are_released(tmp_path):
    """A chain of 30 transposes of 1 MiB, of which only the last result is read."""
    made = [node("Transpose", [f"t{i}"], [f"t{i + 1}"], perm=[1, 0]) for i in range(30)]
    made.append(node("Add", ["x", "t30"], ["y"]))
    constants = {"t0": np.arange(1 << 18, dtype=np.float32).reshape(256, 1024)}
    path = save(model(made, [value("x", [256, 1024])], ["y"], constants), tmp_path)
    tracemalloc.start()
    try:
        graph = import_model(path)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    (held,) = (t.data for t in graph.tensors.values() if t.data is not None)
    assert np.array_equal(held, constants["t0"])


def test_what_importers_make_of_a_number_counts_as_computed(tmp_path):
    """The positions that OneHot compares with take 128 MiB, what is made of them far more."""
    constants = {"at": np.array([0, 1]), "depth": np.array(1 << 24), "v": np.float32([0, 1])}
    made = [node("OneHot", ["at", "depth", "v"], ["h"]), node("Cast", ["h"], ["y"], to=11)]
    _refused(tmp_path, made, [1], constants, r"constants of at most 128 MiB .* found \[16777216\]")


def test_operators_without_any_operand(tmp_path):
    for kind in sorted({schema.name for schema in defs.get_all_schemas() if schema.min_input}):
        with pytest.raises(InputError, match="operator 0"):
            import_model(save(model([node(kind, [], ["y"])], [value("x", [1])], ["y"]), tmp_path))
