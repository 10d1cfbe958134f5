"""LSTM, GRU and RNN with their attributes, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir import ops  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.ir.types import Graph  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from edgekit.host.errors import InputError  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402

_SIZE = 4
_SIZES = (5, 3, 6)  # time, batch, hidden
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
_CHOSEN = {"LSTM": 3, "GRU": 2, "RNN": 1}  # activations per direction
_VARIANTS = ("plain", "clip", "activations", "own")
_OWN = {"LSTM": {"input_forget": 1}, "GRU": {"linear_before_reset": 1}, "RNN": {"clip": 0.1}}


def _attributes(kind: str, variant: str, ways: int) -> dict[str, object]:
    if variant == "clip":
        return {"clip": 0.3}
    if variant == "activations":
        names = ["Relu", "Softsign", "HardSigmoid"][-_CHOSEN[kind] :]
        alpha, beta = [0.3] * ways, [0.4] * ways
        return {
            "activations": names * ways,
            "activation_alpha": alpha,
            "activation_beta": beta,
        }
    return dict(_OWN[kind]) if variant == "own" else {}


def _model(
    kind: str,
    direction: str,
    lengths: list[int] | None,
    variant: str,
    sizes: tuple[int, int, int] = _SIZES,
) -> bytes:
    time, batch, hidden = sizes
    rng = np.random.default_rng(len(kind) + len(variant))
    ways, gates = (2 if direction == "bidirectional" else 1), _GATES[kind]
    shapes = {
        "w": (ways, gates * hidden, _SIZE),
        "r": (ways, gates * hidden, hidden),
        "b": (ways, 2 * gates * hidden),
        "l": (batch,),
        "h": (ways, batch, hidden),
        "c": (ways, batch, hidden),
        "p": (ways, 3 * hidden),
    }
    ins = ["x", "w", "r", "b", "l" if lengths else "", "h"]
    ins += ["c", "p"] if kind == "LSTM" else []
    outs = ["y", "yh", "yc"] if kind == "LSTM" else ["y", "yh"]
    scale = min(0.4, hidden**-0.5)  # with larger weights, states become chaotic over many steps
    values = {n: rng.normal(0, scale, shapes[n]).astype(np.float32) for n in ins if n in shapes}
    if lengths:
        values["l"] = np.array(lengths, np.int32)
    more = _attributes(kind, variant, ways)
    node = helper.make_node(kind, ins, outs, hidden_size=hidden, direction=direction, **more)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [time, batch, _SIZE])
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outs]
    constants = [numpy_helper.from_array(v, n) for n, v in values.items()]
    graph = helper.make_graph([node], "g", [x], results, constants)
    opsets = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize("variant", _VARIANTS)
@pytest.mark.parametrize("lengths", [None, [5, 2, 3]], ids=["whole", "lengths"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", _GATES)
def test_attributes_are_what_onnx_runtime_makes_of_them(
    kind, direction, lengths, variant, tmp_path
):
    graph = _agrees(_model(kind, direction, lengths, variant), _SIZES, tmp_path)
    unrolled = (kind != "RNN" and variant == "activations") or (kind == "LSTM" and variant == "own")
    assert any(isinstance(n.op, ops.Recurrent) for n in graph.nodes) != unrolled


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["plain", "own"])
@pytest.mark.parametrize("sizes", [(1, 3, 16), (2, 1, 1), (37, 3, 33), (600, 1, 7)], ids=str)
@pytest.mark.parametrize("kind", _GATES)
def test_sizes_are_what_onnx_runtime_makes_of_them(kind, sizes, variant, tmp_path):
    content = _model(kind, "bidirectional", [sizes[0]] * sizes[1], variant, sizes)
    _agrees(content, sizes, tmp_path)


def _agrees(content: bytes, sizes: tuple[int, int, int], folder: Path) -> Graph:
    """Check that the reference matches ONNX Runtime; return the graph."""
    path = folder / "model.onnx"
    path.write_bytes(content)
    x = np.random.default_rng(5).normal(size=(*sizes[:2], _SIZE)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = dict(zip(names, session.run(names, {"x": x}), strict=True))
    graph, _ = run_passes(import_model(path))
    found = evaluate(graph, {"x": x}).outputs
    for name, want in wanted.items():
        np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5)
    return graph


def test_layers_of_other_forms_are_loops(tmp_path):
    graph = _agrees(_model("LSTM", "reverse", [40, 17], "own", (40, 2, 5)), (40, 2, 5), tmp_path)
    assert [n.op.steps for n in graph.nodes if isinstance(n.op, ops.Loop)] == [40]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activations": ["Tanh"]}, "expected 3 activations, found 1"),
        ({"activations": ["Tanh", "Sine", "Tanh"]}, "found sine"),
        ({"clip": -1.0}, "expected a positive clip"),
    ],
)
def test_attributes_that_cannot_be_are_refused(change, message, tmp_path):
    model = onnx.load_from_string(_model("LSTM", "forward", None, "plain"))
    for name, given in change.items():
        model.graph.node[0].attribute.append(helper.make_attribute(name, given))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=message):
        import_model(path)


_MISFITS = [("h", (2, 5, 4)), ("h", (1, 1, 4)), ("c", (2, 5, 4)), ("l", (5,))]


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize(
    ("kind", "operand", "shape"),
    [(k, *m) for k in _GATES for m in _MISFITS if m[0] != "c" or k == "LSTM"],
)
def test_operands_of_another_batch_or_direction_are_refused(
    kind, steps, layout, operand, shape, tmp_path
):
    shapes = {"x": (steps, 3, _SIZE), "h": (2, 3, 4), "c": (2, 3, 4), "l": (3,), operand: shape}
    if layout:
        shapes = {n: (s[1], s[0], *s[2:]) if len(s) == 3 else s for n, s in shapes.items()}
    rng = np.random.default_rng(5)
    weights = {"w": (2, _GATES[kind] * 4, _SIZE), "r": (2, _GATES[kind] * 4, 4)}
    ins = ["x", "w", "r", "", "l", "h", *(["c"] if kind == "LSTM" else [])]
    node = helper.make_node(kind, ins, ["", "yh"], hidden_size=4, direction="bidirectional",
                            layout=layout)  # fmt: skip
    kinds = {"l": TensorProto.INT32}
    ends = [helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), shapes[n])
            for n in ins if n in shapes]  # fmt: skip
    constants = [
        numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
        for n, s in weights.items()
    ]
    result = helper.make_tensor_value_info("yh", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", ends, [result], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString())
    with pytest.raises(
        InputError, match=r"expected (an initial state|lengths of sequences) of shape"
    ):
        import_model(path)


@pytest.mark.parametrize("lengths", [[5, 6, 2], [5, -1, 2]])
def test_lengths_beyond_the_sequence_are_refused(lengths, tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(_model("GRU", "forward", lengths, "plain"))
    with pytest.raises(InputError, match="expected sequences of 0 to 5 steps"):
        import_model(path)


@pytest.mark.parametrize("batch_axis", [0, 1])
def test_sequences_of_computed_lengths_are_reversed(batch_axis, tmp_path):
    made = node(
        "ReverseSequence", ["x", "n"], ["y"], batch_axis=batch_axis, time_axis=1 - batch_axis
    )
    x = np.arange(60, dtype=np.float32).reshape(4, 5, 3)
    lengths = np.arange(x.shape[batch_axis], dtype=np.int64)
    path = save(
        model([made], [value("x", x.shape), value("n", lengths.shape, "s64")], ["y"]), tmp_path
    )
    inputs = {"x": x, "n": lengths}
    (want,) = onnxruntime.InferenceSession(path).run(None, inputs)
    np.testing.assert_array_equal(evaluate(import_model(path), inputs).outputs["y"], want)
