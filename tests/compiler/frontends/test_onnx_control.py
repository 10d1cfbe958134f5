"""ONNX's control flow, sequences and functions, against the onnx package's own evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.onnx.file import read_onnx
from edgekit.host.compiler.frontends.onnx.importer import graph_from_onnx
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(11)
_X = _RNG.standard_normal((3, 4)).astype(np.float32)


def _body(nodes, inputs=(), outputs=(), constants=None):
    """A graph attribute; inputs and outputs are names, with f32 of any shape."""
    ends = [
        [helper.make_tensor_value_info(n, kind, None) for n, kind in side]
        for side in (inputs, outputs)
    ]
    made = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    return helper.make_graph(list(nodes), "body", *ends, made)


def _agrees(proto, inputs, folder):
    graph = import_model(save(proto, folder))
    wanted = ReferenceEvaluator(proto).run(None, inputs)
    for each in (graph, run_passes(graph)[0]):
        made = evaluate(each, inputs).outputs
        for name, want in zip(graph.outputs, wanted, strict=True):
            np.testing.assert_allclose(made[name], want, rtol=1e-5, atol=1e-6)
    return graph


_F, _I, _B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _branches(condition):
    """y = relu(x) if the condition is true, else −x; both branches capture x."""
    then = _body([node("Relu", ["x"], ["a"])], (), [("a", _F)])
    other = _body([node("Neg", ["x"], ["b"])], (), [("b", _F)])
    nodes = [*condition, node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    return model(nodes, [value("x", [3, 4])], ["y"], {"axes": np.array([0, 1])}, opset=18)


def test_a_branch_is_decided_where_its_condition_is_known(tmp_path):
    known = [
        node("Shape", ["x"], ["s"]),
        node("Size", ["s"], ["n"]),
        node("Equal", ["n", "two"], ["c"]),
    ]
    proto = _branches(known)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(2), "two"))
    graph = _agrees(proto, {"x": _X}, tmp_path)
    assert [n.op.kind for n in graph.nodes if n.op.kind != "reshape"] == ["clamp"]


@pytest.mark.parametrize("sign", [-1, 1])
def test_both_branches_are_computed_where_it_is_not(sign, tmp_path):
    computed = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        node("Less", ["zero", "s"], ["c"]),
    ]
    proto = _branches(computed)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    _agrees(proto, {"x": np.abs(_X) * np.float32(sign)}, tmp_path)


def _looped(count, until=None):
    """state = state · 0.5 + x, `count` times or until its first element exceeds `until`."""
    nodes = [
        node("Mul", ["old", "half"], ["h"]),
        node("Add", ["h", "x"], ["new"]),
        node("ReduceMax", ["new"], ["row"], axes=[1], keepdims=0),
    ]
    constants = {"half": np.array(0.5, np.float32)}
    if until is None:
        nodes.append(node("Identity", ["going"], ["on"]))
    else:
        constants["limit"] = np.array(until, np.float32)
        nodes += [
            node("ReduceMax", ["new"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["on"]),
        ]
    outs = [("on", _B), ("new", _F), ("row", _F)][: 3 if until is None else 2]
    body = _body(nodes, [("i", _I), ("going", _B), ("old", _F)], outs, constants)
    made = ["y", "rows"][: len(outs) - 1]
    ends = {"count": np.array(count), "go": np.array(True)}
    names = ["count" if count else "", "go", "x"]
    return model([node("Loop", names, made, body=body)], [value("x", [3, 4])], made, ends, opset=15)


def test_a_loop_is_unrolled(tmp_path):
    _agrees(_looped(5), {"x": _X}, tmp_path)


def test_steps_of_a_loop_share_their_constants(tmp_path):
    nodes = [
        node("Neg", ["w"], ["negated"]),
        node("MatMul", ["old", "w"], ["a"]),
        node("MatMul", ["a", "negated"], ["new"]),
        node("Identity", ["going"], ["on"]),
    ]
    body = _body(nodes, [("i", _I), ("going", _B), ("old", _F)], [("on", _B), ("new", _F)])
    constants = {"count": np.array(9), "go": np.array(True), "w": _X[:, :3] * 0.5}
    loop = node("Loop", ["count", "go", "x"], ["y"], body=body)
    proto = model([loop], [value("x", [4, 3])], ["y"], constants, opset=15)
    graph = _agrees(proto, {"x": _X.T.copy()}, tmp_path)
    weights = {n.inputs[1] for n in graph.nodes if isinstance(n.op, ops.FullyConnected)}
    assert len(weights) == 2


@pytest.mark.parametrize("until", [0.5, 3.0, 1e9])
def test_a_loop_may_end_by_what_it_computes(until, tmp_path):
    _agrees(_looped(6, until), {"x": np.abs(_X)}, tmp_path)


@pytest.mark.parametrize("until", [0.5, 4.0, 1e9])
def test_a_loop_may_end_by_a_counter_and_by_what_it_computes(until, tmp_path):
    """`while i < 5 and max < until`, without a trip count, as exporters write decoders."""
    nodes = [
        node("Add", ["k", "one"], ["next"]),
        node("Gather", ["table", "k"], ["part"]),
        node("Add", ["old", "part"], ["new"]),
        node("ReduceMax", ["new"], ["most"], keepdims=0),
        node("Less", ["most", "until"], ["small"]),
        node("Less", ["next", "five"], ["more"]),
        node("And", ["more", "small"], ["on"]),
        node("Range", ["k", "next", "one"], ["row"]),
    ]
    ends = [("i", _I), ("going", _B), ("k", _I), ("old", _F)]
    body = _body(nodes, ends, [("on", _B), ("next", _I), ("new", _F), ("row", _I)])
    constants = {
        "go": np.array(True), "zero": np.array(0), "one": np.array(1), "five": np.array(5),
        "until": np.array(until, np.float32),
        "table": np.arange(24, dtype=np.float32).reshape(6, 4) / 10,
    }  # fmt: skip
    loop = node("Loop", ["", "go", "zero", "x"], ["count", "y", "rows"], body=body)
    proto = model([loop], [value("x", [3, 4])], ["count", "y", "rows"], constants, opset=15)
    count, y, rows = ReferenceEvaluator(proto).run(None, {"x": _X})
    graph = import_model(save(proto, tmp_path))
    made = evaluate(run_passes(graph)[0], {"x": _X}).outputs
    assert made["count"] == count and made["rows_length"].tolist() == [len(rows)]
    np.testing.assert_array_equal(made["rows"][: len(rows)], rows)
    np.testing.assert_allclose(made["y"], y, rtol=1e-6)


@pytest.mark.slow
def test_a_loop_without_end_is_refused(tmp_path):
    with pytest.raises(InputError, match="expected a loop of at most 65536 steps"):
        import_model(save(_looped(0), tmp_path))


@pytest.mark.parametrize("count", [0, 10**6, 2**63 - 1])
def test_a_loop_that_only_data_end(count, tmp_path):
    """`while` of scripted PyTorch has the largest trip count."""
    proto = _looped(count, 3.0)
    (want,) = ReferenceEvaluator(proto).run(None, {"x": np.abs(_X) + 1})
    graph = import_model(save(proto, tmp_path))
    (note,) = graph.notes
    assert "(Loop y): at most 65536 steps; --max-rows N sets another bound" in note
    found = evaluate(graph, {"x": np.abs(_X) + 1}).outputs["y"]
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_loops_inside_each_other_end(tmp_path):
    proto = _looped(50)
    for _ in range(3):
        inner = proto.graph.node[0]
        ends = [("i", _I), ("going", _B), ("old", _F)]
        inner.input[2] = "old"
        nodes = [inner, node("Identity", ["going"], ["on"])]
        body = _body(nodes, ends, [("on", _B), ("y", _F), ("rows", _F)])
        outer = node("Loop", ["count", "go", "x"], ["y", "rows"], body=body)
        del proto.graph.node[:]
        proto.graph.node.append(outer)
    model = read_onnx(save(proto, tmp_path))
    with pytest.raises(InputError, match="of at most 2000 operators in total"):
        graph_from_onnx(model, "model.onnx", {}, most_nodes=2_000)


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_is_unrolled(back, tmp_path):
    body = _body(
        [node("Add", ["s", "row"], ["t"]), node("Mul", ["t", "row"], ["out"])],
        [("s", _F), ("row", _F)],
        [("t", _F), ("out", _F)],
    )
    scan = node(
        "Scan", ["start", "x"], ["sum", "y"], body=body, num_scan_inputs=1, scan_input_axes=[1],
        scan_input_directions=[back], scan_output_axes=[1], scan_output_directions=[back],
    )  # fmt: skip
    constants = {"start": np.zeros(3, np.float32)}
    proto = model([scan], [value("x", [3, 4])], ["sum", "y"], constants)
    made = evaluate(import_model(save(proto, tmp_path)), {"x": _X}).outputs
    x = _X[:, ::-1] if back else _X
    rows = np.cumsum(x, axis=1) * x
    np.testing.assert_allclose(made["sum"], x.sum(axis=1), rtol=1e-5)
    np.testing.assert_allclose(made["y"], rows[:, ::-1] if back else rows, rtol=1e-5)


def test_sequences_are_known_while_importing(tmp_path):
    nodes = [
        node("SplitToSequence", ["x", "one"], ["parts"], axis=0),
        node("SequenceAt", ["parts", "last"], ["third"]),
        node("SequenceErase", ["parts", "zero"], ["two"]),
        node("SequenceInsert", ["two", "third", "zero"], ["three"]),
        node("ConcatFromSequence", ["three"], ["y"], axis=1),
        node("SequenceEmpty", [], ["none"]),
        node("SequenceLength", ["none"], ["count"]),
        node("SequenceConstruct", ["third", "third"], ["pair"]),
        node("ConcatFromSequence", ["pair"], ["stack"], axis=-1, new_axis=1),
        node("Optional", ["stack"], ["maybe"]),
        node("OptionalHasElement", ["maybe"], ["has"]),
        node("OptionalGetElement", ["maybe"], ["z"]),
    ]
    constants = {"one": np.array(1), "zero": np.array(0), "last": np.array(-1)}
    proto = model(nodes, [value("x", [3, 4])], ["y", "z", "count", "has"], constants, opset=18)
    made = evaluate(import_model(save(proto, tmp_path)), {"x": _X}).outputs
    np.testing.assert_array_equal(made["y"], _X[[2, 1, 2]].reshape(1, 12))
    np.testing.assert_array_equal(made["z"], np.stack([_X[2:], _X[2:]], axis=-1))
    assert made["count"] == 0 and made["has"]


def test_parts_of_a_sequence_may_be_empty(tmp_path):
    """As torch.onnx writes chunks of a size that their number does not divide."""
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["parts"], axis=1),
        node("SequenceAt", ["parts", "first"], ["y"]),
    ]
    constants = {"sizes": np.array([2, 2, 0]), "first": np.array(0)}
    _agrees(model(nodes, [value("x", [3, 4])], ["y"], constants), {"x": _X}, tmp_path)


def test_a_sequence_becomes_as_many_outputs(tmp_path):
    """As scikit-learn's classifiers of several labels have."""
    parts = node("SplitToSequence", ["x", "one"], ["parts"], axis=0)
    same = node("Identity", ["x"], ["parts_1"])
    ends = [value("x", [3, 4])]
    proto = model([parts, same], ends, ["parts_1", "parts"], {"one": np.array(1)})
    graph = import_model(save(proto, tmp_path))
    made = evaluate(graph, {"x": _X}).outputs
    assert list(graph.outputs) == ["parts_1", "parts_0", "parts_1_2", "parts_2"]
    np.testing.assert_array_equal(made["parts_1"], _X)
    found = np.concatenate([made[name] for name in graph.outputs[1:]])
    np.testing.assert_array_equal(found, _X)
    assert "output parts: a sequence in the file" in graph.notes[-1]


def test_a_sequence_goes_through_a_loop(tmp_path):
    body = _body(
        [
            node("Gather", ["x", "i"], ["row"]),
            node("SequenceInsert", ["old", "row"], ["new"]),
            node("Identity", ["going"], ["on"]),
        ],
        [("i", _I), ("going", _B), ("old", _F)],
        [("on", _B), ("new", _F)],
    )
    nodes = [
        node("SequenceEmpty", [], ["none"]),
        node("Loop", ["count", "", "none"], ["rows"], body=body),
        node("ConcatFromSequence", ["rows"], ["y"], axis=0, new_axis=1),
    ]
    graph = import_model(
        save(model(nodes, [value("x", [3, 4])], ["y"], {"count": np.array(3)}), tmp_path)
    )
    np.testing.assert_array_equal(evaluate(graph, {"x": _X}).outputs["y"], _X)


def test_an_empty_sequence_as_output_is_refused(tmp_path):
    proto = model([node("SequenceEmpty", [], ["y"])], [value("x", [3])], ["y"])
    with pytest.raises(InputError, match="output y: expected a tensor, found nothing"):
        import_model(save(proto, tmp_path))


def _with_function(proto, *nodes, domain="own", attributes=("alpha",)):
    function = helper.make_function(
        domain, "Twice", ["a"], ["b"], list(nodes), [helper.make_opsetid("", 17)], attributes
    )
    proto.functions.append(function)
    proto.opset_import.append(helper.make_opsetid(domain, 1))
    return proto


def test_functions_of_the_file_are_put_in_place(tmp_path):
    slope = node("LeakyRelu", ["a"], ["b"])
    slope.attribute.append(
        onnx.AttributeProto(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    )
    nodes = [
        node("Twice", ["x"], ["h"], domain="own", alpha=0.5),
        node("Twice", ["h"], ["y"], domain="own", alpha=0.25),
    ]
    proto = _with_function(model(nodes, [value("x", [3, 4])], ["y"]), slope)
    made = evaluate(import_model(save(proto, tmp_path)), {"x": _X}).outputs["y"]
    np.testing.assert_allclose(made, np.where(_X < 0, _X * np.float32(0.125), _X), rtol=1e-6)


def test_a_function_that_calls_itself_is_refused(tmp_path):
    proto = model([node("Twice", ["x"], ["y"], domain="own")], [value("x", [3])], ["y"])
    _with_function(proto, node("Twice", ["a"], ["b"], domain="own"))
    with pytest.raises(InputError, match="nested at most 32 deep"):
        import_model(save(proto, tmp_path))


def test_operators_inside_a_branch_are_refused_by_name(tmp_path):
    proto = _branches([node("Identity", ["c0"], ["c"])])
    proto.graph.node[1].attribute[0].g.node[0].op_type = "Fancy"
    proto.graph.node[1].attribute[1].g.node[0].op_type = "Fancy"
    proto.graph.initializer.append(numpy_helper.from_array(np.array(True), "c0"))
    with pytest.raises(InputError, match=r"operator 1 \(If y\): .*operator 0 \(Fancy\) is not"):
        import_model(save(proto, tmp_path))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_for_other_shapes_is_left_out(sign, tmp_path):
    computed = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        node("Less", ["zero", "s"], ["c"]),
    ]
    proto = _branches(computed)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    proto.graph.initializer.append(numpy_helper.from_array(np.zeros((5, 7), np.float32), "w"))
    branch = proto.graph.node[-1].attribute[0 if sign > 0 else 1].g
    branch.node[0].CopyFrom(node("MatMul", ["x", "w"], list(branch.node[0].output)))
    graph = _agrees(proto, {"x": np.abs(_X) * np.float32(sign)}, tmp_path)
    assert len(graph.notes) == 1 and "If y" in graph.notes[0] and "dropped" in graph.notes[0]


@pytest.mark.slow
def test_a_branch_that_only_this_kit_cannot_compile_is_not_left_out(tmp_path):
    computed = [
        node("ReduceSum", ["x", "axes"], ["s"], keepdims=0),
        node("Less", ["zero", "s"], ["c"]),
    ]
    proto = _branches(computed)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "zero"))
    body = _body([node("Identity", ["go"], ["on"]), node("Relu", ["old"], ["new"])],
                 [("i", _I), ("go", _B), ("old", _F)], [("on", _B), ("new", _F)])  # fmt: skip
    branch = proto.graph.node[-1].attribute[0].g
    endless = node("Loop", ["", "", "x"], list(branch.node[0].output), body=body)
    branch.node[0].CopyFrom(endless)
    with pytest.raises(InputError, match="loop of at most 65536 steps"):
        import_model(save(proto, tmp_path))
