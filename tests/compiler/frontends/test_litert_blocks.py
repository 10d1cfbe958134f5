"""Weights with a scale per block, against LiteRT where it has a kernel, otherwise the schema."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError

_TYPES = {"float16": "FLOAT16", "float32": "FLOAT32", "int8": "INT8", "int32": "INT32"}
_BITS = {"INT4": 4, "INT8": 8}


class Weights:
    """Quantized weights [rows, columns] with a scale for every `size` values of a row.

    Scales have few mantissa bits, so that LiteRT's delegate, which truncates them, preserves them.
    """

    def __init__(self, seed, shape, size, type="INT4", scale=np.float16, zero=None) -> None:
        rng = np.random.default_rng(seed)
        self.shape, self.size, self.type = shape, size, type
        half = 1 << (_BITS[type] - 1)
        self.quantized = rng.integers(-half, half, shape).astype(np.int8)
        blocks = (shape[0], shape[1] // size)
        self.scale = (rng.integers(1, 256, blocks) / 2048).astype(scale)
        self.zero = None if zero is None else rng.integers(-3, 4, blocks).astype(zero)

    def values(self):
        rows = self.quantized.reshape(*self.scale.shape, self.size).astype(np.float32)
        zero = 0 if self.zero is None else self.zero[..., None]
        return ((rows - zero) * self.scale.astype(np.float32)[..., None]).reshape(self.shape)

    def tensors(self, files):
        quantized = self.quantized
        if self.type == "INT4":
            pairs = (quantized.reshape(-1) & 15).astype(np.uint8)
            quantized = pairs[::2] | pairs[1::2] << 4
        zero = 0 if self.zero is None else "zero"
        made = [_constant(files, "scale", self.scale)]
        if self.zero is not None:
            made.append(_constant(files, "zero", self.zero))
        blocks = ("scale", zero, self.size)
        return [*made, files.tensor("w", self.shape, self.type, quantized, blocks=blocks)]


def _constant(files, name, value):
    return files.tensor(name, value.shape, _TYPES[value.dtype.name], value)


def _file(files, op, tensors, x, out):
    kind = _TYPES[x.dtype.name]
    known = [files.tensor("x", x.shape, kind), *tensors, files.tensor("y", out)]
    return files.model(files.graph(known, [op], ["x"], ["y"]))


def _dense(files, weights, x, activation=0, bias=True):
    n = weights.shape[0]
    tensors, ins = weights.tensors(files), ["x", "w"]
    if bias:
        tensors.append(_constant(files, "b", np.linspace(-2, 2, n).astype(np.float32)))
        ins.append("b")
    fields = {"FusedActivationFunction": activation}
    op = files.op("FULLY_CONNECTED", ins, ["y"], "FullyConnectedOptions", fields)
    return _file(files, op, tensors, x, (len(x), n))


def _lookup(files, weights, ids):
    op = files.op("EMBEDDING_LOOKUP", ["x", "w"], ["y"])
    return _file(files, op, weights.tensors(files), ids, (len(ids), weights.shape[1]))


def _rows(seed, m, k):
    return np.random.default_rng(seed).normal(0.5, 1, (m, k)).astype(np.float32)


_IDS = np.array([3, 0, 9, 3], np.int32)


def contents(files) -> list[bytes]:
    weights = Weights(1, (12, 64), 32)
    return [_dense(files, weights, _rows(1, 2, 64)), _lookup(files, weights, _IDS)]


def _found(content, x):
    return evaluate(graph_from_tflite(content, "case"), {"x": x}).outputs["y"]


def _near(found, wanted, near):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=near * np.abs(wanted).max())


@pytest.mark.peers
@pytest.mark.parametrize(
    ("m", "n", "k", "size", "near"),
    [(1, 8, 64, 16, 1e-6), (5, 32, 96, 48, 1e-6), (3, 8, 96, 32, 1e-4), (4, 40, 256, 128, 1e-4)],
)
@pytest.mark.parametrize("bias", [True, False])
def test_fully_connected(files, litert, m, n, k, size, near, bias):
    x = _rows(k, m, k)
    content = _dense(files, Weights(n, (n, k), size), x, bias=bias)
    _near(_found(content, x), litert(content, {"x": x}, True)["y"], near)


@pytest.mark.peers
def test_the_activation_of_a_layer(files, litert):
    x = _rows(2, 3, 64)
    content = _dense(files, Weights(2, (8, 64), 32), x, activation=1)
    wanted = litert(content, {"x": x}, True)["y"]
    assert wanted.min() == 0
    _near(_found(content, x), wanted, 1e-4)


@pytest.mark.peers
@pytest.mark.parametrize("size", [8, 32])
def test_rows_of_a_table(files, litert, size):
    content = _lookup(files, Weights(size, (10, 32), size), _IDS)
    np.testing.assert_array_equal(_found(content, _IDS), litert(content, {"x": _IDS})["y"])


@pytest.mark.parametrize("scale", [np.float16, np.float32])
@pytest.mark.parametrize("zero", [None, np.int8, np.int32])
@pytest.mark.parametrize("type", ["INT4", "INT8"])
def test_what_litert_has_no_kernel_for_is_what_the_schema_says(files, type, zero, scale):
    weights = Weights(5, (10, 32), 8, type, scale, zero)
    content = _lookup(files, weights, _IDS)
    np.testing.assert_array_equal(_found(content, _IDS), weights.values()[_IDS])
    gather = files.op("GATHER", ["w", "x"], ["y"], "GatherOptions")
    content = _file(files, gather, weights.tensors(files), _IDS, (4, 32))
    np.testing.assert_array_equal(_found(content, _IDS), weights.values()[_IDS])
    x, n = _rows(6, 3, 32), weights.shape[0]
    ops = [files.op("DEQUANTIZE", ["w"], ["f"]), files.op("FULLY_CONNECTED", ["x", "f"], ["y"])]
    ends = [files.tensor("x", x.shape), files.tensor("f", weights.shape), files.tensor("y", (3, n))]
    content = files.model(files.graph([*ends, *weights.tensors(files)], ops, ["x"], ["y"]))
    _near(_found(content, x), x @ weights.values().T, 1e-6)


def test_a_layer_of_8_bit_blocks_computes_in_f32(files):
    weights, x = Weights(7, (8, 64), 32, "INT8"), _rows(7, 3, 64)
    wanted = x @ weights.values().T + np.linspace(-2, 2, 8)
    _near(_found(_dense(files, weights, x), x), wanted, 1e-6)


@pytest.mark.parametrize(
    ("blocks", "named"),
    [
        (("scale", 0, 0), "blocks that divide"),
        (("scale", 0, -8), "blocks that divide"),
        (("scale", 0, 24), "blocks that divide"),
        (("scale", 0, 16), "expected 16 scales of blocks, found 32"),
        (("scale", 99, 8), "expected a tensor from 0"),
        ((-5, 0, 8), "expected a tensor from 0"),
        (("w", 0, 8), "dense constant of FLOAT16 or FLOAT32"),
        (("x", 0, 8), "dense constant of FLOAT16 or FLOAT32"),
        (("scale", "scale", 8), "dense constant of INT4"),
        (("holes", 0, 8), "finite block scales"),
        (("scale", "few", 8), "expected 32 zero points of blocks, found 2"),
    ],
)
def test_blocks_that_fit_nothing(files, blocks, named):
    scale = np.ones((8, 4), np.float16)
    tensors = [
        _constant(files, "scale", scale),
        _constant(files, "holes", scale * np.float16("nan")),
        _constant(files, "few", np.zeros(2, np.int8)),
        files.tensor("w", (8, 32), "INT8", np.ones((8, 32), np.int8), blocks=blocks),
    ]
    op = files.op("FULLY_CONNECTED", ["x", "w"], ["y"], "FullyConnectedOptions")
    with pytest.raises(InputError, match=named):
        graph_from_tflite(_file(files, op, tensors, np.ones((2, 32), np.float32), (2, 8)), "m")


@pytest.mark.parametrize("kind", [2, 3])
def test_a_kind_of_scales_without_scales(files, kind):
    w = np.ones((2, 32), np.int8)
    op = files.op("FULLY_CONNECTED", ["x", "w"], ["y"], "FullyConnectedOptions")
    tensors = [files.tensor("w", w.shape, "INT8", w, details=kind)]
    with pytest.raises(InputError, match=r"\(w\): expected scales of channels or of blocks"):
        graph_from_tflite(_file(files, op, tensors, np.ones((1, 32), np.float32), (1, 2)), "m")
