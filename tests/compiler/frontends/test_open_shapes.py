"""Dynamic shapes in files: batches become 1, a name means one size, and sizes are proposed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.cli.compile_options import one_input_shape
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.common.open_shapes import (
    OpenInput,
    OpenShapesError,
    fix_shapes,
)
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import DType
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

F32, I64, U8 = DType.F32, DType.I64, DType.U8


def _input(*shape: int | str | None, name: str = "x", dtype: DType = F32) -> OpenInput:
    return OpenInput(name, dtype, shape)


def _proposed(inputs: list[OpenInput], given: Any = None, file: str = "m.onnx") -> Any:
    """The shapes suggested in the error message, which must suffice."""
    with pytest.raises(OpenShapesError) as error:
        fix_shapes(inputs, given or {})
    message = str(error.value.answered(file, lambda shapes: fix_shapes(inputs, shapes)))
    assert "\n" not in message
    command = shlex.split(message[message.index("edgekit compile") :])
    assert command[:3] == ["edgekit", "compile", file] and set(command[3::2]) == {"--input-shape"}
    shapes = one_input_shape(command[4::2], None)
    assert all(d > 0 for s in fix_shapes(inputs, shapes).shapes.values() for d in s)
    return shapes


@pytest.mark.parametrize("batch", [None, "N", "batch", "batch_size", "unk__612", "s0", 0, -1,
    "p2o.DynamicDimension.0", "input_dynamic_axes_1", "?"])  # fmt: skip
def test_an_open_batch_is_one(batch: int | str | None) -> None:
    found = fix_shapes([_input(batch, 3, 32, 32)], {})
    assert found.shapes == {"x": (1, 3, 32, 32)}
    (note,) = found.notes
    assert note == "the batch of input x is open and becomes 1; --input-shape sets another one"
    given = fix_shapes([_input(batch, 3, 32, 32)], {"x": (4, 3, 32, 32)})
    assert given.shapes == {"x": (4, 3, 32, 32)} and not given.notes


def test_fixed_shapes_are_taken_as_they_are() -> None:
    found = fix_shapes([_input(2, 3), _input(name="scalar")], {})
    assert found.shapes == {"x": (2, 3), "scalar": ()} and not found.notes


def test_a_name_has_one_size() -> None:
    names = ("ids", "mask", "types")
    inputs = [_input("batch", "sequence", name=n, dtype=I64) for n in names]
    assert _proposed(inputs) == {"ids": (1, 128)}
    found = fix_shapes(inputs, {"ids": (2, 7)}).shapes
    assert found == dict.fromkeys(names, (2, 7))
    # Given two different values, a name no longer helps.
    apart = {"ids": (2, 7), "mask": (2, 8)}
    assert _proposed(inputs, apart) == {**apart, "types": (2, 128)}


def test_a_batch_is_one_wherever_it_stands() -> None:
    inputs = [_input("batch", 512), _input(2, "batch", 128, name="state"),
              _input("n", 4, name="a"), _input(3, "n", name="b")]  # fmt: skip
    found = fix_shapes(inputs, {})
    assert list(found.shapes.values()) == [(1, 512), (2, 1, 128), (1, 4), (3, 1)]


@pytest.mark.parametrize(
    ("shape", "dtype", "file", "expected"),
    [
        (("N", 3, "height", "width"), F32, "m", (1, 3, 224, 224)),
        ((None, None, None, 3), U8, "m", (1, 224, 224, 3)),
        (("h", "w", 3), U8, "m", (224, 224, 3)),
        ((None, None, 1), F32, "m", (224, 224, 1)),
        ((1, 1, "h", 320), F32, "m", (1, 1, 320, 320)),
        ((None, 3, None, None), F32, "ch_PP-OCRv4_det.onnx", (1, 3, 640, 640)),
        ((None, 3, None, None), F32, "ch_PP-OCRv4_rec_infer.onnx", (1, 3, 48, 320)),
        ((None, 3, 48, None), F32, "m", (1, 3, 48, 320)),
        ((None, None, None, None), F32, "yolov8n.onnx", (1, 3, 640, 640)),
        (("N", 64, None, None), F32, "m", (1, 64, 32, 32)),
        (("batch", 12, "past_length", 64), F32, "m", (1, 12, 16, 64)),
        (("batch", "samples"), F32, "m", (1, 16000)),
        (("batch", 1, "samples"), F32, "m", (1, 1, 16000)),
        (("samples",), F32, "m", (16000,)),
        (("batch", "frames", 80), F32, "m", (1, 100, 80)),
        ((None, 80, None), F32, "m", (1, 80, 100)),
        ((None, "sequence", 384), F32, "m", (1, 128, 384)),
        ((None, None), I64, "m", (1, 128)),
        (("n_tokens",), I64, "m", (128,)),
        (("num_boxes", 4), F32, "m", (100, 4)),
        ((None, 3, None, None, None), F32, "m", (1, 3, 16, 112, 112)),
        ((2, None, 128), F32, "m", (2, 1, 128)),  # the state of recurrent layers
    ],
)
def test_what_is_proposed_is_plausible(shape: Any, dtype: DType, file: str, expected: Any) -> None:
    assert _proposed([_input(*shape, dtype=dtype)], file=file) == {"x": expected}


def test_an_input_of_any_rank_is_asked_for() -> None:
    inputs = [OpenInput("x", F32, None), OpenInput("odd name", I64, None)]
    assert _proposed(inputs) == {"x": (1, 3, 224, 224), "odd name": (1, 128)}
    assert fix_shapes(inputs[:1], {"x": (5,)}).shapes == {"x": (5,)}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"x": (4,)}, r"--input-shape x: expected a shape that fits \[n,3\], found \[4\]"),
        ({"x": (1,)}, r"expected a shape that fits \[n,3\]"),
        ({"x": (1, 3), "z": (1,)}, r"expected an input of the model \(x\), found z"),
    ],
)
def test_shapes_that_do_not_fit(given: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        fix_shapes([_input("n", 3)], given)


def _resizable(files: Any, shape: Sequence[int], signature: Sequence[int]) -> bytes:
    """A convolution, its mean over rows and columns, and a product with a constant."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    tensors = [
        files.tensor("x", shape, signature=signature),
        files.tensor("w", w.shape, data=w),
        files.tensor("b", [4], data=np.arange(4, dtype=np.float32)),
        files.tensor("axes", [2], "INT32", data=np.array([1, 2], np.int32)),
        files.tensor("v", [4], data=rng.standard_normal(4).astype(np.float32)),
        *(files.tensor(n, [1, 1, 1, 4]) for n in ("c", "m", "y")),
    ]
    fields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}
    chain = [
        files.op("CONV_2D", ["x", "w", "b"], ["c"], "Conv2DOptions", fields),
        files.op("MEAN", ["c", "axes"], ["m"], "ReducerOptions", {"KeepDims": True}),
        files.op("MUL", ["m", "v"], ["y"], "MulOptions"),
    ]
    return bytes(files.model(files.graph(tensors, chain, ["x"], ["c", "y"])))


@pytest.mark.parametrize("shape", [None, (1, 9, 5, 3), (3, 4, 4, 3)])
def test_a_tflite_file_is_resized_as_litert_resizes_it(files: Any, litert: Any, shape: Any) -> None:
    content = _resizable(files, (1, 4, 4, 3), (-1, -1, -1, 3))
    graph = graph_from_tflite(content, "yolo", None if shape is None else {"x": shape})
    x = np.random.default_rng(2).standard_normal(shape or (1, 4, 4, 3)).astype(np.float32)
    expected = litert(content, {"x": x})
    for name, found in evaluate(graph, {"x": x}).outputs.items():
        np.testing.assert_allclose(found, expected[name], rtol=1e-5, atol=1e-5)
    hint = (
        "the shape of input x [1,?,?,3] is open and becomes [1,4,4,3]; "
        "for another one: --input-shape x=1,640,640,3"
    )
    assert graph.notes == ((hint,) if shape is None else ())


def test_what_a_tflite_file_stores_is_the_default(files: Any) -> None:
    batch = graph_from_tflite(_resizable(files, (1, 8, 8, 3), (-1, 8, 8, 3)), "m")
    (note,) = batch.notes
    assert note.startswith("the batch of input x is open and becomes 1")
    none = graph_from_tflite(_resizable(files, (-1, 8, 8, 3), ()), "m")
    assert none.notes == batch.notes and none.tensors["x"].shape == (1, 8, 8, 3)
    fixed = _resizable(files, (1, 8, 8, 3), ())
    assert not graph_from_tflite(fixed, "m").notes
    # As in LiteRT, an input with a fixed shape in the file may be resized, too.
    assert graph_from_tflite(fixed, "m", {"x": (2, 6, 6, 3)}).tensors["y"].shape == (2, 1, 1, 4)


@pytest.mark.parametrize(
    ("content", "shapes", "complaint"),
    [
        (((1, 4, 4, 3), ()), {"z": (1,)}, r"expected an input of the model \(x\), found z"),
        (((1, 4, 4, 3), ()), {"x": (1, 4, 4)}, r"operator 0 \(CONV_2D\)"),
        (((1, 0, 1, 3), (-1, -1, -1, 3)), {}, "the shape of .* --input-shape x=1,224,224,3$"),
        (((1, -1, 4, 3), ()), {}, "the shape of input x .1,.,4,3. is open"),
        (((1, 4, 4, 3), ()), {"x": (1,) * 9}, "at most 8 dimensions|CONV_2D"),
        (((1, 4, 4, 3), ()), {"x": (1 << 20, 1 << 20, 1 << 20, 3)}, "input tensor 0"),
    ],
)
def test_resizes_that_fail(files: Any, content: Any, shapes: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint) as error:
        graph_from_tflite(_resizable(files, *content), "m", shapes)
    assert "\n" not in str(error.value)


def test_an_onnx_file_says_what_is_open(tmp_path: Path) -> None:
    ends = [value("x", ["n", 3, "h", "w"]), value("y", ["n", 3, "h", "w"])]
    path = save(model([node("Add", ["x", "y"], ["z"])], ends, ["z"]), tmp_path, "my model.onnx")
    with pytest.raises(InputError) as error:
        import_model(path)
    assert str(error.value) == (
        "my model.onnx: inputs x [1,3,h,w], y [1,3,h,w]: expected fixed shapes, found open ones; "
        f"give them: edgekit compile '{path}' --input-shape x=1,3,224,224"
    )
    graph = import_model(path, {"x": (2, 3, 5, 4)})
    assert graph.tensors["z"].shape == (2, 3, 5, 4) and not graph.notes


def test_what_is_proposed_goes_through_the_model(tmp_path: Path) -> None:
    """Among lengths plausible for audio, the one for which the operators' shapes match."""
    weights = {"w": np.ones((576, 4), np.float32)}
    path = save(
        model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["batch", "n"])], ["y"], weights),
        tmp_path,
    )
    with pytest.raises(InputError, match=r"--input-shape x=1,576$"):
        import_model(path)


def test_no_shapes_are_proposed_if_none_of_them_fits(tmp_path: Path) -> None:
    weights = {"w": np.ones((577, 4), np.float32)}
    path = save(
        model([node("MatMul", ["x", "w"], ["y"])], [value("x", ["batch", "n"])], ["y"], weights),
        tmp_path,
    )
    with pytest.raises(InputError) as error:
        import_model(path)
    message = str(error.value)
    assert "give them with --input-shape x=SIZES (no common sizes fit: operator 0" in message
    assert "edgekit compile" not in message


@pytest.mark.parametrize("name", ["state", "memory"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_batch_of_a_state_is_proposed_as_that_of_the_input(
    tmp_path: Path, name: str, layers: int
) -> None:
    """As in snakers4/silero-vad: sound [?,?] and the state [2,?,128] of a recurrent layer."""
    rng = np.random.default_rng(3)
    values = {
        "shape": np.array([8, 1, 64], np.int64),
        "w": rng.standard_normal((layers, 16, 64)).astype(np.float32),
        "r": rng.standard_normal((layers, 16, 4)).astype(np.float32),
    }
    direction = "bidirectional" if layers == 2 else "forward"
    nodes = [
        node("Reshape", ["x", "shape"], ["s"]),
        node("LSTM", ["s", "w", "r", "", "", name, name], ["", "h"], hidden_size=4,
             direction=direction),
    ]  # fmt: skip
    ends = [value("x", [None, None]), value(name, [layers, None, 4])]
    path = save(model(nodes, ends, ["h"], values), tmp_path)
    with pytest.raises(
        InputError, match=rf"--input-shape x=1,512 --input-shape {name}={layers},1,4$"
    ):
        import_model(path)


def test_a_tflite_file_gets_no_proposal_that_does_not_fit(files: Any) -> None:
    tensors = [files.tensor("x", [1, 4], signature=[-1, -1]),
               files.tensor("v", [4], data=np.arange(4, dtype=np.float32)),
               files.tensor("y", [1, 4])]  # fmt: skip
    chain = [files.op("MUL", ["x", "v"], ["y"], "MulOptions")]
    graph = graph_from_tflite(bytes(files.model(files.graph(tensors, chain, ["x"], ["y"]))), "m")
    assert graph.notes == (
        "the shape of input x [1,?] is open and becomes [1,4]; --input-shape sets another one",
    )
