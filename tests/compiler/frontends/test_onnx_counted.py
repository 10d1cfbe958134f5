"""Shapes with a size that data say, and joins of rows that data count, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.counted_rows import PAIR, N, agrees, both, counts, saved
from tests.support.onnx_models import node, value

# The number of elements of x that are not 0, as one element of a shape.
_COUNT = [
    node("Cast", ["x"], ["there"], to=9),
    node("Cast", ["there"], ["numbers"], to=7),
    node("ReduceSum", ["numbers"], ["count"], keepdims=1),
    node("Concat", ["two", "count", "three"], ["shape"], axis=0),
]
_SIZES = {"two": np.array([2]), "three": np.array([3]), "minus": np.array([-1])}


def test_a_constant_of_a_computed_shape(tmp_path):
    filler = {"value": numpy_helper.from_array(np.float32([1.5]))}
    path = saved(tmp_path, [*_COUNT, node("ConstantOfShape", ["shape"], ["y"], **filler)], _SIZES)
    for x in counts(1, 6, N):
        assert not np.any(agrees(path, x)["y"][:, int(np.sum(x["x"] > 0)) :])


@pytest.mark.parametrize("chosen", [False, True])
def test_expansion_by_a_computed_number(chosen, tmp_path):
    """PyTorch replaces sizes of -1 before it expands."""
    replaced = [
        node("Equal", ["shape", "minus"], ["kept"]),
        node("Where", ["kept", "ones", "shape"], ["wanted"]),
    ]
    nodes = [*_COUNT, *(replaced if chosen else []), node("Neg", ["row"], ["negative"])]
    nodes.append(node("Expand", ["negative", "wanted" if chosen else "shape"], ["y"]))
    row = np.float32([[[1, 2, 3]], [[4, 5, 6]]])
    path = saved(tmp_path, nodes, {**_SIZES, "row": row, "ones": np.array([1, 1, 1])})
    for x in counts(1, 6, N):
        agrees(path, x)


def test_a_size_without_a_bound_says_what_it_lacks_room_for(tmp_path):
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[0]),
        node("Cast", ["most"], ["count"], to=7),
        _COUNT[-1],
        node("ConstantOfShape", ["shape"], ["zeros"]),
        node("Add", ["zeros", "one"], ["y"]),
    ]
    path = saved(tmp_path, nodes, {**_SIZES, "one": np.float32(1)})
    for most in (0, 3, 5, 9):
        x = {"x": np.full(N, most, np.float32)}
        found = evaluate(import_model(path, max_rows=5), x).outputs
        assert found["y"].shape == (2, 5, 3) and found["y_length"] == most
    with pytest.raises(InputError, match=r"ConstantOfShape.*--max-rows N sets the largest"):
        import_model(path)


def test_two_computed_sizes_are_refused(tmp_path):
    nodes = [*_COUNT[:3], node("Concat", ["count", "two", "count"], ["shape"], axis=0)]
    nodes.append(node("ConstantOfShape", ["shape"], ["y"]))
    with pytest.raises(InputError, match="one computed size, found several"):
        import_model(saved(tmp_path, nodes, _SIZES))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("parts", ["ab", "ba", "ac", "ca", "aca"])
def test_rows_of_several_counts_are_joined(parts, axis, tmp_path):
    """As boxes of several levels of a detector are."""
    nodes = []
    for name, source in (("a", "x"), ("b", "z")):
        nodes += [
            node("NonZero", [source], [f"places_{name}"]),
            node("Reshape", [f"places_{name}", "flat"], [f"at_{name}"]),
            node("Gather", ["table", f"at_{name}"], [name], axis=axis),
        ]
    nodes += [node("Neg", ["constant"], ["c"]), node("Concat", [*parts], ["joined"], axis=axis)]
    nodes += [
        node("ReduceSum", ["joined", "along"], ["sum"]),
        node("Sub", ["joined", "sum"], ["y"]),
    ]
    table = np.arange(N * 3, dtype=np.float32).reshape(N, 3)
    constants = {"flat": np.array([-1]), "along": np.array([axis]), "constant": table[:2] + 50}
    constants["table"] = table if axis == 0 else table.T.copy()
    constants["constant"] = constants["constant"] if axis == 0 else constants["constant"].T.copy()
    inputs = [value("x", [N]), value("z", [N])]
    path = saved(tmp_path, nodes, constants, inputs)
    for x, z in zip(counts(0, 6, N), counts(5, 0, N), strict=True):
        agrees(path, {"x": x["x"], "z": z["x"]})


def test_ranges_of_two_types_to_one_limit_have_the_same_rows(tmp_path):
    nodes = [
        node("ReduceMax", ["x"], ["most"], axes=[0], keepdims=0),
        node("Cast", ["most"], ["count"], to=7),
        node("Range", ["none", "count", "step"], ["integers"]),
        node("Cast", ["count"], ["limit"], to=1),
        node("Range", ["zero", "limit", "one"], ["numbers"]),
        node("Cast", ["integers"], ["floats"], to=1),
        node("Mul", ["floats", "numbers"], ["y"]),
    ]
    constants = {"none": np.array(0), "step": np.array(1), "zero": np.float32(0)}
    path = saved(tmp_path, nodes, {**constants, "one": np.float32(1)})
    for most in (1, 3.7, 8):
        agrees(path, {"x": np.full(N, most, np.float32)}, max_rows=8)


def test_rows_expanded_to_their_own_number_stay(tmp_path):
    """As PyTorch's newer exporter does with what it puts back by a mask."""
    nodes = [
        node("Greater", ["x", "limit"], ["mask"]),
        node("NonZero", ["mask"], ["places"]),
        node("Transpose", ["places"], ["at"]),
        node("GatherND", ["x", "at"], ["large"]),
        node("Reshape", ["mask", "flat"], ["line"]),
        node("Cast", ["line"], ["numbers"], to=7),
        node("ReduceSum", ["numbers"], ["count"]),
        node("Expand", ["large", "count"], ["same"]),
        node("Neg", ["same"], ["negative"]),
        node("ScatterND", ["x", "at", "negative"], ["y"]),
    ]
    path = saved(tmp_path, nodes, {"limit": np.float32(0.9), "flat": np.array([-1])})
    for x in counts(0, 6, N):
        agrees(path, x)


@pytest.mark.parametrize("axis", [1, -1])
def test_elements_of_rows_that_are_written_by_index(axis, tmp_path):
    nodes = [*PAIR[:3], node("Slice", ["pairs", "first", "ends", "ends"], ["column"])]
    nodes += [node("Cast", ["column"], ["zeros"], to=7), node("Neg", ["column"], ["new"])]
    nodes.append(node("ScatterElements", ["pairs", "zeros", "new"], ["y"], axis=axis))
    path = saved(tmp_path, nodes, {**both(), "ends": np.array([1])})
    for x in counts(1, 6, N):
        agrees(path, x)


@pytest.mark.parametrize("axis", [0, 1])
def test_selected_rows_are_selected_from_again(axis, tmp_path):
    """As torchvision's detectors drop small boxes, and then those with low scores. Filler is never
    among them, though the last condition holds for it."""
    nodes = [
        node("Greater", ["x", "low"], ["mask"]),
        node("NonZero", ["mask"], ["places"]),
        node("Squeeze", ["places", "first"], ["at"]),
        node("Gather", ["x", "at"], ["kept"]),
        node("Reshape", ["kept", "column"], ["shaped"]),
        node("Less", ["shaped", "high"], ["both"]),
        node("NonZero", ["both"], ["again"]),
        node("Gather", ["again", "axis"], ["rows"]),
        node("Gather", ["kept", "rows"], ["y"]),
    ]
    column = np.array([-1, 1] if axis == 0 else [1, -1])
    limits = {"low": np.float32(0.3), "high": np.float32(0.8)}
    more = {"first": np.array([0]), "axis": np.array(axis), "column": column}
    path = saved(tmp_path, nodes, {**limits, **more})
    for x in counts(0, 6, N):
        agrees(path, x)


def test_the_best_of_several_grids_stay_together(tmp_path):
    """torchvision joins the best of each grid, at most as many as a constant, with their numbers:
    joined rows have one length, so that they can be added."""
    nodes, values, numbers = [], [], []
    for name, low in (("a", "low"), ("b", "high")):
        nodes += [
            node("Greater", ["x", low], [f"mask_{name}"]),
            node("NonZero", [f"mask_{name}"], [f"places_{name}"]),
            node("Squeeze", [f"places_{name}", "first"], [f"at_{name}"]),
            node("Gather", ["x", f"at_{name}"], [f"kept_{name}"]),
            node("Shape", [f"at_{name}"], [f"count_{name}"]),
            node("Concat", [f"count_{name}", "most"], [f"both_{name}"], axis=0),
            node("ReduceMin", [f"both_{name}"], [f"k_{name}"], keepdims=1),
            node("TopK", [f"kept_{name}", f"k_{name}"], [f"best_{name}", f"which_{name}"]),
            node("Cast", [f"which_{name}"], [f"number_{name}"], to=1),
        ]
        values.append(f"best_{name}")
        numbers.append(f"number_{name}")
    nodes += [
        node("Concat", values, ["values"], axis=0),
        node("Concat", numbers, ["numbers"], axis=0),
        node("Add", ["values", "numbers"], ["y"]),
    ]
    limits = {"low": np.float32(0), "high": np.float32(0.6)}
    path = saved(tmp_path, nodes, {**limits, "first": np.array([0]), "most": np.array([3])})
    assert import_model(path).tensors["y"].shape == (6,)
    for x in counts(0, 6, N):
        agrees(path, x)


def test_elements_that_are_written_along_the_rows(tmp_path):
    """All to one row, which counts from the end of those that are valid."""
    nodes = [*PAIR[:3], node("Mul", ["pairs", "none"], ["zeros"])]
    nodes.append(node("Sub", ["zeros", "one"], ["back"]))
    nodes.append(node("Cast", ["back"], ["last"], to=7))
    nodes.append(node("ScatterElements", ["pairs", "last", "pairs"], ["y"], reduction="add"))
    constants = {**both(), "none": np.float32(0), "one": np.float32(1)}
    path = saved(tmp_path, nodes, constants)
    for x in counts(1, 4, N):
        agrees(path, x)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("asked", ["all", "some", "few"])
def test_sorted_rows(asked, largest, tmp_path):
    """Detectors exported by MMDeploy sort the boxes that are left."""
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("Reshape", ["places", "minus"], ["kept"]),
        node("Gather", ["values", "kept"], ["rows"], axis=0),
        node("Shape", ["rows"], ["all"]),
        node("Min", ["all", "few"], ["some"]),
        node("TopK", ["rows", asked], ["sorted", "order"], axis=0, largest=largest),
        node("Gather", ["kept", "order"], ["back"], axis=0),
        node("Cast", ["back"], ["number"], to=1),
        node("Sub", ["sorted", "number"], ["y"]),
    ]
    values = np.random.default_rng(1).normal(size=N).astype(np.float32)
    few = {"values": values, "minus": np.array([-1]), "few": np.array([3])}
    path = saved(tmp_path, nodes, few)
    for x in counts(*(() if asked == "few" else (1, 2)), 3, 6, N):
        agrees(path, x)
