"""The half-precision health check passes healthy kernels with margin, and detects kernel faults."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.artifact import Golden
from edgekit.host.compiler.driver import prepare
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import HALF
from tests.support.golden_runs import ROOT, built_with, real_models, with_fault, worst_by_tolerance
from tests.support.kernel_faults import FAULTS, Fault
from tests.support.places import few_or_all

pytestmark = pytest.mark.cross
_MODEL = "face_detection_short_range.tflite"
_FILES = ("conv/f32_conv.c", "conv/f32_finish.h", "conv/dwconv.c", "conv/rows.h", "pool/pool.c")
# In f16 the bias is added last.
_BIAS = Fault(
    "bias_of_channel_0", _MODEL, "conv/f32_finish.h",
    "(const ek_real *)a->bias + channel + j * EK_VL", "(const ek_real *)a->bias",
)  # fmt: skip
_SEEN = (
    _BIAS,
    *(f for f in FAULTS if f.run == _MODEL and f.file in _FILES and f.name != _BIAS.name),
)
_ROOM = 0.3  # share of the tolerance that a healthy library may use
_HALF = CompileOptions(precision="f16")
_FLOATS = ("FastestDet", "mobilenet_v1_0.25_224_1", "vww_96_float")


# A fault found by one core's health check is nearly always found by the other's: same source.
_CORES = ("a76", pytest.param("x60", marks=pytest.mark.exhaustive))


@functools.cache
def _half(path: Path, profile: str) -> tuple[Graph, Plan, Golden]:
    board = load_board(profile)
    made = prepare(path, board, _HALF)
    plan = plan_of(made.graph, board, _HALF)[1]
    return made.imported, plan, golden_of(made.imported, cache_folder() / "golden")


def _error(path: Path, kernels: Path, core: str, virtual_board, folder: Path) -> float:
    profile, cpu = HALF[core]
    graph, plan, golden = _half(path, profile)
    built = built_with(plan, load_board(profile), folder / "built", kernels)
    cases = Cases(tuple(x[None] for x in golden.inputs), steps=1)
    rows = virtual_board(profile, cpu).run(built, cases, folder)
    made = {name: row[0] for name, row in zip(graph.outputs, rows, strict=True)}
    return worst_by_tolerance(made, graph, golden)


def _slow_models() -> list[Path]:
    return [path for path in real_models() if path.stem.startswith(_FLOATS)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("core", ["a76", "x60"])
@pytest.mark.parametrize("path", _slow_models(), ids=lambda path: path.name)
def test_healthy_models_in_half_precision_pass(path, core, virtual_board, tmp_path):
    assert 0 < _error(path, kernels_folder(), core, virtual_board, tmp_path) < _ROOM


@pytest.mark.parametrize("core", _CORES)
def test_a_healthy_model_in_half_precision_passes(core, virtual_board, tmp_path):
    error = _error(ROOT / "models" / _MODEL, kernels_folder(), core, virtual_board, tmp_path)
    assert 0 < error < _ROOM


@pytest.mark.parametrize("core", _CORES)
@pytest.mark.parametrize("fault", few_or_all(_SEEN, _SEEN[::3]), ids=lambda fault: fault.name)
def test_faults_in_half_precision_do_not(fault: Fault, core, virtual_board, tmp_path):
    kernels = with_fault(fault, tmp_path / "kernels")
    assert _error(ROOT / "models" / _MODEL, kernels, core, virtual_board, tmp_path) > 1
