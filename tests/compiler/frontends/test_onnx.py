"""ONNX models: supported imports, and one-line errors."""

from __future__ import annotations

import hashlib
import re
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgekit.host.common.paths import install_command
from edgekit.host.compiler.frontends import import_model, model_hash
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(5)


def _weights(*shape):
    return _RNG.standard_normal(shape).astype(np.float32)


def _convolution(groups=1, **attributes):
    nodes = [node("Conv", ["x", "w", "b"], ["y"], group=groups, **attributes)]
    constants = {"w": _weights(6, 4 // groups, 3, 3), "b": _weights(6)}
    return model(nodes, [value("x", [1, 4, 7, 9])], ["y"], constants), constants


def _direct(x, w, b, groups):
    """A convolution by definition, without padding."""
    n, _, h, width = x.shape
    oc, depth, kh, kw = w.shape
    y = np.zeros((n, oc, h - kh + 1, width - kw + 1))
    for o in range(oc):
        first = o // (oc // groups) * depth
        for i, j in np.ndindex(kh, kw):
            part = x[:, first : first + depth, i : i + y.shape[2], j : j + y.shape[3]]
            y[:, o] += np.einsum("nchw,c->nhw", part, w[o, :, i, j])
        y[:, o] += b[o]
    return y


@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_keep_nchw_outside(groups, tmp_path):
    proto, constants = _convolution(groups)
    graph = import_model(save(proto, tmp_path))
    assert graph.inputs == ("x",) and graph.outputs == ("y",)
    assert graph.tensors["x"].shape == (1, 4, 7, 9) and graph.tensors["y"].shape == (1, 6, 5, 7)
    x = _weights(1, 4, 7, 9)
    expected = _direct(x, constants["w"], constants["b"], groups)
    for each in (graph, run_passes(graph)[0]):
        np.testing.assert_allclose(evaluate(each, {"x": x}).outputs["y"], expected, atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_that_moves_no_pixel_is_a_plain_one(groups, tmp_path):
    proto, constants = _convolution(groups)
    still = {**constants, "offset": np.zeros((1, 18, 5, 7), np.float32)}
    nodes = [node("DeformConv", ["x", "w", "offset", "b"], ["y"], group=groups)]
    graph = import_model(save(model(nodes, proto.graph.input, ["y"], still, 19), tmp_path))
    x = _weights(1, 4, 7, 9)
    expected = _direct(x, constants["w"], constants["b"], groups)
    np.testing.assert_allclose(evaluate(graph, {"x": x}).outputs["y"], expected, atol=1e-5)


def test_shapes_are_computed_while_importing(tmp_path):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axis"], ["front"]),
        node("Concat", ["front", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {
        "zero": np.array(0, np.int64), "axis": np.array([0], np.int64),
        "rest": np.array([-1], np.int64),
    }  # fmt: skip
    path = save(model(nodes, [value("x", ["n", 3, "h"])], ["y"], constants), tmp_path)
    graph = import_model(path, {"x": (2, 3, 5)})
    assert graph.tensors["y"].shape == (2, 15)
    assert {type(n.op) for n in graph.nodes} == {ops.Reshape}


def test_a_cast_reads_the_value_before_it_was_stored_as_f16(tmp_path):
    nodes = [node("Mul", ["x", "c"], ["half"]), node("Cast", ["half"], ["y"], to=TensorProto.FLOAT)]
    constants = {"c": np.float16([1 + 2**-10])}
    path = save(model(nodes, [value("x", [1], np.dtype("f2"))], ["y"], constants), tmp_path)
    made = evaluate(import_model(path), {"x": constants["c"]}).outputs
    assert made["y"] == np.float32(1 + 2**-10) ** 2  # rounded to f16, the last bit is lost


@pytest.mark.parametrize(("kind", "function"), [("And", np.logical_and), ("Or", np.logical_or)])
@pytest.mark.parametrize("known", [False, True])
def test_a_known_operand_decides_or_changes_nothing(kind, function, known, tmp_path):
    constants, x = {"c": np.full(3, known)}, np.array([True, False, True])
    path = save(
        model([node(kind, ["x", "c"], ["y"])], [value("x", [3], x.dtype)], ["y"], constants),
        tmp_path,
    )
    made = evaluate(import_model(path), {"x": x}).outputs["y"]
    np.testing.assert_array_equal(made, function(x, known))


def test_an_output_may_be_an_input_or_a_constant(tmp_path):
    nodes = [node("Identity", ["x"], ["same"]), node("Identity", ["c"], ["known"])]
    constants = {"c": np.ones(3, np.float32)}
    path = save(model(nodes, [value("x", [2])], ["same", "known"], constants), tmp_path)
    made = evaluate(import_model(path), {"x": np.array([3, 4], np.float32)}).outputs
    np.testing.assert_array_equal(made["same"], [3, 4])
    np.testing.assert_array_equal(made["known"], [1, 1, 1])


def test_an_output_listed_twice_is_returned_twice(tmp_path):
    path = save(model([node("Neg", ["x"], ["y"])], [value("x", [2])], ["y", "y"]), tmp_path)
    graph = import_model(path)
    assert graph.outputs == ("y", "y_2")
    made = evaluate(graph, {"x": np.array([3, 4], np.float32)}).outputs
    np.testing.assert_array_equal(made["y"], [-3, -4])
    np.testing.assert_array_equal(made["y_2"], [-3, -4])


def _branch(name, *nodes):
    return onnx.helper.make_graph(list(nodes), name, [], [value(name, None)])


def test_nodes_may_be_listed_in_any_order(tmp_path):
    """Also those that only a branch reads, and those of the branches."""
    scaled = _branch("more", node("Add", ["t", "b"], ["more"]), node("Mul", ["a", "a"], ["t"]))
    plain = _branch("less", node("Identity", ["b"], ["less"]))
    nodes = [
        node("Relu", ["d"], ["y"]), node("If", ["yes"], ["d"], then_branch=scaled,
                                         else_branch=plain),
        node("Not", ["no"], ["yes"]), node("Sub", ["a", "x"], ["b"]),
        node("Add", ["x", "x"], ["a"]),
    ]  # fmt: skip
    x = np.array([1, -2, 3], np.float32)
    for order in (nodes, nodes[::-1], nodes[2:] + nodes[:2]):
        proto = model(order, [value("x", [3])], ["y"], {"no": np.array(False)})
        made = evaluate(import_model(save(proto, tmp_path)), {"x": x}).outputs["y"]
        np.testing.assert_array_equal(made, np.maximum(4 * x * x + x, 0))


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Add", ["x", "y"], ["y"])],
        [node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]), node("Neg", ["b"], ["y"])],
    ],
    ids=["itself", "another"],
)
def test_a_cycle_is_refused_in_one_line(nodes, tmp_path):
    path = save(model(nodes, [value("x", [3])], ["y"]), tmp_path)
    _refused(path, r"operator \d \((Add|Neg) [aby]\): expected operators without cycles")


_X = _weights(2, 3, 4)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (node("Einsum", ["x", "b"], ["y"], equation="nij,njk->nki"), lambda x, b: (x @ b).mT),
        (node("Einsum", ["x", "s"], ["y"], equation="nij,k->ijkn"),
         lambda x, b: np.einsum("nij,k->ijkn", x, [1, 2])),
        (node("ReduceLogSumExp", ["x"], ["y"], axes=[0, 2], keepdims=0),
         lambda x, b: np.log(np.exp(x).sum((0, 2)))),
        (node("Cast", ["s"], ["y"], to=TensorProto.FLOAT), lambda x, b: np.array([1, 2.0])),
        (node("Cast", ["x"], ["y"], to=TensorProto.INT32), lambda x, b: x.astype(np.int32)),
        (node("CastLike", ["x", "n"], ["y"]), lambda x, b: x.astype(np.int64)),
        (node("EyeLike", ["e"], ["y"], k=1), lambda x, b: np.eye(3, 5, 1)),
        (node("Celu", ["x"], ["y"]), lambda x, b: np.where(x < 0, np.expm1(x), x)),
        (node("Swish", ["x"], ["y"]), lambda x, b: x / (1 + np.exp(-x))),
    ],
    ids=lambda v: v.op_type if isinstance(v, onnx.NodeProto) else "",
)  # fmt: skip
def test_operators_whose_node_tests_have_other_types_or_no_defaults(made, expected, tmp_path):
    b = _weights(2, 4, 5)
    constants = {
        "s": np.array([1, 2], np.float32), "n": np.array([3], np.int64),
        "e": np.zeros((3, 5), np.float32),
    }  # fmt: skip
    ends = [value("x", [2, 3, 4]), value("b", [2, 4, 5])]
    graph = import_model(save(model([made], ends, ["y"], constants), tmp_path))
    got = evaluate(graph, {"x": _X, "b": b}).outputs["y"]
    np.testing.assert_allclose(got, expected(_X, b), rtol=1e-5, atol=1e-6)


def _refused(path, match, shapes=None):
    with pytest.raises(InputError, match=match) as error:
        import_model(path, shapes)
    assert "\n" not in str(error.value) and str(error.value).startswith(path.name)


@pytest.mark.engines
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("Abs", "uint8"), ("Sign", "uint32"), ("PRelu", "int32"), ("PRelu", "int64")],
)
def test_functions_of_integers_are_what_onnx_runtime_says(kind, dtype, tmp_path):
    import onnxruntime

    signed = np.dtype(dtype).kind == "i"
    x = np.arange(-6 if signed else 0, 6, dtype=dtype).reshape(-1, 3)
    more = {"slope": np.array([2, -3, 0], dtype)} if kind == "PRelu" else {}
    proto = model([node(kind, ["x", *more], ["y"])], [value("x", x.shape, x.dtype)], [], more)
    proto.graph.output.append(value("y", x.shape, x.dtype))
    path = save(proto, tmp_path)
    (want,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    np.testing.assert_array_equal(evaluate(import_model(path), {"x": x}).outputs["y"], want)


def test_all_unsupported_operators_are_listed(tmp_path):
    nodes = [
        node("ImageDecoder", ["x"], ["a"], name="first"),
        node("Relu", ["x"], ["b"]),
        node("Fancy", ["b"], ["y"], name="second", domain="com.example"),
    ]
    path = save(model(nodes, [value("x", [2])], ["y"]), tmp_path)
    _refused(path, r"operators ImageDecoder \(0\), com.example:Fancy \(2\) are not supp")


def test_a_damaged_file_is_refused(tmp_path):
    proto, _ = _convolution()
    whole = proto.SerializeToString()
    for size in (1, 5, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "cut.onnx"
        path.write_bytes(whole[:size])
        _refused(path, "expected")
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(bytes(range(8, 200)))
    _refused(garbage, "ONNX model")


@pytest.mark.parametrize("opset", [0, 99])
def test_an_unknown_opset_is_refused(opset, tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], [value("x", [2])], ["y"], opset=opset)
    _refused(save(proto, tmp_path), f"expected opset 1 to .*, found {opset}")


def test_wrong_wiring_is_refused(tmp_path):
    x = value("x", [2])
    unknown = [node("Add", ["x", "b"], ["a"])]
    _refused(save(model(unknown, [x], ["a"]), tmp_path), "operator 0 .* expected b to be")
    _refused(save(model([node("Relu", ["w"], ["y"])], [x], ["y"]), tmp_path), "expected w to be")
    _refused(save(model([node("Relu", ["x"], ["y"])], [x], ["z"]), tmp_path), "expected z to be")
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    _refused(save(model(twice, [x], ["y"]), tmp_path), "write each tensor once")
    none = [node("Relu", [], ["y"])]
    _refused(save(model(none, [x], ["y"]), tmp_path), "expected input 0")
    _refused(save(model([node("Relu", ["x"], ["y"])], [x], []), tmp_path), "outputs, found none")


def test_external_data_stays_beside_the_model(tmp_path):
    proto, _ = _convolution()
    weights = proto.graph.initializer[0]
    data = weights.raw_data
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL

    def place(location):
        del weights.external_data[:]
        weights.external_data.add(key="location", value=location)
        return save(proto, tmp_path)

    _refused(place("weights.bin"), "expected its data in weights.bin next to the model")
    _refused(place("long/" * 2000), "expected its data in long/long/.* next to the model")
    for escape in ("../weights.bin", "/etc/passwd", "", "a\0b"):
        _refused(place(escape), "expected external data inside the model's folder")
    path = place("weights.bin")
    (tmp_path / "weights.bin").write_bytes(data[:8])
    _refused(path, "tensor w: expected")
    (tmp_path / "weights.bin").write_bytes(data)
    assert import_model(path).tensors["y"].shape == (1, 6, 5, 7)


def test_data_beside_a_model_is_part_of_its_hash_and_of_its_golden_outputs(tmp_path):
    proto, constants = _convolution()
    path = save(proto, tmp_path)
    assert model_hash(path) == hashlib.sha256(path.read_bytes()).hexdigest()
    weights = proto.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights.bin")
    path, data = save(proto, tmp_path), tmp_path / "weights.bin"
    seen = []
    for w in (constants["w"], -constants["w"]):
        data.write_bytes(w.tobytes())
        golden = golden_of(import_model(path), tmp_path / "golden")
        seen.append((model_hash(path), golden.outputs[0].tobytes()))
    assert seen[0][0] != seen[1][0] and seen[0][1] != seen[1][1]
    assert seen[1][0] == hashlib.sha256(path.read_bytes() + data.read_bytes()).hexdigest()
    for kept in (tmp_path / "golden").glob("*.npz"):
        right = kept.read_bytes()
        for damaged in (right[:99], b"", right.replace(b"out0.npy", b"out1.npy")):
            kept.write_bytes(damaged)
            again = golden_of(import_model(path), tmp_path / "golden")
            assert again.outputs[0].tobytes() == seen[1][1]
    data.unlink()
    with pytest.raises(InputError, match=r"expected its data in weights.bin next to the model"):
        model_hash(path)


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (node("Conv", ["x", "w"], ["y"], strides=[0, 1]), "positive windows"),
        (node("Conv", ["x", "w"], ["y"], group=3), "groups"),
        (node("Conv", ["x", "w"], ["y"], pads=[1]), "pads for 2 axes"),
        (node("ConvTranspose", ["x", "x"], ["y"]), "constant weights"),
        (node("Reshape", ["x", "w"], ["y"]), "integers as shape"),
        (node("Transpose", ["x"], ["y"], perm=[0, 0, 1, 2]), "permutation"),
        (node("Softmax", ["x"], ["y"], axis=9), "axis from -4 to 3"),
        (node("Cast", ["x"], ["y"], to=77), "element type"),
        (node("Add", ["x", "w"], ["y"]), "broadcast"),
        (node("MaxPool", ["x"], ["y"]), "attribute kernel_shape"),
    ],
    ids=lambda v: v if isinstance(v, str) else v.op_type,
)
def test_operands_that_do_not_fit_name_the_node(made, match, tmp_path):
    proto = model([made], [value("x", [1, 4, 7, 9])], ["y"], {"w": _weights(6, 4, 3, 5)})
    _refused(save(proto, tmp_path), f"operator 0 \\({made.op_type} y\\): .*{match}")


def test_without_the_package_one_line_says_how_to_get_it(tmp_path, monkeypatch):
    path = save(_convolution()[0], tmp_path)
    monkeypatch.setitem(sys.modules, "onnx", None)
    _refused(path, rf"install it: {re.escape(install_command('onnx'))}$")


def test_a_flipped_bit_gives_a_graph_or_one_line(tmp_path):
    proto, _ = _convolution(auto_pad="SAME_UPPER")
    whole = bytearray(proto.SerializeToString())
    path = tmp_path / "flipped.onnx"
    for at in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(_RNG.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            assert import_model(path).outputs
        except InputError as error:
            assert "\n" not in str(error)


def test_the_checker_is_not_needed_for_a_sparse_initializer_to_be_refused(tmp_path):
    proto, _ = _convolution()
    proto.graph.sparse_initializer.add().values.name = "s"
    _refused(save(proto, tmp_path), "dense initializers, found sparse s")


def test_the_newest_opset_is_one_the_package_knows():
    from edgekit.host.compiler.frontends.onnx.file import NEWEST_OPSET

    assert onnx.defs.onnx_opset_version() >= 17 and NEWEST_OPSET >= 17
