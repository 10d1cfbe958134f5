"""f16 models and operators under qemu: on A76 and X60, and on RVV of any vector length."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.traits import Half
from edgekit.host.compiler.ir.types import Activation, DType, Tensor
from edgekit.host.compiler.lowering.conv.stems import with_stems
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.transforms.passes.half import narrow_weights
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.cross.conftest import HALF, VirtualBoard, half_board
from tests.support import half_cases, stem_graphs
from tests.support.half_graphs import HALF_FAMILIES, check_half, in_half
from tests.support.kernel_runs import KEEPS_NAN, build, check, check_nan, with_nan
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of, random_graph
from tests.support.places import few_or_all
from tests.support.plain_graphs import functions
from tests.support.toolchains import toolchain_for

pytestmark = pytest.mark.cross
_MODEL = Path(__file__).parents[2] / "models" / "face_detection_short_range.tflite"
_VARIANTS = {"large_window", "depthwise_windows", "transpose_conv", "viewed_matmul", "movement"}
_UNIT = 2.0**-11
_REAL = Tensor("", (65536,), DType.F32)
_STEMS = 16
_OF_ONE = (
    *(op for op in functions(DType.F32) if op.half is not Half.NO),
    ops.Clamp(Activation.RELU6), ops.HardSwish(), ops.Logistic(), ops.Silu(), ops.Softmax(),
)  # fmt: skip
_FUNCTIONS = (
    *(op for op in functions(DType.F32) if op.half is Half.WIDENED),
    ops.HardSwish(), ops.Logistic(), ops.Silu(), ops.Silu(-0.01), ops.Elu(),
)  # fmt: skip
_OF_TWO = (
    ops.Add(), ops.Mul(), ops.Mul(Activation.RELU), ops.Sub(), ops.Div(), ops.Maximum(),
    ops.Minimum(), ops.PRelu(),
)  # fmt: skip
_PAIRS = (((1,), (1,)), ((3, 5, 17), (17,)), ((2, 4097), (2, 1)), ((2, 1, 9, 5), (7, 1, 5)))


@dataclasses.dataclass(frozen=True)
class _Core:
    """The board compiled for, and the machine that runs the code."""

    board: BoardProfile
    machine: VirtualBoard


@pytest.fixture(
    params=[
        pytest.param(name, marks=() if name == "a76" else pytest.mark.exhaustive) for name in HALF
    ]
)
def core(request, virtual_board) -> _Core:
    profile, cpu = HALF[request.param]
    return _Core(half_board(profile), virtual_board(profile, cpu))


@pytest.mark.parametrize("family", few_or_all(HALF_FAMILIES, set(HALF_FAMILIES) - _VARIANTS))
def test_operators_of_f16_are_near_the_reference(family, core, tmp_path):
    graph = in_half(random_graph(family, 15, seed=len(family)))
    runs = [inputs_of(graph)]
    if family in KEEPS_NAN and "riscv" not in core.board.target:
        runs.append(with_nan(runs[0]))
    made = _runs(graph, runs, core, tmp_path)
    check_half(graph, made[0], runs[0])
    for found, inputs in zip(made[1:], runs[1:], strict=True):
        check_nan(graph, found, inputs)


def test_products_of_programs_are_numpys(core, tmp_path):
    products, library = half_cases.half_products(0), tmp_path / "products.so"
    library.write_bytes(toolchain_for(core.board).build(half_cases.units(core.board)))
    size = half_cases.output_bytes(products)
    for threads in (1, 2):
        made = core.machine.run_cases(library, half_cases.encoded(products), size, threads)
        half_cases.check(products, made)


def test_long_sums_of_f16_keep_growing(core, tmp_path):
    """2048 positive terms around 1: pure f16 sums would stop growing."""
    k, rng = 2048, np.random.default_rng(0)
    dense = constant(1 + rng.random((5, k)) / 8)
    window = constant(1 + rng.random((19, 3, 3, k // 8)) / 8)
    graph = in_half(
        graph_of(
            [
                Case(ops.FullyConnected(), (tensor((3, k)), dense)),
                Case(ops.Conv2D(), (tensor((1, 5, 4, k // 8)), window)),
            ]
        )
    )
    inputs = {name: 1 + np.abs(x) / 8 for name, x in inputs_of(graph).items()}
    made = _run(graph, inputs, core, tmp_path)
    exact = dict(zip(graph.outputs, _exact(graph, inputs), strict=True))
    for name, want in exact.items():
        np.testing.assert_allclose(made[name], want, 0.01, err_msg=name)


def test_f16_sums_of_runs_are_near_exact_ones(core, tmp_path):
    """Hundreds of positive terms: in one f16 sum, they would lose four times as much."""
    rng = np.random.default_rng(0)
    layers = [
        Case(op, (tensor(x), constant(rng.random(w))))
        for op, x, w in (
            (ops.FullyConnected(), (3, 509), (9, 509)),
            (ops.FullyConnected(), (1, 161), (70, 161)),
            (ops.Conv2D(), (1, 6, 7, 512), (17, 1, 1, 512)),
            (ops.Conv2D((2, 1)), (1, 9, 5, 56), (33, 3, 3, 56)),
            (ops.Conv2D((1, 1), (2, 2)), (1, 9, 8, 65), (5, 3, 3, 65)),
        )
    ]
    graph = in_half(graph_of(layers))
    inputs = {name: np.float16(np.abs(x)) for name, x in inputs_of(graph).items()}
    inputs = {name: x.astype(np.float32) for name, x in inputs.items()}
    made = _run(graph, inputs, core, tmp_path)
    for name, want in zip(graph.outputs, _exact(graph, inputs), strict=True):
        off = (made[name] - want) / want
        assert np.sqrt(np.mean(off**2)) < 3 * _UNIT, name


def test_cores_without_half_precision_multiply_by_weights_stored_in_it(virtual_board, tmp_path):
    core = _Core(load_board("a53"), virtual_board("a53"))
    plain = random_graph("recurrent", 15, seed=3)
    graph = narrow_weights(plain, 0)
    assert DType.F16 in {t.dtype for t in graph.tensors.values()}
    inputs = inputs_of(graph)
    check(graph, _run(graph, inputs, core, tmp_path), inputs)


def test_f16_gates_keep_a_state_for_thousands_of_steps(core, tmp_path):
    """Gates near 1: rounded to f16, the state would not change; a gate 1e-4 off would lose it."""
    steps, hidden, rng = 2000, 5, np.random.default_rng(0)
    weights = constant(rng.uniform(-1, 1, (3 * hidden, hidden)) / 100)
    ins = (tensor((steps, 1, 3 * hidden)), weights, None, tensor((1, hidden)), None)
    graph = in_half(graph_of([Case(ops.Gru(), ins)]))
    x, state = graph.inputs
    gates = np.repeat([10.0, 0.0, 0.5], hidden).astype(np.float32)
    inputs = {
        x: np.broadcast_to(gates, (steps, 1, 3 * hidden)).copy(),
        state: np.full((1, hidden), 0.9, np.float32),
    }
    made = _run(graph, inputs, core, tmp_path)
    for name, want in evaluate(graph, inputs).outputs.items():
        np.testing.assert_allclose(made[name], want, 0.002, err_msg=name)


def _exact(graph, inputs):
    """The results of `graph` with its constants in f32 throughout."""
    found = []
    for node in (n for n in graph.nodes if not isinstance(n.op, ops.Convert)):
        x, w = (graph.tensors[name] for name in node.inputs[:2])
        source = next(n.inputs[0] for n in graph.nodes if n.outputs == (x.name,))
        tensors = [dataclasses.replace(t, dtype=DType.F32) for t in (x, w)]
        out = dataclasses.replace(graph.tensors[node.outputs[0]], dtype=DType.F32)
        values = [inputs[source], w.data.astype(np.float32)]
        found += node.op.reference(values, tensors, [out])
    return found


def test_functions_of_f16_are_rounded_once(core, tmp_path):
    singles = [Case(op, (tensor((size,)),)) for op in _OF_ONE for size in (5, 257, 4097)]
    pairs = [Case(op, (tensor(a), tensor(b))) for op in _OF_TWO for a, b in _PAIRS]
    graph = in_half(graph_of([*singles, *pairs]))
    inputs = {name: 6 * x for name, x in inputs_of(graph).items()}
    made = _run(graph, inputs, core, tmp_path)
    outputs = evaluate(graph, inputs).outputs
    for name, case in zip(graph.outputs, (*singles, *pairs), strict=True):
        # HardSwish rounds each of its steps; erf(x) / x is near 1.13, whose digits are coarse.
        if isinstance(case.op, ops.HardSwish | ops.Erf):
            _check_units(made[name], outputs[name], 2, 2**-21, name)
            continue
        # f32 functions are off by a few f32 ulps, which can cross a rounding tie between two f16
        # values, or exceed one f16 ulp where terms cancel to nearly 0 (GELU).
        np.testing.assert_allclose(made[name], outputs[name], 2 * _UNIT, 2**-21, err_msg=name)


def test_functions_of_f16_are_within_two_units_for_every_argument(core, tmp_path):
    every = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    graph = in_half(graph_of([Case(op, (tensor(every.shape),)) for op in _FUNCTIONS]))
    made = _run(graph, dict.fromkeys(graph.inputs, every), core, tmp_path)
    finite = np.isfinite(every)
    for name, op in zip(graph.outputs, _FUNCTIONS, strict=True):
        with np.errstate(all="ignore"):
            want = op.reference((every,), (_REAL,), (_REAL,))[0].astype(np.float64)
        assert np.all(np.isnan(made[name][np.isnan(every)])), op
        _check_units(made[name][finite], want[finite], 2, 0, op, every[finite])


def _check_units(made, want, units, least, what, given=None):
    """`made` differs from `want` by at most `units` f16 ulps of `want`, or by `least`."""
    with np.errstate(over="ignore"):
        rounded = want.astype(np.float16)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
    infinite = np.isinf(rounded)
    np.testing.assert_array_equal(np.isinf(made), infinite, err_msg=str(what))
    off = np.abs(made.astype(np.float64) - want)[~infinite]
    allowed = np.maximum(units * unit[~infinite], least)
    at = np.argmax(off - allowed)
    of = "" if given is None else f" of {given[~infinite][at]}"
    assert off[at] <= allowed[at], f"{what}{of}: {made[~infinite][at]}, not {want[~infinite][at]}"


def test_transposes_of_f16_move_every_value(core, tmp_path):
    """Rows of 2 and 4 are groups of channels that are shuffled."""
    shuffled = ((7, 2, 58), (3, 4, 300), (2, 2, 5), (2, 58, 2), (1, 3, 700), (2, 513, 3))
    shapes = ((1, 5, 31), (2, 8, 8), (1, 300, 9), (3, 17, 270), (1, 64, 512), *shuffled)
    swapped = Case(ops.Transpose((0, 2, 1)), ())
    graph = in_half(graph_of([Case(ops.Abs(), (tensor(s),), after=swapped) for s in shapes]))
    moved = [n for n in graph.nodes if n.op.kind == "transpose"]
    assert {graph.tensors[n.outputs[0]].dtype for n in moved} == {DType.F16}
    inputs = inputs_of(graph)
    made = _run(graph, inputs, core, tmp_path)
    for name, want in evaluate(graph, inputs).outputs.items():
        np.testing.assert_array_equal(made[name], want)


def test_stems_of_f16_are_near_what_their_operators_make(virtual_board, tmp_path):
    board = load_board("a76")  # RISC-V has none
    core = _Core(board, virtual_board("a76"))
    graph = in_half(_stems(np.random.default_rng(3)))
    small = dataclasses.replace(board, l2_bytes=64)  # otherwise no image counts as large
    chained = with_stems(graph, small, table_of(board))
    assert sum(isinstance(n.op, ops.ImageStem) for n in chained.nodes) == _STEMS
    inputs = inputs_of(graph)
    want, made = (_run(g, inputs, core, tmp_path / f) for g, f in ((graph, "a"), (chained, "b")))
    for name, value in want.items():
        # The last pixels of a piece are summed in another order.
        off, largest = np.max(np.abs(made[name] - value)), np.max(np.abs(value))
        assert off <= 0.02 * largest, name


def _stems(rng):
    """Random stems chained as separate operators."""
    cases = []
    for _ in range(_STEMS):
        found = stem_graphs.members(rng)
        case = None
        for op, own in reversed(found[1:]):
            case = Case(op, own, after=case)
        op, own = found[0]
        cases.append(Case(op, (stem_graphs.image_of(rng, found), *own), after=case))
    return graph_of(cases)


def _run(graph, inputs, core, folder):
    """Outputs by name."""
    return _runs(graph, [inputs], core, folder)[0]


def _runs(graph, runs, core, folder):
    """Outputs of each run by name."""
    release = build(graph, core.board, folder / "release")
    cases = Cases(tuple(np.stack([run[name] for run in runs]) for name in graph.inputs), steps=1)
    rows = core.machine.run(release, cases, folder)
    return [dict(zip(graph.outputs, made, strict=True)) for made in zip(*rows, strict=True)]


def test_a_model_in_half_precision_passes_its_health_check(core, tmp_path):
    made = compile_artifact(_MODEL, core.board, options=CompileOptions(precision="f16"))
    golden = made.golden
    # RISC-V has 58 operators, ARM 60.
    operators = made.explain["operators"]
    assert {each["precision"] for each in operators} == {"f16", "f32"}
    halves = sum(each["precision"] == "f16" for each in operators)
    assert made.notes[-1].startswith(f"half precision: {halves} of {len(operators)} operators, ")
    assert made.loss is not None and f"differ by {made.loss.off:.2%} of" in made.notes[-1]
    assert made.extras == core.board.extras
    (tmp_path / "model.so").write_bytes(made.library)
    (tmp_path / "weights.bin").write_bytes(made.weights)
    cases = Cases(tuple(x[None] for x in golden.inputs), steps=1)
    rows = core.machine.run(tmp_path, cases, tmp_path)
    for row, want, tolerance in zip(rows, golden.outputs, golden.tolerances, strict=True):
        off, largest = np.max(np.abs(row[0] - want)), np.max(np.abs(want))
        assert 0 < off <= min(tolerance, 0.02 * largest)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("precision", "missing"), [("f32", ""), ("f16", "zvfh")])
def test_only_code_of_half_precision_needs_zvfh(precision, missing, virtual_board, tmp_path):
    options = CompileOptions(precision=precision)
    made = compile_artifact(_MODEL, load_board("bpi-f3"), options=options)
    assert made.extras == tuple(filter(None, [missing]))
    library = tmp_path / "model.so"
    library.write_bytes(made.library)
    said = virtual_board("bpi-f3", "rv64,v=true,vlen=256").execute(str(library))
    assert (said.stdout.strip() if said.returncode else "") == missing, said.stderr
    said = virtual_board("bpi-f3").execute(str(library))
    assert said.returncode == 0, said.stdout
