"""Products by SpacemiT's matrix unit under qemu, which lacks it: a model executes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, VirtualBoard, compile_driver
from tests.support.gemm_cases import check as check_products
from tests.support.gemm_cases import encoded, output_bytes, random_product, units
from tests.support.kernel_runs import build, check
from tests.support.op_cases import Case, constant, tensor
from tests.support.op_graphs import graph_of, inputs_of, random_graph
from tests.support.places import few_or_all
from tests.support.toolchains import toolchain_for

pytestmark = pytest.mark.cross
_UNIT = Path(__file__).parents[1] / "support" / "madot.c"
_FAMILIES = ("conv_8bit", "zeros_8bit", "dense_8bit", "outlier_layer", "outlier_rows", "dynamic")


@pytest.fixture(scope="module")
def with_unit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("madot")
    compile_driver(load_board("bpi-f3-ime"), folder / "driver", str(_UNIT), "-rdynamic")
    return VirtualBoard("riscv64", CPUS["bpi-f3"], folder / "driver")


def test_products_of_the_library_are_numpys(with_unit, tmp_path):
    board, rng = load_board("bpi-f3-ime"), np.random.default_rng(4)
    products = [random_product(rng, dtype) for dtype in ("s8", "u8") for _ in range(60)]
    library = tmp_path / "products.so"
    library.write_bytes(toolchain_for(board).build(units(board)))
    made = with_unit.run_cases(library, encoded(products), output_bytes(products), 2)
    check_products(products, made)


@pytest.mark.parametrize("family", few_or_all(_FAMILIES, _FAMILIES[::4]))
def test_operators_are_those_of_the_reference(family, with_unit, tmp_path):
    board, graph = load_board("bpi-f3-ime"), random_graph(family, 8, seed=3)
    inputs = inputs_of(graph)
    folder = build(graph, board, tmp_path / "release")
    given = tuple(inputs[name][None] for name in graph.inputs)
    made = with_unit.run(folder, Cases(given, steps=1), tmp_path)
    check(graph, {n: made[i][0] for i, n in enumerate(graph.outputs)}, inputs)


def test_a_core_without_the_unit_is_told(virtual_board, tmp_path):
    weights = constant(np.ones((8, 8)), DType.I8)
    operands = tensor((4, 8)), weights, constant(np.ones((1, 8)))
    graph = graph_of([Case(ops.OutlierFullyConnected(6.0), operands)])
    folder = build(graph, load_board("bpi-f3-ime"), tmp_path / "release")
    found = virtual_board("bpi-f3").execute(str(folder / "model.so"))
    assert (found.returncode, found.stdout.strip()) == (3, "xsmtvdot"), found
