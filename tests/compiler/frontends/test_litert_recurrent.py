"""Recurrent operators against LiteRT, over several runs with persistent variables."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, fixed, given, variable

pytestmark = pytest.mark.peers

_RNG = np.random.default_rng(31)
_BATCH, _TIME, _SIZE, _CELLS, _OUT = 2, 4, 5, 6, 3


def _values(*shape, scale=0.4):
    return _RNG.normal(0, scale, shape).astype(np.float32)


def _weights(*shape, hybrid=False):
    if not hybrid:
        return fixed(_values(*shape))
    scale = float(np.float32(_RNG.uniform(0.005, 0.012)))
    return fixed(_RNG.integers(-127, 128, shape).astype(np.int8), scale, [0])


def _output():
    return [given(np.zeros((1, 1, 1), np.float32))]


def _lstm_inputs(coupled, peephole, project, norm, hybrid, cells=_CELLS):
    """Inputs 1 to 17 of an LSTM, its two variables, and the layer normalization weights."""
    out = _OUT if project else cells
    gates = range(4)
    ins = [None if coupled and g == 0 else _weights(cells, _SIZE, hybrid=hybrid) for g in gates]
    ins += [None if coupled and g == 0 else _weights(cells, out, hybrid=hybrid) for g in gates]
    for gate in range(3):
        given_here = peephole and not (coupled and gate == 0)
        ins.append(_weights(cells, hybrid=hybrid) if given_here else None)
    ins += [None if coupled and g == 0 else fixed(_values(cells)) for g in gates]
    ins.append(_weights(out, cells, hybrid=hybrid) if project else None)
    ins.append(fixed(_values(out)) if project else None)
    states = [variable((_BATCH, out)), variable((_BATCH, cells))]
    norms = [None if coupled and g == 0 else fixed(1 + _values(cells)) for g in gates]
    return ins, states, norms if norm else []


def _sequence_lstm(
    coupled=False, peephole=False, project=False, norm=False, hybrid=False, time_first=False,
    clip=0.0, asymmetric=False, time=_TIME,
):  # fmt: skip
    ins, states, norms = _lstm_inputs(coupled, peephole, project, norm, hybrid)
    shape = (time, _BATCH, _SIZE) if time_first else (_BATCH, time, _SIZE)
    fields = {"FusedActivationFunction": 4, "CellClip": clip, "ProjClip": clip / 2}
    fields |= {"TimeMajor": time_first, "AsymmetricQuantizeInputs": asymmetric}
    code = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return Single(
        code, [given(_values(*shape, scale=1)), *ins, *states, *norms], _output(),
        "UnidirectionalSequenceLSTMOptions", fields,
    )  # fmt: skip


def _lstm():
    ins, states, _ = _lstm_inputs(False, True, True, False, False)
    fields = {"FusedActivationFunction": 4}
    return Single(
        "LSTM", [given(_values(_BATCH, _SIZE, scale=1)), *ins, *states],
        [given(np.zeros((1, 1), np.float32))] , "LSTMOptions", fields,
    )  # fmt: skip


def _bidirectional_lstm(merged, time_first=False):
    forward, ahead, _ = _lstm_inputs(False, True, False, False, False)
    backward, back, _ = _lstm_inputs(False, False, False, False, False)
    shape = (_TIME, _BATCH, _SIZE) if time_first else (_BATCH, _TIME, _SIZE)
    ins = [given(_values(*shape, scale=1)), *forward, *backward, *ahead, *back, *[None] * 9]
    fields = {"FusedActivationFunction": 4, "MergeOutputs": merged, "TimeMajor": time_first}
    outs = _output() * (1 if merged else 2)
    options = "BidirectionalSequenceLSTMOptions"
    return Single("BIDIRECTIONAL_SEQUENCE_LSTM", ins, outs, options, fields)


def _rnn_inputs(hybrid=False):
    return [
        _weights(_CELLS, _SIZE, hybrid=hybrid),
        _weights(_CELLS, _CELLS, hybrid=hybrid),
        fixed(_values(_CELLS)),
        variable((_BATCH, _CELLS)),
    ]


def _rnn(code, options, shape, hybrid=False, **fields):
    fields |= {"FusedActivationFunction": 1}
    out = [given(np.zeros((1,) * len(shape), np.float32))]
    return Single(
        code, [given(_values(*shape, scale=1)), *_rnn_inputs(hybrid)], out, options, fields
    )


def _bidirectional_rnn(merged):
    shape = (_BATCH, _TIME, _SIZE)
    ins = [given(_values(*shape, scale=1)), *_rnn_inputs(), *_rnn_inputs(), *[None] * 3]
    fields = {"FusedActivationFunction": 4, "MergeOutputs": merged, "TimeMajor": False}
    outs = _output() * (1 if merged else 2)
    options = "BidirectionalSequenceRNNOptions"
    return Single("BIDIRECTIONAL_SEQUENCE_RNN", ins, outs, options, fields)


def _svdf(rank=1, bias=True, hybrid=False, frames=4, activation=1):
    filters = 6
    ins = [
        given(_values(_BATCH, _SIZE, scale=1)),
        _weights(filters, _SIZE, hybrid=hybrid),
        _weights(filters, frames, hybrid=hybrid),
        fixed(_values(filters // rank)) if bias else None,
        variable((_BATCH, filters * frames)),
    ]
    fields = {"Rank": rank, "FusedActivationFunction": activation}
    return Single("SVDF", ins, [given(np.zeros((1, 1), np.float32))], "SVDFOptions", fields)


_STEPS = (_BATCH, _TIME, _SIZE)
CASES = {
    "lstm-sequence": _sequence_lstm(),
    "lstm-time-first": _sequence_lstm(time_first=True),
    "lstm-long": _sequence_lstm(peephole=True, time=1100, clip=0.7),
    "lstm-coupled": _sequence_lstm(coupled=True, peephole=True),
    "lstm-peephole-projection": _sequence_lstm(peephole=True, project=True),
    "lstm-normalized": _sequence_lstm(norm=True, project=True, clip=0.5),
    "lstm-hybrid": _sequence_lstm(hybrid=True),
    "lstm-hybrid-asymmetric": _sequence_lstm(hybrid=True, asymmetric=True),
    "lstm-hybrid-all": _sequence_lstm(hybrid=True, peephole=True, project=True, norm=True),
    "lstm-step": _lstm(),
    "lstm-both": _bidirectional_lstm(False),
    "lstm-both-merged": _bidirectional_lstm(True, True),
    "lstm-both-time-first": _bidirectional_lstm(False, True),
    "rnn": _rnn("RNN", "RNNOptions", (_BATCH, _SIZE)),
    "rnn-sequence": _rnn("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions", _STEPS),
    "rnn-one-step": _rnn("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions", (_BATCH, 1, _SIZE)),
    "rnn-hybrid": _rnn("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions", _STEPS, True),
    "rnn-both": _bidirectional_rnn(False),
    "rnn-merged": _bidirectional_rnn(True),
    "svdf": _svdf(),
    "svdf-rank-2": _svdf(2, False),
    "svdf-one-frame": _svdf(2, frames=1, activation=0),
    "svdf-hybrid": _svdf(2, hybrid=True),
}


def contents(files) -> list[bytes]:
    return [case.content(files) for case in CASES.values()]


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_litert_run_after_run(files, litert_session, name):
    single = CASES[name]
    content = single.content(files)
    graph, run = graph_from_tflite(content, "case"), litert_session(content)
    states = None
    rng = np.random.default_rng(5)
    for _ in range(3):
        inputs = {k: rng.normal(0, 1, v.shape).astype(v.dtype) for k, v in single.inputs().items()}
        expected, made = run(inputs), evaluate(graph, inputs, states)
        states = made.states
        for output, value in expected.items():
            near = 2e-2 if "hybrid" in name else 1e-5
            limit = near * max(np.abs(value).max(), 1e-9)
            np.testing.assert_allclose(made.outputs[output], value, rtol=0, atol=limit)


def _with_state(single, index, shape):
    ins = [*single.ins]
    ins[index] = variable(shape)
    return Single(single.code, ins, single.outs, single.options, single.fields)


@pytest.mark.parametrize(
    ("single", "state"),
    [
        (_sequence_lstm(), 18), (_sequence_lstm(), 19), (_sequence_lstm(time=1), 18),
        (_sequence_lstm(hybrid=True), 19), (_lstm(), 18), (_lstm(), 19),
        (_bidirectional_lstm(True), 35), (_bidirectional_lstm(True), 38),
        (_rnn("RNN", "RNNOptions", (_BATCH, _SIZE)), 4), (_bidirectional_rnn(True), 8),
        (_svdf(2), 4),
    ],
)  # fmt: skip
def test_a_state_of_another_batch_is_refused(files, litert, single, state):
    size = single.ins[state].value.shape[1]
    for shape in ((1, size), (_BATCH, 1)):
        content = _with_state(single, state, shape).content(files)
        with pytest.raises(InputError, match=r"expected (hidden |cell |)state of shape"):
            graph_from_tflite(content, "m")
        with pytest.raises((RuntimeError, ValueError)):
            litert(content, {"x0": single.ins[0].value})
