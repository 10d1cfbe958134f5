"""WHERE on a computed condition, whose result size depends on the data, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError

_KINDS = {
    "FLOAT32": np.float32, "INT8": np.int8, "UINT8": np.uint8, "INT32": np.int32,
    "INT64": np.int64, "BOOL": np.bool_,
}  # fmt: skip
_SHAPE = (3, 5)


def _where(files, kind, shape=_SHAPE):
    tensors = [files.tensor("x", shape, kind), files.tensor("y", [1, len(shape)], "INT64")]
    op = files.op("WHERE", ["x"], ["y"], "WhereOptions")
    return files.model(files.graph(tensors, [op], ["x"], ["y"]))


def _masked(files, rest=(), outs=("y",), ends=("x", "z"), more=(), called=()):
    """The rows of z [15, 4] whose x is above 0, processed by the operators `rest`."""
    whole = np.int32
    tensors = [
        files.tensor("x", _SHAPE),
        files.tensor("z", [15, 4]),
        files.tensor("zero", [], "FLOAT32", np.zeros((), np.float32)),
        files.tensor("flat", [1], "INT32", np.array([-1], whole)),
        files.tensor("above", _SHAPE, "BOOL"),
        files.tensor("mask", [15], "BOOL"),
        files.tensor("places", [1, 1], "INT64"),
        files.tensor("at", [1], "INT64"),
        files.tensor("y", [1, 4]),
        *more,
    ]
    ops = [
        files.op("GREATER", ["x", "zero"], ["above"], "GreaterOptions"),
        files.op("RESHAPE", ["above", "flat"], ["mask"], "ReshapeOptions"),
        files.op("WHERE", ["mask"], ["places"], "WhereOptions"),
        files.op("SQUEEZE", ["places"], ["at"], "SqueezeOptions", {"SqueezeDims": [1]}),
        files.op("GATHER", ["z", "at"], ["y"], "GatherOptions"),
        *rest,
    ]
    return files.model(files.graph(tensors, ops, list(ends), list(outs)), *called)


def contents(files) -> list[bytes]:
    return [*(_where(files, kind) for kind in _KINDS), _masked(files)]


def _rows_of(content, inputs):
    """The reference's outputs without the padding after their last valid row."""
    graph, _ = run_passes(graph_from_tflite(content, "case"))
    found = evaluate(graph, inputs).outputs
    (count,) = found.pop("y_length")
    assert all(np.all(v[count:] == -1) for v in found.values() if v.dtype == np.int64)
    return {name: value[:count] for name, value in found.items()}


def _same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


@pytest.mark.peers
@pytest.mark.parametrize("shape", [(7,), _SHAPE, (2, 3, 4)])
@pytest.mark.parametrize("kind", _KINDS)
def test_places_of_what_is_not_0(files, litert, kind, shape):
    x = np.random.default_rng(3).integers(0, 3, shape).astype(_KINDS[kind])
    content = _where(files, kind, shape)
    _same(_rows_of(content, {"x": x}), litert(content, {"x": x}))


@pytest.mark.peers
@pytest.mark.parametrize("high", [-1.0, 0.0, 2.0])
def test_rows_under_a_mask(files, litert, high):
    """None of them, some and all."""
    rng = np.random.default_rng(4)
    x = rng.uniform(high - 1.1, high, _SHAPE).astype(np.float32)
    inputs = {"x": x, "z": rng.normal(0, 1, (15, 4)).astype(np.float32)}
    content = _masked(files)
    _same(_rows_of(content, inputs), litert(content, inputs))


@pytest.mark.peers
def test_two_outputs_of_the_same_rows_have_one_length(files, litert):
    more = [files.tensor("w", [1, 4])]
    content = _masked(files, [files.op("RELU", ["y"], ["w"])], ["y", "w"], more=more)
    rng = np.random.default_rng(5)
    inputs = {"x": rng.normal(0, 1, _SHAPE), "z": rng.normal(0, 1, (15, 4))}
    inputs = {name: value.astype(np.float32) for name, value in inputs.items()}
    _same(_rows_of(content, inputs), litert(content, inputs))


def _constants(files, **values):
    arrays = {name: np.array(v, np.int32) for name, v in values.items()}
    return [files.tensor(n, v.shape, "INT32", v) for n, v in arrays.items()]


def _counting(files, rest, tensors, out, called=()):
    """Apply the operators `rest` to the shape of the found rows, s32 [2]: their number and 4."""
    known = _constants(files, b=[0], e=[1], some=[3, 1], axes=[0], two=[2])
    more = [files.tensor(n, *kind) for n, kind in tensors.items()]
    number = files.op("SHAPE", ["y"], ["n"], "ShapeOptions", {"OutType": 2})
    more.append(files.tensor("n", [2], "INT32"))
    then = files.graph(
        [files.tensor("z", [15, 4]), files.tensor("w", [15, 4])],
        [files.op("RELU", ["z"], ["w"])], ["z"], ["w"],
    )  # fmt: skip
    otherwise = files.graph([files.tensor("z", [15, 4])], [], ["z"], ["z"])
    ops = [number, *(files.op(*each) for each in rest)]
    return _masked(files, ops, [out], more=[*known, *more], called=[then, otherwise, *called])


_CUT = ("SLICE", ["n", "b", "e"], ["c"], "SliceOptions")
_SEVEN = ([], "INT32", np.array(7, np.int32))
_ONE = {"c": ([1], "INT32")}
_WHOLE = {"w": ([15, 4],)}
_GO = [
    ("GREATER", ["n", "some"], ["many"], "GreaterOptions"),
    ("REDUCE_ALL", ["many", "axes"], ["go"], "ReducerOptions"),
    ("IF", ["go", "z"], ["w"], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}),
]


@pytest.mark.peers
@pytest.mark.parametrize("high", [-1.0, 0.0, 0.9, 2.0])
@pytest.mark.parametrize(
    ("rest", "tensors", "out"),
    [
        ([], {}, "n"),
        ([_CUT], _ONE, "c"),
        ([_CUT, ("CAST", ["c"], ["f"], "CastOptions"), ("MUL", ["z", "f"], ["w"], "MulOptions")],
         _ONE | _WHOLE | {"f": ([1],)}, "w"),
        ([_CUT, ("MUL", ["c", "two"], ["m"], "MulOptions"),
          ("MINIMUM", ["m", "some"], ["w"], "MaximumMinimumOptions")],
         _ONE | {"m": ([1], "INT32"), "w": ([2], "INT32")}, "w"),
        (_GO, _WHOLE | {"many": ([2], "BOOL"), "go": ([], "BOOL")}, "w"),
    ],
)  # fmt: skip
def test_numbers_that_the_data_say(files, litert, rest, tensors, out, high):
    rng = np.random.default_rng(8)
    x = rng.uniform(high - 1.1, high, _SHAPE).astype(np.float32)
    inputs = {"x": x, "z": rng.normal(0, 1, (15, 4)).astype(np.float32)}
    content = _counting(files, rest, tensors, out)
    graph, _ = run_passes(graph_from_tflite(content, "case"))
    _same(evaluate(graph, inputs).outputs, litert(content, inputs))


@pytest.mark.peers
@pytest.mark.parametrize("high", [-1.0, 0.0, 2.0])
def test_as_many_of_others_as_there_are_rows(files, litert, high):
    """A constant sized by the number of rows."""
    rest = [("FILL", ["n", "value"], ["y2"], "FillOptions")]
    content = _counting(files, rest, {"y2": ([1, 4], "INT32"), "value": _SEVEN}, "y2")
    rng = np.random.default_rng(9)
    x = rng.uniform(high - 1.1, high, _SHAPE).astype(np.float32)
    inputs = {"x": x, "z": rng.normal(0, 1, (15, 4)).astype(np.float32)}
    graph, _ = run_passes(graph_from_tflite(content, "case"))
    found = evaluate(graph, inputs).outputs
    (count,) = found["y2_length"]
    np.testing.assert_array_equal(found["y2"][:count], litert(content, inputs)["y2"])


def _mean(files):
    return [files.op("MEAN", ["y", "axes"], ["w"], "ReducerOptions")]


def test_what_looks_across_rows_is_refused(files):
    more = [files.tensor("w", [4]), *_constants(files, axes=[0])]
    content = _masked(files, _mean(files), ["w"], more=more)
    with pytest.raises(InputError, match="row-wise operators"):
        graph_from_tflite(content, "m")


def test_branches_that_find_rows_are_refused(files):
    inner = files.graph(
        [files.tensor("a", _SHAPE, "BOOL"), files.tensor("b", [1, 2], "INT64")],
        [files.op("WHERE", ["a"], ["b"], "WhereOptions")], ["a"], ["b"],
    )  # fmt: skip
    fields = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1}
    op = files.op("IF", ["c", "x"], ["y"], "IfOptions", fields)
    tensors = [files.tensor("c", [], "BOOL"), files.tensor("x", _SHAPE, "BOOL")]
    tensors.append(files.tensor("y", [1, 2], "INT64"))
    content = files.model(files.graph(tensors, [op], ["c", "x"], ["y"]), inner)
    with pytest.raises(InputError, match="row-wise operators"):
        graph_from_tflite(content, "m")


def test_a_loop_by_the_number_that_changes_nothing_is_refused(files):
    loop = [files.tensor("i", [2], "INT32"), files.tensor("x", [15, 4])]
    limit = _constants(files, limit=[3, 1], axes=[0])
    condition = files.graph(
        [*loop, *limit, files.tensor("c", [2], "BOOL"), files.tensor("go", [], "BOOL")],
        [
            files.op("LESS", ["i", "limit"], ["c"], "LessOptions"),
            files.op("REDUCE_ANY", ["c", "axes"], ["go"], "ReducerOptions"),
        ],
        ["i", "x"], ["go"],
    )  # fmt: skip
    body = files.graph(loop, [], ["i", "x"], ["i", "x"])
    fields = {"CondSubgraphIndex": 3, "BodySubgraphIndex": 4}
    rest = [("WHILE", ["n", "z"], ["m", "w"], "WhileOptions", fields)]
    tensors = _WHOLE | {"m": ([2], "INT32")}
    content = _counting(files, rest, tensors, "w", [condition, body])
    with pytest.raises(InputError, match="a body that changes some of 2 values"):
        graph_from_tflite(content, "m")


@pytest.mark.peers
def test_a_subgraph_gives_its_rows_on(files, litert):
    """Its last operator determines the rows."""
    inner = files.graph(
        [files.tensor("a", _SHAPE, "BOOL"), files.tensor("b", [1, 2], "INT64")],
        [files.op("WHERE", ["a"], ["b"], "WhereOptions")], ["a"], ["b"],
    )  # fmt: skip
    tensors = [files.tensor("x", _SHAPE, "BOOL"), files.tensor("y", [1, 2], "INT64")]
    op = files.op("CALL", ["x"], ["y"], "CallOptions", {"Subgraph": 1})
    content = files.model(files.graph(tensors, [op], ["x"], ["y"]), inner)
    x = np.random.default_rng(6).random(_SHAPE) > 0.4
    plain = litert(_where(files, "BOOL"), {"x": x})
    _same(_rows_of(content, {"x": x}), plain)


def test_a_condition_of_one_number_is_refused(files):
    with pytest.raises(InputError, match="at least one axis"):
        graph_from_tflite(_where(files, "BOOL", ()), "m")
