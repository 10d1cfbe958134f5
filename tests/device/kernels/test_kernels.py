"""Every kernel against the NumPy reference, with odd sizes, on every x86 ISA of this machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler import lowering
from edgekit.host.compiler.codegen.emit import kernels_of, parts_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.lowering.lower import lower
from edgekit.kb.targets.board import load_board, load_profile
from edgekit.kb.targets.isa import isa_names, isa_of
from tests.support.kernel_runs import (
    KEEPS_NAN,
    VARIANTS,
    build,
    check,
    check_nan,
    run_here,
    with_nan,
    x86_params,
)
from tests.support.op_cases import Case, stateful_graph, tensor
from tests.support.op_graphs import FAMILIES, graph_of, inputs_of, random_graph
from tests.support.places import few_or_all

_SIMD = Path(__file__).parents[3] / "device" / "kernels" / "simd"

# Graphs of test_nna.py, test_sparse.py, test_narrow_moves.py and test_outlier.py in tests/cross
# reach these.
_IN_OTHER_GRAPHS = re.compile(
    r"nna/|sparse/(pieces|spmm|spmv)\.c|layout/transpose_narrow\.c|outlier/row_tables\.c"
)

# Those that by default run nowhere else, x86's products, and every primitive of its vector headers.
# The sanitizers run most of the others here, and tests/cross runs them on other cores.
_OWN = re.compile(
    f"{VARIANTS}|(conv|dense)_(f32|8bit)$|unary|every_function|softmax|transpose$|pruned_i8"
)


@pytest.mark.slow
@pytest.mark.parametrize("family", few_or_all(FAMILIES, filter(_OWN.match, FAMILIES)))
@pytest.mark.parametrize("board", x86_params())
def test_kernels_equal_the_reference(board, family, tmp_path):
    graph = random_graph(family, 24, seed=len(family))
    inputs = inputs_of(graph)
    folder = build(graph, board, tmp_path)
    check(graph, run_here(folder, inputs), inputs)
    if family in KEEPS_NAN:
        check_nan(graph, run_here(folder, with_nan(inputs)), with_nan(inputs))


@pytest.mark.slow
def test_a_random_graph_reaches_every_file_of_kernels():
    core = load_board("a57")
    graphs = [(core, random_graph(family, 16, seed=len(family) + 1)) for family in FAMILIES]
    masked = load_profile("x86-64-v4")  # the only one whose loads have masks
    graphs.append((masked, random_graph("channels_first_depthwise", 24, seed=24)))
    plans = [lower(graph, board) for board, graph in graphs]
    reached = {k.source for plan in plans for k in (*kernels_of(plan), *parts_of(plan))}
    sources = re.compile(r'"(\w+/[\w/]+\.c)"')
    rules = Path(lowering.__path__[0]).rglob("*.py")
    named = {source for rule in rules for source in sources.findall(rule.read_text())}
    missing = [name for name in named - reached if not _IN_OTHER_GRAPHS.match(name)]
    assert missing == [], "let a generator in tests/support meet the condition of their lowering"


_SHARED = [
    "conv_f32",
    "conv_8bit",
    "depthwise_8bit",
    "pool",
    "sparse_window",
    "pruned_i8",
    "binary",
    "recurrent",
    "recurrent_8bit",
]


@pytest.mark.slow
@pytest.mark.parametrize("family", few_or_all(_SHARED, _SHARED[::2]))
def test_threads_change_nothing(family, tmp_path):
    graph = random_graph(family, 24, seed=5)
    inputs = inputs_of(graph)
    folder = build(graph, load_board("local"), tmp_path)
    alone, together = run_here(folder, inputs), run_here(folder, inputs, threads=3)
    for name, array in alone.items():
        np.testing.assert_array_equal(array, together[name])


def test_states_live_between_runs(tmp_path):
    graph = stateful_graph()
    folder = build(graph, load_board("local"), tmp_path)
    inputs = inputs_of(graph)
    after = evaluate(graph, inputs)
    np.testing.assert_array_equal(run_here(folder, inputs)["y"], after.outputs["y"])


def test_a_wrong_output_beside_an_infinity_is_seen():
    graph = graph_of([Case(ops.Abs(), (tensor((3,)),))])
    inputs = {graph.inputs[0]: np.array([-np.inf, 1, 2], np.float32)}
    with pytest.raises(AssertionError):
        check(graph, {graph.outputs[0]: np.array([np.inf, 1, 3], np.float32)}, inputs)


def _with_included(header: str) -> str:
    """A header followed by the instruction-set headers it includes."""
    text = (_SIMD / header).read_text()
    included = [h for h in re.findall(r'#include "(\w+\.h)"', text) if h != "vector.h"]
    return text + "".join(map(_with_included, included))


@pytest.mark.parametrize("name", isa_names())
def test_the_file_of_an_instruction_set_matches_its_header(name):
    isa, header = isa_of(name), _SIMD / f"{name}.h"
    assert header.is_file(), "expected a header of the name of the .toml file"
    text = _with_included(header.name)
    defined = dict(reversed(re.findall(r"#define (EK_VL|EK_LANES|EK_I8) (\w+)", text)))
    stated = {"EK_VL": str(isa.vl), "EK_LANES": str(int(isa.lanes)), "EK_I8": isa.i8.value}
    assert defined == stated, "kb/targets/simd states other values of vl, lanes or i8"
    assert ("vf_load_masked" in text) == isa.masks_loads
    assert ("#define EK_PAIRS" in text) == isa.multiplies_pairs
    assert ("#define EK_LINES" in text) == isa.requantizes_in_float
