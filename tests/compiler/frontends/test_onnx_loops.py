"""Loops and scans as a single operator, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.kernel_runs import build, run_here

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.codegen.section import section_code  # noqa: E402
from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir import ops  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.lowering.lower import lower  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402
from edgekit.kb.targets.board import load_board  # noqa: E402
from tests.support.onnx_models import node, save, value  # noqa: E402

_RNG = np.random.default_rng(4)
_X = _RNG.standard_normal((3, 4)).astype(np.float32)
_W = (_RNG.standard_normal((4, 4)) / 3).astype(np.float32)
_F, _I, _B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _body(nodes, inputs, outputs):
    """`inputs`, `outputs`: types by name; f32 has any shape, other types are scalars."""
    ends = [
        [
            helper.make_tensor_value_info(n, kind, None if kind == _F or n in "kx" else [])
            for n, kind in side
        ]
        for side in (inputs, outputs)
    ]
    return helper.make_graph(list(nodes), "body", *ends)


def _model(nodes, inputs, outputs, constants, opset=17):
    """`outputs`: types by name."""
    made = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    ends = [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs]
    graph = helper.make_graph(nodes, "g", inputs, ends, made)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _agrees(proto, inputs, folder):
    """Run through passes and kernels; the valid part must match ONNX Runtime. Returns the graph."""
    path = save(proto, folder)
    session = onnxruntime.InferenceSession(path)
    wanted = dict(
        zip((o.name for o in session.get_outputs()), session.run(None, inputs), strict=True)
    )
    graph, _ = run_passes(import_model(path))
    for found in (
        evaluate(graph, inputs).outputs,
        run_here(build(graph, load_board("local"), folder / "built"), inputs),
    ):
        for name, want in wanted.items():
            got = found[name]
            if f"{name}_length" in found:
                assert found[f"{name}_length"].tolist() == [len(want)]
                assert not np.any(got[len(want) :])
                got = got[: len(want)]
                if not len(want):  # ONNX Runtime does not know the shape of empty results
                    continue
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert [n for n in graph.nodes if isinstance(n.op, ops.Loop)]
    return graph


def _scan(steps, back=0):
    """state' = tanh(state · w + row); output per step: state' + row."""
    body = _body(
        [
            node("MatMul", ["s", "w"], ["p"]), node("Add", ["p", "row"], ["q"]),
            node("Tanh", ["q"], ["t"]), node("Add", ["t", "row"], ["out"]),
        ],
        [("s", _F), ("row", _F)],
        [("t", _F), ("out", _F)],
    )  # fmt: skip
    scan = node(
        "Scan", ["x", "rows"], ["end", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[back], scan_output_axes=[1], scan_output_directions=[back],
    )  # fmt: skip
    inputs = [value("x", [3, 4]), value("rows", [3, steps, 4])]
    return _model([scan], inputs, [("end", _F), ("y", _F)], {"w": _W})


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_of_many_steps(back, tmp_path):
    rows = _RNG.standard_normal((3, 2000, 4)).astype(np.float32)
    graph = _agrees(_scan(2000, back), {"x": _X, "rows": rows}, tmp_path)
    assert len(graph.nodes) < 10


def test_code_does_not_grow_with_steps(tmp_path):
    sizes = []
    for steps in (40, 9000):
        graph, _ = run_passes(import_model(save(_scan(steps), tmp_path)))
        plan = lower(graph, load_board("local"))
        sizes.append(sum(len(section_code(plan, s).text) for s in plan.sections))
    assert abs(sizes[1] - sizes[0]) < 100


def _loop(count, until=None, go=True):
    """h' = tanh(h · w + x); k' = k + 2; output per step: row k of a table, h'."""
    nodes = [
        node("MatMul", ["h", "w"], ["p"]), node("Add", ["p", "x"], ["q"]),
        node("Tanh", ["q"], ["new"]), node("Add", ["k", "two"], ["next"]),
        node("Slice", ["table", "k", "next", "zero"], ["part"]),
        node("ReduceMax", ["new"], ["most"], keepdims=0),
    ]  # fmt: skip
    if until is None:
        nodes.append(node("Identity", ["going"], ["on"]))
    else:
        nodes.append(node("Less", ["most", "until"], ["on"]))
    body = _body(
        nodes,
        [("i", _I), ("going", _B), ("h", _F), ("k", _I)],
        [("on", _B), ("new", _F), ("next", _I), ("part", _F), ("most", _F)],
    )
    table = _RNG.standard_normal((2 * count, 2)).astype(np.float32)
    constants = {
        "count": np.array(count), "w": _W, "two": [2], "zero": [0], "start": [0], "table": table,
        "until": np.float32(0 if until is None else until),
    }  # fmt: skip
    outs = ["end", "k", "parts", "most"]
    loop = node("Loop", ["count", "go", "x", "start"], outs, body=body)
    if go is not None:
        constants["go"] = np.array(go)
        first = []
    else:
        first = [node("ReduceSum", ["x"], ["s"], keepdims=0), node("Less", ["s", "zf"], ["go"])]
        constants["zf"] = np.float32(0)
    kinds = [("end", _F), ("k", _I), ("parts", _F), ("most", _F)]
    return _model([*first, loop], [value("x", [3, 4])], kinds, constants)


def test_a_loop_of_many_steps_with_a_counter(tmp_path):
    _agrees(_loop(700), {"x": _X}, tmp_path)


@pytest.mark.parametrize("until", [0.9, 0.99999, 5.0])
def test_a_loop_that_ends_by_what_it_computes(until, tmp_path):
    _agrees(_loop(60, until), {"x": np.abs(_X) / 4}, tmp_path)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_loop_may_do_no_step(sign, tmp_path):
    _agrees(_loop(30, go=None), {"x": sign * np.abs(_X)}, tmp_path)


def _as_often(until=None):
    """h' = h / 2 + x, as often as the input n says, or until the largest element is `until`."""
    nodes = [
        node("Mul", ["h", "half"], ["less"]), node("Add", ["less", "x"], ["new"]),
        node("ReduceMax", ["new"], ["most"], keepdims=0),
        node("Less", ["most", "until"], ["on"]),
    ]  # fmt: skip
    body = _body(nodes, [("i", _I), ("going", _B), ("h", _F)], [("on", _B), ("new", _F)])
    constants = {"half": np.float32(0.5), "until": np.float32(np.inf if until is None else until)}
    loop = node("Loop", ["n", "", "x"], ["end"], body=body)
    return _model([loop], [value("x", [3, 4]), value("n", [], "s64")], [("end", _F)], constants)


@pytest.mark.parametrize(("count", "until"), [(0, None), (1, None), (9, None), (9, 1.5), (-3, 0.1)])
def test_an_input_says_how_often_a_loop_runs(count, until, tmp_path):
    inputs = {"x": np.abs(_X), "n": np.array(count)}
    _agrees(_as_often(until), inputs, tmp_path)


def test_a_few_steps_that_data_count(tmp_path):
    """As many as x has elements above 0: at most 12, which are unrolled."""
    proto = _as_often()
    proto.graph.node.insert(0, node("Greater", ["x", "half"], ["high"]))
    proto.graph.node.insert(1, node("Cast", ["high"], ["ones"], to=7))
    proto.graph.node.insert(2, node("ReduceSum", ["ones"], ["n"], keepdims=0))
    del proto.graph.input[1]
    path = save(proto, tmp_path)
    for x in (_X, _X * 0):
        (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
        found = evaluate(import_model(path), {"x": x}).outputs["end"]
        np.testing.assert_allclose(found, want, rtol=1e-5)


def test_rows_of_a_loop_that_data_count_need_a_bound(tmp_path):
    proto = _as_often()
    (loop,) = proto.graph.node
    loop.output.append("rows")
    loop.attribute[0].g.output.append(helper.make_tensor_value_info("most", _F, None))
    proto.graph.output.append(helper.make_tensor_value_info("rows", _F, None))
    path = save(proto, tmp_path)
    with pytest.raises(InputError, match="--max-rows N sets the largest"):
        import_model(path)
    inputs = {"x": np.abs(_X), "n": np.array(5)}
    wanted = onnxruntime.InferenceSession(path).run(None, inputs)
    found = evaluate(import_model(path, max_rows=20), inputs).outputs
    assert found["rows"].shape == (20,) and found["rows_length"].tolist() == [5]
    np.testing.assert_allclose(found["rows"][:5], wanted[1], rtol=1e-5)
    np.testing.assert_allclose(found["end"], wanted[0], rtol=1e-5)


def test_states_that_change_places_and_reset(tmp_path):
    body = _body(
        [node("Identity", ["going"], ["on"]), node("Add", ["a", "one"], ["c"]),
         node("Identity", ["x"], ["e"])],
        [("i", _I), ("going", _B), ("a", _F), ("b", _F), ("d", _F)],
        [("on", _B), ("b", _F), ("c", _F), ("e", _F)],
    )  # fmt: skip
    loop = node("Loop", ["count", "go", "x", "y", "y"], ["p", "q", "r"], body=body)
    constants = {"count": np.array(33), "go": np.array(True), "one": np.float32(1)}
    inputs = [value("x", [3, 4]), value("y", [3, 4])]
    proto = _model([loop], inputs, [("p", _F), ("q", _F), ("r", _F)], constants)
    _agrees(proto, {"x": _X, "y": _X * 3}, tmp_path)


def test_states_that_get_their_shape_in_the_first_step(tmp_path):
    """As exporters write them: the initial state is a scalar placeholder."""
    body = _body(
        [node("Identity", ["going"], ["on"]), node("Mul", ["old", "half"], ["h"]),
         node("Add", ["h", "x"], ["new"])],
        [("i", _I), ("going", _B), ("old", _F)],
        [("on", _B), ("new", _F)],
    )  # fmt: skip
    loop = node("Loop", ["count", "go", "none"], ["end"], body=body)
    constants = {"count": np.array(40), "go": np.array(True), "none": np.float32(0),
                 "half": np.float32(0.5)}  # fmt: skip
    proto = _model([loop], [value("x", [3, 4])], [("end", _F)], constants)
    _agrees(proto, {"x": _X}, tmp_path)


def test_a_loop_in_a_loop(tmp_path):
    inner = _body(
        [node("Identity", ["g"], ["o"]), node("Mul", ["u", "h"], ["v"])],
        [("j", _I), ("g", _B), ("u", _F)],
        [("o", _B), ("v", _F)],
    )
    body = _body(
        [node("Identity", ["going"], ["on"]), node("Tanh", ["h0"], ["h"]),
         node("Loop", ["few", "go", "x"], ["w"], body=inner), node("Add", ["w", "x"], ["new"])],
        [("i", _I), ("going", _B), ("h0", _F)],
        [("on", _B), ("new", _F), ("w", _F)],
    )  # fmt: skip
    loop = node("Loop", ["count", "go", "x"], ["end", "rows"], body=body)
    constants = {"count": np.array(20), "few": np.array(18), "go": np.array(True)}
    proto = _model([loop], [value("x", [3, 4])], [("end", _F), ("rows", _F)], constants)
    graph = _agrees(proto, {"x": _X}, tmp_path)
    assert [n.op.kind for n in graph.nodes].count("loop") == 1


@pytest.mark.slow
def test_the_work_of_loops_is_bounded(tmp_path):
    proto = _loop(60_000)
    with pytest.raises(InputError, match="operators in total"):
        for _ in range(2):
            inner = proto.graph.node[-1]
            body = _body(
                [inner, node("Identity", ["g2"], ["o2"])],
                [("j2", _I), ("g2", _B), ("u2", _F)],
                [("o2", _B), ("end", _F)],
            )
            outer = node("Loop", ["count", "go", "x"], ["end"], body=body)
            del proto.graph.node[-1]
            del proto.graph.output[1:]
            proto.graph.node.append(outer)
        import_model(save(proto, tmp_path))


def _short(proto):
    del proto.graph.node[-1].attribute[0].g.input[-1]


def _no_count(proto):
    count = next(i for i in proto.graph.initializer if i.name == "count")
    count.CopyFrom(numpy_helper.from_array(np.zeros(0, np.int64), "count"))


def _slice_of_two(proto):
    part = next(n for n in proto.graph.node[-1].attribute[0].g.node if n.op_type == "Slice")
    del part.input[2:]


@pytest.mark.parametrize("damage", [_short, _no_count, _slice_of_two])
def test_damaged_loops_are_refused_in_a_line(damage, tmp_path):
    proto = _loop(30)
    damage(proto)
    with pytest.raises(InputError, match="operator 0 "):
        import_model(save(proto, tmp_path))
