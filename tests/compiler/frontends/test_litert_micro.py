"""TensorFlow Lite Micro's front-end operators against recorded results of Micro.

Integers must match bit for bit, over several runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import load_board
from tests.support.kernel_runs import build, runs_here
from tests.support.litert_cases import Single, fixed, given
from tests.support.micro_cases import CASES, custom, of_micro, recorded

_OPERATORS = [name for name in CASES if name != "front-end"]


def contents(files) -> list[bytes]:
    return [CASES[name].content(files) for name in _OPERATORS]


def _hold(case, found, expected):
    """Compare one run. While Micro lacks samples it leaves its output unchanged; skip that case."""
    for i, (y, known) in enumerate(zip(found, expected, strict=True)):
        assert (y.shape, y.dtype) == (known.shape, known.dtype)
        if i == 0 and case.has_flag and not expected[1]:
            continue
        part = slice(*case.written) if i == 0 and y.ndim else ...
        if y.dtype.kind == "f":
            np.testing.assert_allclose(
                y[part], known[part], rtol=0, atol=2e-6 * np.abs(known).max()
            )
        else:
            np.testing.assert_array_equal(y[part], known[part])


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_micro(files, name):
    case, states = CASES[name], None
    graph = graph_from_tflite(case.content(files), "case")
    for inputs, expected in zip(case.runs, recorded(name, files), strict=True):
        made = evaluate(graph, inputs, states)
        states = made.states
        _hold(case, [made.outputs[y] for y in graph.outputs], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["front-end", "framer-480-320-0", "stacker-2-1-2"])
def test_as_compiled_it_agrees_with_micro(files, name, tmp_path):
    case = CASES[name]
    graph, _ = run_passes(graph_from_tflite(case.content(files), "case"))
    runs = runs_here(build(graph, load_board("local"), tmp_path), case.runs)
    for made, expected in zip(runs, recorded(name, files), strict=True):
        _hold(case, [made[y] for y in graph.outputs], expected)


def test_the_record_is_what_micro_gives(files):
    pytest.importorskip("tflite_micro", reason="the wheel is not among the tests' own")
    for name, case in CASES.items():
        for known, expected in zip(
            of_micro(case.content(files), case), recorded(name, files), strict=True
        ):
            _hold(case, known, expected)


def _refused(files, single: Single, message: str) -> None:
    with pytest.raises(InputError, match=message):
        graph_from_tflite(single.content(files), "case")


_FRAME = np.zeros(6, np.int16)
_BANK = [np.array(t, np.int16) for t in ([1, 2], [3, 4], [0, 1], [0, 1], [1, 1])]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Framer", {"frame_size": 4, "frame_step": 4}, "a multiple of 4"),
        ("Framer", {"frame_size": 1 << 40, "frame_step": 3}, "a frame_size of 1 to"),
        ("Framer", {"frame_size": 2, "frame_step": 3, "prefill": True}, "a multiple of"),
        ("Stacker", {"num_channels": 5}, "frame of shape"),
        ("Delay", {"delay_length": -1}, "a delay_length of 0"),
        ("Rfft", {"fft_length": 12}, "a power of two"),
        ("Rfft", {"fft_length": 1 << 30}, "a fft_length of 4"),
        ("Rfft", {"fft_length": 4}, "rows of 1 to 4 values"),
        ("Rfft", {}, "a number as option fft_length"),
        ("Energy", {"start_index": 2, "end_index": 9}, "a end_index of 2 to 3"),
        ("OverlapAdd", {"frame_step": 2}, "frames, found shape"),
        ("PCAN", {"snr_shift": 3}, "input 1"),
    ],
)
def test_bad_options_are_refused(files, name, options, message):
    _refused(files, custom(name, options, [given(_FRAME)], _FRAME, np.zeros((), bool)), message)


_LARGE = [
    ("Framer", {"frame_size": 1 << 20, "frame_step": 1}, (1 << 10,), "int16"),
    ("Delay", {"delay_length": 1 << 20}, (1 << 10, 1), "int16"),
    ("Stacker", {"num_channels": 1 << 20, "stacker_left_context": 1000,
                 "stacker_right_context": 0, "stacker_step": 1}, (1 << 20,), "int16"),
    ("OverlapAdd", {"frame_step": 1}, (1 << 24, 1, 2), "float32"),
    ("FilterBankSpectralSubtraction", {}, (1 << 25,), "uint32"),
    ("Energy", {"start_index": 1 << 25, "end_index": (1 << 25) + 1}, (1 << 27,), "int16"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "shape", "kind"), _LARGE)
def test_nothing_large_is_remembered(files, name, options, shape, kind):
    """The inputs are broadcast views that use no memory here."""
    frame = np.broadcast_to(np.zeros((), kind), shape)
    _refused(files, custom(name, options, [given(frame)], _FRAME, np.zeros((), bool)), "expected")


@pytest.mark.parametrize(
    ("index", "table", "message"),
    [
        (2, [0, 7], "within 6 energies"),
        (2, [0, -1], "within 6 energies"),
        (3, [0, 2], "and 2 weights"),
        (4, [1, 32000], "within"),
        (4, [1], "tables of 2 channels"),
    ],
)
def test_filter_banks_stay_in_their_tables(files, index, table, message):
    tables = [np.array(table, np.int16) if i == index else t for i, t in enumerate(_BANK)]
    ins = [given(np.zeros(6, np.uint32)), *(fixed(t) for t in tables)]
    single = custom("FilterBank", {"num_channels": 1}, ins, np.zeros(1, np.uint64))
    _refused(files, single, message)


def test_what_remembers_stays_out_of_branches(files):
    """Both branches are evaluated, so a stateful operator in the untaken one would update its
    state."""
    t, frame = files.tensor, [4]
    options = bytes(flexbuffers.Dumps({"delay_length": 2}))
    inner = files.graph(
        [t("a", frame, "INT16"), t("b", frame, "INT16")],
        [files.op("CUSTOM:SignalDelay", ["a"], ["b"], custom=options)], ["a"], ["b"],
    )  # fmt: skip
    chosen = {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 1}
    main = files.graph(
        [t("c", [], "BOOL"), t("x", frame, "INT16"), t("y", frame, "INT16")],
        [files.op("IF", ["c", "x"], ["y"], "IfOptions", chosen)], ["c", "x"], ["y"],
    )  # fmt: skip
    with pytest.raises(InputError, match="found CUSTOM:SignalDelay in subgraph 1"):
        graph_from_tflite(files.model(main, inner), "case")
