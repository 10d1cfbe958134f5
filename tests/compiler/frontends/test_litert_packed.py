"""Sub-byte packed weights, against LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError

pytestmark = pytest.mark.peers

_KINDS = {"INT2": (2, -2, 2), "INT4": (4, -8, 8), "UINT4": (4, 0, 16)}
_ROWS, _COLUMNS = 12, 36
_IDS = np.array([3, 0, 11, 3], np.int32)


def _packed(quantized, bits):
    """Pack values into bytes, lowest bits first."""
    flat = (quantized.reshape(-1) & ((1 << bits) - 1)).astype(np.uint8)
    groups = np.append(flat, np.zeros(-flat.size % (8 // bits), np.uint8)).reshape(-1, 8 // bits)
    shifted = groups << (bits * np.arange(8 // bits, dtype=np.uint8))
    return shifted.sum(axis=1).astype(np.uint8)


def _weights(files, kind, shape, channels, cut=0):
    bits, low, high = _KINDS[kind]
    rng = np.random.default_rng(len(shape) + bits)
    scale = rng.uniform(0.01, 0.1, shape[0] if channels else 1).astype(np.float32)
    data = _packed(rng.integers(low, high, shape), bits)
    return files.tensor("w", shape, kind, data[: len(data) - cut], scale, [0] * scale.size)


def _file(files, ops, weights, x, out, *more):
    kind = {"float32": "FLOAT32", "int32": "INT32"}[x.dtype.name]
    tensors = [files.tensor("x", x.shape, kind), weights, *more, files.tensor("y", out)]
    return files.model(files.graph(tensors, ops, ["x"], ["y"]))


def _rows(seed=1, count=3):
    return np.random.default_rng(seed).normal(0, 1, (count, _COLUMNS)).astype(np.float32)


def _dense(files, kind, channels):
    op = files.op("FULLY_CONNECTED", ["x", "w"], ["y"], "FullyConnectedOptions")
    weights = _weights(files, kind, (_ROWS, _COLUMNS), channels)
    return _file(files, [op], weights, _rows(), (3, _ROWS)), _rows()


def _lookup(files, kind, channels):
    op = files.op("EMBEDDING_LOOKUP", ["x", "w"], ["y"])
    weights = _weights(files, kind, (_ROWS, _COLUMNS), channels)
    return _file(files, [op], weights, _IDS, (len(_IDS), _COLUMNS)), _IDS


def _dequantized(files, kind, channels, shape=(_ROWS, _COLUMNS), cut=0):
    ops = [
        files.op("DEQUANTIZE", ["w"], ["f"], "DequantizeOptions"),
        files.op("ADD", ["x", "f"], ["y"], "AddOptions"),
    ]
    x = np.linspace(-1, 1, shape[-1], dtype=np.float32)
    weights = _weights(files, kind, shape, channels, cut)
    return _file(files, ops, weights, x, shape, files.tensor("f", shape)), x


_BUILDERS = {
    **{f"{kind}-{name}": (build, kind) for kind in ("INT2", "INT4") for name, build in (
        ("dense", _dense), ("lookup", _lookup),
    )},
    **{f"{kind}-dequantized": (_dequantized, kind) for kind in _KINDS},
}  # fmt: skip


def contents(files) -> list[bytes]:
    return [build(files, kind, True)[0] for build, kind in _BUILDERS.values()]


@pytest.mark.parametrize("channels", [True, False])
@pytest.mark.parametrize("name", _BUILDERS)
def test_agrees_with_litert(files, litert, name, channels):
    build, kind = _BUILDERS[name]
    content, x = build(files, kind, channels)
    wanted = litert(content, {"x": x})["y"]
    found = evaluate(graph_from_tflite(content, "case"), {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("kind", _KINDS)
def test_the_last_byte_may_be_half_full(files, litert, kind):
    content, x = _dequantized(files, kind, True, (3, 5))
    wanted = litert(content, {"x": x})["y"]
    found = evaluate(graph_from_tflite(content, "case"), {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", _KINDS)
def test_too_few_bytes_are_refused(files, kind):
    content, _ = _dequantized(files, kind, True, cut=1)
    with pytest.raises(InputError, match=r"\(w\): expected \d+ bytes"):
        graph_from_tflite(content, "case")
