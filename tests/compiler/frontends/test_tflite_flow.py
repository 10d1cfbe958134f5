"""Subgraphs in TensorFlow Lite files: branches, loops, calls, and malicious uses."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError


def twice(files, name, code="ADD"):
    """A subgraph: x + x, or x · x."""
    tensors = [files.tensor("x", [3]), files.tensor("y", [3])]
    op = files.op(code, ["x", "x"], ["y"], f"{code.title()}Options")
    return files.graph(tensors, [op], ["x"], ["y"])


def branching(files, condition):
    tensors = [condition, files.tensor("x", [3]), files.tensor("y", [3])]
    fields = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    op = files.op("IF", ["c", "x"], ["y"], "IfOptions", fields)
    ends = ["x"] if condition.data is not None else ["c", "x"]
    main = files.graph(tensors, [op], ends, ["y"])
    return files.model(main, twice(files, "then"), twice(files, "else", "MUL"))


@pytest.mark.parametrize(("taken", "expected"), [(True, [2, 4, 6]), (False, [1, 4, 9])])
def test_a_known_branch_is_taken_alone(files, taken, expected):
    content = branching(files, files.tensor("c", [], "BOOL", np.array(taken)))
    graph = graph_from_tflite(content, "m")
    assert [n.op.kind for n in graph.nodes] == ["add" if taken else "mul"]
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(evaluate(graph, {"x": x}).outputs["y"], expected)


@pytest.mark.peers
@pytest.mark.parametrize("taken", [True, False])
def test_a_computed_branch_is_selected(files, litert, taken):
    content = branching(files, files.tensor("c", [], "BOOL"))
    inputs = {"c": np.array(taken), "x": np.float32([1, 2, 3])}
    found = evaluate(graph_from_tflite(content, "m"), inputs).outputs["y"]
    np.testing.assert_array_equal(found, litert(content, inputs)["y"])


def counting(files, limit, step=1):
    """while i < limit: i, x = i + step, x + x"""
    scalar = np.int32
    loop = [files.tensor("i", [], "INT32"), files.tensor("x", [3])]
    limit_tensor = files.tensor("l", [], "INT32", np.array(limit, scalar))
    condition = files.graph(
        [*loop, limit_tensor, files.tensor("c", [], "BOOL")],
        [files.op("LESS", ["i", "l"], ["c"], "LessOptions")],
        ["i", "x"],
        ["c"],
    )
    body = files.graph(
        [*loop, files.tensor("s", [], "INT32", np.array(step, scalar)),
         files.tensor("j", [], "INT32"), files.tensor("y", [3])],
        [files.op("ADD", ["i", "s"], ["j"], "AddOptions"),
         files.op("ADD", ["x", "x"], ["y"], "AddOptions")],
        ["i", "x"],
        ["j", "y"],
    )  # fmt: skip
    main = files.graph(
        [files.tensor("i", [], "INT32", np.array(0, scalar)), files.tensor("x", [3]),
         files.tensor("n", [], "INT32"), files.tensor("y", [3])],
        [files.op("WHILE", ["i", "x"], ["n", "y"], "WhileOptions",
                  {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})],
        ["x"],
        ["y"],
    )  # fmt: skip
    return files.model(main, condition, body)


@pytest.mark.peers
def test_a_counted_loop_is_unrolled(files, litert):
    content = counting(files, 3)
    graph = graph_from_tflite(content, "m")
    kinds = [n.op.kind for n in run_passes(graph)[0].nodes]
    assert [k for k in kinds if k != "reshape"] == ["add"] * 3  # the output is renamed
    inputs = {"x": np.float32([1, 2, 3])}
    found = evaluate(graph, inputs).outputs["y"]
    np.testing.assert_array_equal(found, litert(content, inputs)["y"])


def early_end(files, counted=True):
    """x += i while i < 5 (if counted) and the sum of x is below 8."""
    loop = [files.tensor("i", [], "INT32"), files.tensor("x", [3])]
    condition = files.graph(
        [*loop, files.tensor("n", [], "INT32", np.array(5, np.int32)),
         files.tensor("axes", [1], "INT32", np.zeros(1, np.int32)),
         files.tensor("most", [], "FLOAT32", np.array(8, np.float32)),
         files.tensor("sum", []), files.tensor("few", [], "BOOL"),
         files.tensor("small", [], "BOOL"), files.tensor("go", [], "BOOL")],
        [files.op("LESS", ["i", "n"], ["few"], "LessOptions"),
         files.op("SUM", ["x", "axes"], ["sum"], "ReducerOptions"),
         files.op("LESS", ["sum", "most"], ["small"], "LessOptions"),
         files.op("LOGICAL_AND", ["few", "small"], ["go"], "LogicalAndOptions")],
        ["i", "x"],
        ["go" if counted else "small"],
    )  # fmt: skip
    body = files.graph(
        [*loop, files.tensor("s", [], "INT32", np.array(1, np.int32)),
         files.tensor("j", [], "INT32"), files.tensor("f", []), files.tensor("y", [3])],
        [files.op("ADD", ["i", "s"], ["j"], "AddOptions"),
         files.op("CAST", ["i"], ["f"]),
         files.op("ADD", ["x", "f"], ["y"], "AddOptions")],
        ["i", "x"],
        ["j", "y"],
    )  # fmt: skip
    main = files.graph(
        [files.tensor("i", [], "INT32", np.array(0, np.int32)), files.tensor("x", [3]),
         files.tensor("n", [], "INT32"), files.tensor("y", [3])],
        [files.op("WHILE", ["i", "x"], ["n", "y"], "WhileOptions",
                  {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})],
        ["x"],
        ["n", "y"],
    )  # fmt: skip
    return files.model(main, condition, body)


@pytest.mark.peers
@pytest.mark.parametrize("start", [-9, 0, 1, 9])
def test_a_counted_loop_may_end_early(files, litert, start):
    content = early_end(files)
    inputs = {"x": np.full(3, start, np.float32)}
    found = evaluate(graph_from_tflite(content, "m"), inputs).outputs
    for name, want in litert(content, inputs).items():
        np.testing.assert_array_equal(found[name], want)


@pytest.mark.peers
@pytest.mark.parametrize("start", [-99, 0, 9])
def test_data_alone_end_a_loop(files, litert, start):
    content = early_end(files, counted=False)
    graph = graph_from_tflite(content, "m")
    assert graph.notes == ("WHILE 0: at most 65536 iterations",)
    inputs = {"x": np.full(3, start, np.float32)}
    for each in (graph, run_passes(graph)[0]):
        found = evaluate(each, inputs).outputs
        for name, want in litert(content, inputs).items():
            np.testing.assert_array_equal(found[name], want)


def test_a_loop_without_end_is_refused(files):
    with pytest.raises(InputError, match="at most 1024 iterations"):
        graph_from_tflite(counting(files, 3, step=0), "m")


def test_a_subgraph_that_calls_itself_is_refused(files):
    tensors = [files.tensor("x", [3]), files.tensor("y", [3])]
    call = [files.op("CALL", ["x"], ["y"], "CallOptions", {"Subgraph": 1})]
    graph = files.graph(tensors, call, ["x"], ["y"])
    with pytest.raises(InputError, match="a recursion"):
        graph_from_tflite(files.model(graph, graph), "m")


@pytest.mark.parametrize("number", [0, 2, 99])
def test_a_missing_subgraph_is_refused(files, number):
    tensors = [files.tensor("x", [3]), files.tensor("y", [3])]
    call = [files.op("CALL", ["x"], ["y"], "CallOptions", {"Subgraph": number})]
    content = files.model(files.graph(tensors, call, ["x"], ["y"]), twice(files, "f"))
    with pytest.raises(InputError, match="expected a subgraph from 1 to 1"):
        graph_from_tflite(content, "m")


@pytest.mark.peers
@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("strided", [False, True])
def test_a_row_of_a_list_is_replaced(files, litert, row, strided):
    """As in the loops of recurrent layers, where no rows precede the first or follow the last."""

    def index(name, *values):
        return files.tensor(name, [2], "INT32", np.array(values, np.int32))

    def taken(begin, size, y):
        if not strided:
            return files.op("SLICE", ["x", begin, size], [y], "SliceOptions")
        return files.op("STRIDED_SLICE", ["x", begin, size, "one"], [y], "StridedSliceOptions")

    behind = (3, 4) if strided else (2 - row, 4)
    tensors = [
        *(files.tensor("x", [3, 4]), files.tensor("r", [1, 4]), files.tensor("y", [3, 4])),
        *(index("one", 1, 1), index("start", 0, 0), index("size", row, 4)),
        *(index("next", row + 1, 0), index("rest", *behind)),
        *(files.tensor("before", [row, 4]), files.tensor("after", [2 - row, 4])),
    ]
    operators = [
        taken("start", "size", "before"),
        taken("next", "rest", "after"),
        files.op("CONCATENATION", ["before", "r", "after"], ["y"], "ConcatenationOptions"),
    ]
    content = files.model(files.graph(tensors, operators, ["x", "r"], ["y"]))
    inputs = {"x": np.arange(12, dtype=np.float32).reshape(3, 4), "r": -np.ones((1, 4), "f4")}
    found = evaluate(graph_from_tflite(content, "m"), inputs).outputs["y"]
    np.testing.assert_array_equal(found, litert(content, inputs)["y"])
