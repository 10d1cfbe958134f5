"""StableHLO operators in TensorFlow Lite, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, check, fixed, given

pytestmark = pytest.mark.peers

_KINDS = ("float32", "int32", "int64", "int8")


def _values(kind, *shape):
    return np.random.default_rng(2).integers(-20, 20, shape).astype(kind)


def _wide(*values):
    return np.array(values, np.int64)


def _pad(kind, low, high, between):
    fields = {"EdgePaddingLow": _wide(*low), "EdgePaddingHigh": _wide(*high)}
    fields["InteriorPadding"] = _wide(*between)
    ins = [given(_values(kind, 3, 4)), given(np.array(7, kind))]
    return Single("STABLEHLO_PAD", ins, [given(np.zeros((1, 1), kind))], "StablehloPadOptions",
                  fields)  # fmt: skip


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize(
    "sizes",
    [
        ((1, 0), (2, 3), (0, 0)),
        ((0, 1), (1, 0), (2, 1)),
        ((-1, 2), (0, -2), (1, 0)),
        ((-4, -2), (6, 1), (3, 1)),
    ],
)
def test_padding(files, litert, kind, sizes):
    check(files, litert, _pad(kind, *sizes))


def _dilation(kind, steps):
    sizes = fixed(np.array(steps, np.int32))
    ins = [given(_values(kind, 3, 4)), sizes, fixed(np.array(9, kind))]
    outs = [given(np.zeros((1, 1), kind))]
    return Single("DILATE", ins, outs, "DilateOptions")


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (4, 1)])
def test_dilation(files, litert, kind, steps):
    check(files, litert, _dilation(kind, steps))


def _window(function, kind, sizes, strides, dilations, initial):
    x = _values(kind, 2, 9, 8) if kind != "bool" else _values("int8", 2, 9, 8) > 0
    ins = [given(x), fixed(np.array(initial, kind))]
    ins += [fixed(_wide(*v)) for v in (sizes, strides, dilations)]
    outs = [given(np.zeros((1, 1, 1), kind))]
    return Single(
        "REDUCE_WINDOW", ins, outs, "ReduceWindowOptions", {"ReduceFunction": function}
    )  # fmt: skip


_WINDOWS = [
    (1, "float32", 0), (1, "int32", 3), (2, "float32", 1), (3, "int64", 90),
    (4, "float32", -99), (4, "int8", -128), (5, "bool", True), (6, "bool", False),
]  # fmt: skip


@pytest.mark.parametrize(("function", "kind", "initial"), _WINDOWS)
@pytest.mark.parametrize(
    "window", [((1, 3, 2), (1, 2, 1), (1, 1, 1)), ((2, 2, 3), (1, 3, 2), (1, 2, 2))]
)
def test_windows(files, litert, function, kind, initial, window):
    check(files, litert, _window(function, kind, *window, initial))


def contents(files) -> list[bytes]:
    made = [_pad(kind, (1, 0), (2, 3), (0, 1)) for kind in _KINDS]
    made += [_dilation(kind, (2, 3)) for kind in _KINDS]
    one = (1, 1, 1)
    made += [_window(f, kind, (1, 3, 2), one, one, start) for f, kind, start in _WINDOWS]
    return [*(single.content(files) for single in made), _composite(files, 1)]


def _composite(files, number):
    tensors = [files.tensor(name, [3]) for name in ("x", "y")]
    attributes = np.frombuffer(bytes(flexbuffers.Dumps({})), np.uint8)
    options = {"Name": "odml.twice", "DecompositionSubgraphIndex": number}
    options["CompositeAttributes"] = attributes
    call = files.op("STABLEHLO_COMPOSITE", ["x"], ["y"], "StableHLOCompositeOptions", options)
    inner = [files.tensor(name, [3]) for name in ("a", "b")]
    twice = files.op("ADD", ["a", "a"], ["b"], "AddOptions")
    return files.model(
        files.graph(tensors, [call], ["x"], ["y"]), files.graph(inner, [twice], ["a"], ["b"])
    )


def test_a_composite_is_its_decomposition(files, litert):
    content, x = _composite(files, 1), {"x": np.array([1, -2, 3], np.float32)}
    found = evaluate(graph_from_tflite(content, "m"), x).outputs["y"]
    np.testing.assert_array_equal(found, litert(content, x)["y"])


@pytest.mark.parametrize("number", [0, 2, -1])
def test_a_composite_without_a_decomposition_is_refused(files, number):
    with pytest.raises(InputError, match="subgraph"):
        graph_from_tflite(_composite(files, number), "m")


@pytest.mark.parametrize(
    "single",
    [
        _pad("int32", (1 << 40, 0), (0, 0), (0, 0)),
        _pad("int32", (0, 0), (0, 0), (-1, 0)),
        _pad("int32", (-9, 0), (0, 0), (0, 0)),
        _window(1, "int32", (1, 1 << 20, 1), (1, 1, 1), (1, 1, 1), 0),
        _window(1, "bool", (1, 2, 1), (1, 1, 1), (1, 1, 1), True),
        _window(0, "int32", (1, 2, 1), (1, 1, 1), (1, 1, 1), 0),
    ],
)
def test_sizes_without_sense_are_refused(files, single):
    with pytest.raises(InputError, match="expected"):
        graph_from_tflite(single.content(files), "m")
