"""Recurrent operators of quantized 8-bit values against LiteRT, to the last bit, run after run."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, fixed, given, variable

pytestmark = pytest.mark.peers

_RUNS = 3


def _codes(rng, *shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def _weights(rng, *shape, kind=np.int8):
    """Weights of a product whose sums are about 1."""
    most = np.iinfo(kind).max
    scale = float(rng.uniform(0.7, 3)) / most / shape[-1] ** 0.5
    return fixed(rng.integers(-most, most + 1, shape).astype(kind), scale, [0])


def _bias(rng, count, most=5000):
    return fixed(rng.integers(-most, most, count).astype(np.int32), 1e-4, [0])


def _norm(rng, cells, scale):
    """Weights of about 1 in units of `scale` / 2^15."""
    values = rng.integers(-32767, 32768, cells).astype(np.int16)
    return fixed(values, float(scale) / 2**15, [0])


def _lstm(
    seed, batch=2, time=4, size=5, cells=6, out=None, coupled=False, peephole=False,
    time_first=False, clip=0.0, cell_scale=2.0**-11, zero=3, hidden_zero=-7, norm=0.0,
    gate_scale=2.0**-12, most=5000,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    width = out or cells
    gates = [g for g in range(4) if not (coupled and g == 0)]

    def each(make, of=gates):
        return [make() if g in of else None for g in range(4)]

    ins = each(lambda: _weights(rng, cells, size)) + each(lambda: _weights(rng, cells, width))
    peepholes = each(lambda: _weights(rng, cells, kind=np.int16), gates if peephole else [])
    ins += [peepholes[0], peepholes[1], peepholes[3]]
    ins += each(lambda: _bias(rng, cells, most))
    ins += [_weights(rng, out, cells), _bias(rng, out)] if out else [None, None]
    ins += [variable((batch, width), "int8", 0.009, -4)]
    ins += [variable((batch, cells), "int16", cell_scale)]
    ins += each(lambda: _norm(rng, cells, norm), gates if norm else [])
    shape = (time, batch, size) if time_first else (batch, time, size)
    hidden = given(np.zeros((1, 1), np.int8), 0.0081, hidden_zero)
    between = [given(np.zeros(1, np.int16), gate_scale)] * 4 + [hidden]
    fields = {"FusedActivationFunction": 4, "TimeMajor": time_first}
    fields |= {"CellClip": clip, "ProjClip": clip / 2}
    return Single(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", [given(_codes(rng, *shape), 0.02, zero), *ins],
        [given(np.zeros((1, 1, 1), np.int8), 0.009, -4)], "UnidirectionalSequenceLSTMOptions",
        fields, between=between,
    )  # fmt: skip


def _svdf(seed, batch=2, size=5, units=4, rank=1, frames=4, bias=True, zero=3, out_zero=-9):
    rng = np.random.default_rng(seed)
    ins = [
        given(_codes(rng, batch, size), 0.02, zero),
        _weights(rng, units * rank, size),
        _weights(rng, units * rank, frames, kind=np.int16),
        _bias(rng, units) if bias else None,
        variable((batch, units * rank * frames), "int16", 1 / 8192),
    ]
    out = given(np.zeros((1, 1), np.int8), 0.011, out_zero)
    return Single("SVDF", ins, [out], "SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1})


def _one_step(seed, **fields):
    whole = _lstm(seed, time=1, **fields)
    x = given(whole.ins[0].value[:, 0], 0.02, 3)
    options = {k: v for k, v in whole.fields.items() if k != "TimeMajor"}
    out = given(np.zeros((1, 1), np.int8), 0.009, -4)
    return Single("LSTM", [x, *whole.ins[1:]], [out], "LSTMOptions", options, between=whole.between)


CASES = {
    "lstm": _lstm(1),
    "lstm-long": _lstm(2, batch=1, time=150, size=40, cells=33),
    "lstm-one-step": _lstm(3, batch=3, time=1, size=1, cells=1),
    "lstm-time-first": _lstm(4, time_first=True, zero=-128),
    "lstm-clipped": _lstm(5, clip=0.3, time=9),
    "lstm-wide-cell": _lstm(6, cell_scale=2.0**-9, time=30),
    "lstm-narrow-cell": _lstm(7, cell_scale=2.0**-15, time=30),
    "lstm-coupled": _lstm(8, coupled=True, time=20, cells=17),
    "lstm-projection": _lstm(9, out=3, time=20, cells=17),
    "lstm-projection-saturated": _lstm(9, out=3, time=20, cells=17, hidden_zero=-128),
    "lstm-hidden-saturated": _lstm(9, time=20, cells=17, hidden_zero=127),
    "lstm-peephole": _lstm(10, peephole=True, time=20, cells=17),
    "lstm-all": _lstm(11, out=17, time=20, cells=17, coupled=True, peephole=True, clip=0.9),
    "lstm-norm": _lstm(14, norm=1.0, time=20, cells=16, most=1 << 24),
    "lstm-norm-odd": _lstm(15, norm=2.5, time=20, cells=17, size=9, gate_scale=0.001),
    "lstm-norm-coupled": _lstm(17, norm=0.3, coupled=True, time=20, cells=33),
    "lstm-norm-peephole": _lstm(19, norm=4.0, peephole=True, time=20, cells=12),
    "lstm-norm-projection": _lstm(21, norm=1.0, out=5, time=20, cells=17, most=1 << 27),
    "lstm-norm-wide": _lstm(20, norm=1.0, cells=300, time=3, gate_scale=2.0**-15),
    "lstm-norm-of-nothing": _lstm(22, norm=1.0, cells=9, gate_scale=9.0, most=1 << 26),
    "lstm-norm-overflow": _lstm(23, norm=0.1, cells=90, most=(1 << 31) - 1),
    "lstm-norm-all": _lstm(
        18, norm=1.5, out=17, time=20, cells=17, coupled=True, peephole=True, clip=0.9
    ),
    "lstm-step-norm": _one_step(24, norm=1.0, cells=20),
    "lstm-step": _one_step(12, batch=3),
    "lstm-step-projection": _one_step(13, out=9, coupled=True),
    "svdf": _svdf(1),
    "svdf-rank-2": _svdf(2, rank=2, bias=False),
    "svdf-one-frame": _svdf(3, frames=1, zero=-128),
    "svdf-large": _svdf(4, batch=1, size=77, units=35, rank=3, frames=11, out_zero=-128),
}


def contents(files) -> list[bytes]:
    return [case.content(files) for case in CASES.values()]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_equals_litert_run_after_run(files, litert_session, name):
    single = CASES[name]
    content = single.content(files)
    graph, run = graph_from_tflite(content, "case"), litert_session(content)
    states = None
    rng = np.random.default_rng(5)
    for _ in range(_RUNS):
        inputs = {key: _codes(rng, *value.shape) for key, value in single.inputs().items()}
        expected, made = run(inputs), evaluate(graph, inputs, states)
        states = made.states
        for output, value in expected.items():
            np.testing.assert_array_equal(made.outputs[output], value)
            assert len(np.unique(value)) > min(3, value.size - 1)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"norm": 1e10}, "a scale of a normalization below"),
        ({"peephole": True, "out": 3}, "without a projection to another size"),
        ({"cell_scale": 0.001}, "expected a power of 2 as the cell's scale"),
        ({"cell_scale": 2.0**-8}, "0 to 6 integer bits"),
    ],
)
def test_unsupported_options_are_named(files, fields, named):
    with pytest.raises(InputError, match=named):
        graph_from_tflite(_lstm(1, **fields).content(files), "case")
