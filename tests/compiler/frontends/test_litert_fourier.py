"""Spectra against LiteRT: RFFT2D, and operators on complex tensors."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, check, fixed, given

pytestmark = pytest.mark.peers

_RNG = np.random.default_rng(3)


def _spectrum(files, shape, lengths, last, moved=False):
    tensor = files.tensor
    tensors = [
        tensor("x", shape), tensor("n", [2], "INT32", np.array(lengths, np.int32)),
        tensor("c", [1], "COMPLEX64"), tensor("y", [1]),
    ]  # fmt: skip
    chain, source = [files.op("RFFT2D", ["x", "n"], ["c"], "Rfft2dOptions")], "c"
    if moved:
        flat = np.array([-1, lengths[1] // 2 + 1], np.int32)
        tensors += [tensor("s", [2], "INT32", flat), tensor("d", [1], "COMPLEX64")]
        chain.append(files.op("RESHAPE", ["c", "s"], ["d"], "ReshapeOptions"))
        source = "d"
    chain.append(files.op(last, [source], ["y"], "CastOptions" if last == "CAST" else ""))
    return files.model(files.graph(tensors, chain, ["x"], ["y"]))


@pytest.mark.parametrize("last", ["REAL", "IMAG", "COMPLEX_ABS", "CAST"])
@pytest.mark.parametrize(
    ("shape", "lengths"),
    [((3, 1, 16), (1, 16)), ((3, 1, 12), (1, 16)), ((2, 8, 8), (8, 8)), ((2, 3, 5, 9), (4, 8))],
)
def test_agrees_with_litert(files, litert, shape, lengths, last):
    content = _spectrum(files, shape, lengths, last)
    x = {"x": _RNG.normal(0, 1, shape).astype(np.float32)}
    found = evaluate(graph_from_tflite(content, "m"), x).outputs["y"]
    expected = litert(content, x)["y"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_complex_tensors_are_reshaped(files, litert):
    content = _spectrum(files, (4, 1, 8), (1, 8), "COMPLEX_ABS", moved=True)
    x = {"x": _RNG.normal(0, 1, (4, 1, 8)).astype(np.float32)}
    found = evaluate(graph_from_tflite(content, "m"), x).outputs["y"]
    np.testing.assert_allclose(found, litert(content, x)["y"], rtol=0, atol=1e-5)


def test_a_long_transform_is_refused(files):
    with pytest.raises(InputError, match="transforms of 1 to"):
        graph_from_tflite(_spectrum(files, (1, 1, 8), (1, 1 << 30), "REAL"), "m")


def test_a_part_of_a_plain_tensor_is_refused(files):
    tensors = [files.tensor("x", [3]), files.tensor("y", [3])]
    graph = files.graph(tensors, [files.op("REAL", ["x"], ["y"])], ["x"], ["y"])
    with pytest.raises(InputError, match="expected a complex tensor"):
        graph_from_tflite(files.model(graph), "m")


def _fake_quantization(bits):
    fields = {"Min": -1.3, "Max": 2.9, "NumBits": bits}
    x = _RNG.normal(0, 2, (3, 41)).astype(np.float32)
    out = [given(np.zeros((3, 41), np.float32))]
    return Single("FAKE_QUANT", [given(x)], out, "FakeQuantOptions", fields)


@pytest.mark.parametrize("bits", [8, 4])
def test_fake_quantization(files, litert, bits):
    check(files, litert, _fake_quantization(bits))


def _audio(code, x, out, options, *more):
    ins = [given(x), *more]
    outs = [given(np.zeros(out, np.float32))]
    return Single(code, ins, outs, custom=bytes(flexbuffers.Dumps(options)))


@pytest.mark.parametrize(("window", "stride"), [(64, 32), (100, 37), (40, 50)])
@pytest.mark.parametrize("squared", [False, True])
def test_spectrograms_of_windows(files, litert, window, stride, squared):
    x = _RNG.normal(0, 1, (333, 2)).astype(np.float32)
    options = {"window_size": window, "stride": stride, "magnitude_squared": squared}
    check(files, litert, _audio("CUSTOM:AudioSpectrogram", x, (1,), options))


def contents(files) -> list[bytes]:
    parts = [
        _spectrum(files, (3, 1, 16), (1, 16), part) for part in ("REAL", "IMAG", "COMPLEX_ABS")
    ]
    x = np.zeros((64, 1), np.float32)
    rate = fixed(np.array([16000], np.int32))
    singles = [
        _fake_quantization(8),
        _audio("CUSTOM:AudioSpectrogram", x, (1,), {"window_size": 16, "stride": 8}),
        _audio("CUSTOM:Mfcc", np.zeros((1, 2, 257), np.float32), (1,), {}, rate),
    ]
    return parts + [single.content(files) for single in singles]


@pytest.mark.parametrize(("bands", "kept", "low", "high"), [(40, 13, 20, 4000), (20, 20, 0, 7999)])
def test_cepstra(files, litert, bands, kept, low, high):
    x = _RNG.uniform(0, 5, (2, 7, 257)).astype(np.float32)
    options = {"filterbank_channel_count": bands, "dct_coefficient_count": kept}
    options |= {"lower_frequency_limit": float(low), "upper_frequency_limit": float(high)}
    rate = fixed(np.array([16000], np.int32))
    check(files, litert, _audio("CUSTOM:Mfcc", x, (1,), options, rate), near=3e-5)


def test_a_window_longer_than_the_samples_is_refused(files):
    options = {"window_size": 400, "stride": 1, "magnitude_squared": True}
    single = _audio("CUSTOM:AudioSpectrogram", np.zeros((333, 1), np.float32), (1,), options)
    with pytest.raises(InputError, match="expected a window of 2 to 333"):
        graph_from_tflite(single.content(files), "m")
