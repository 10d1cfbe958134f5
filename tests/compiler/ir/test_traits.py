"""Every operator class declares its traits, and the declarations are correct."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.costs.layout_table import KERNELS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.by_operator import ByOperator
from edgekit.host.compiler.ir.traits import Arithmetic, Epilogue, Half, OnQuantized
from edgekit.host.compiler.ir.types import DType, Operator, Quant, ShapeError, Tensor
from edgekit.host.compiler.lowering.lower import lowers  # imports the rules of all modules

_KERNELS = Path(__file__).parents[3] / "device" / "kernels"
_FUNCTIONS = [
    c for c in ops.every() if issubclass(c, ops.Function) and DType.F32 in c.dtypes
]  # f32 only


def _open_traits(operator: type[Operator]) -> list[str]:
    """Traits without a value."""
    declared = {name for name, hint in Operator.__annotations__.items() if "ClassVar" in hint}
    return sorted(name for name in declared if not hasattr(operator, name))


@pytest.mark.parametrize("operator", ops.every(), ids=lambda c: c.kind)
def test_no_trait_is_open(operator: type[Operator]) -> None:
    assert _open_traits(operator) == []


def test_an_open_trait_is_found() -> None:
    @dataclass(frozen=True)
    class Forgetful(Operator):
        kind = "forgetful"
        arithmetic = Arithmetic.EXACT
        half = Half.NO

    assert _open_traits(Forgetful) == ["cost_kind", "elementwise", "on_quantized"]


@pytest.mark.parametrize("operator", ops.every(), ids=lambda c: c.kind)
def test_every_operator_is_lowered(operator: type[Operator]) -> None:
    rule = lowers.of(operator)
    assert rule is not None, "add a function under @lowers in host/compiler/lowering"


def _keeps_shapes(op: Operator) -> bool:
    """Whether the result has the shape of its operands, for some number and type of them."""
    for count, dtype in itertools.product((1, 2, 3), DType):
        operands = [Tensor(f"x{i}", (2, 3, 5), dtype) for i in range(count)]
        with contextlib.suppress(ShapeError):
            return op.infer(operands)[0][0] == (2, 3, 5)
    return False


def test_elementwise_operators_keep_the_shape_of_their_operands() -> None:
    elementwise = [c for c in ops.every() if c.elementwise and c is not ops.Convert]
    assert [c.kind for c in elementwise if not _keeps_shapes(c())] == []
    assert not _keeps_shapes(ops.SelectBoxes())


def test_an_operator_has_one_function() -> None:
    registry = ByOperator[Callable[[], int]]()
    registry(ops.Function)(lambda: 1)
    found = registry.of(ops.Exp)
    assert found is not None and found() == 1 and registry.of(ops.Add) is None
    with pytest.raises(TypeError, match="Function has two functions"):
        registry(ops.Exp, ops.Function)(lambda: 2)


def test_kinds_are_distinct() -> None:
    kinds = [c.kind for c in ops.every() if "kind" in vars(c)]
    assert len(kinds) == len(set(kinds)) > 100


@pytest.mark.parametrize("operator", _FUNCTIONS, ids=lambda c: c.kind)
def test_functions_have_formulas_in_c(operator: type[Operator]) -> None:
    source = (_KERNELS / "elementwise" / "functions.h").read_text()
    line = f"#elif defined OP_{operator.kind.upper()}"
    found = line[len("#elif ") :] + "\n" in source
    assert found, f"add {line} and its UNARY(...) to elementwise/functions.h"


def test_epilogues_are_those_of_the_kernels() -> None:
    found = {c.kind for c in ops.every() if c.epilogue_form is Epilogue.IN_REGISTERS}
    source = (_KERNELS / "conv" / "epilogue.h").read_text()
    line = next(x for x in source.splitlines() if x.startswith("#if defined OP_"))
    listed = {f"OP_{kind.upper()}" for kind in found}
    assert listed == set(line.split()[2::3]), "conv/epilogue.h needs a formula of each"


def test_products_multiply_and_their_weights_have_output_channels() -> None:
    products = {c for c in ops.every() if c.cost_kind == "matrix"} - {ops.RowChain, ops.ImageStem}
    uncounted = [c.kind for c in products if not c.multiplies]
    assert uncounted == [], 'declare multiplies = True and terms(), or a cost_kind but "matrix"'
    weighted = [c.kind for c in ops.every() if c.weight_axis is not None and not c.multiplies]
    assert weighted == [], "declare multiplies = True: weight_axis says that it has weights"
    image, floats = Tensor("x", (1, 6, 6, 4), DType.F32), Tensor("w", (1, 3, 3, 8), DType.F32)
    made: list[tuple[Operator, Tensor, int]] = [
        (ops.Conv2D(), replace(floats, shape=(8, 3, 3, 4)), 36),
        (ops.DepthwiseConv2D(multiplier=2), floats, 9),
        (ops.FullyConnected(), replace(floats, shape=(8, 144)), 144),
    ]
    for op, weights, terms in made:
        [(shape, _)] = op.infer([image, weights])
        assert op.weight_axis is not None
        assert weights.shape[op.weight_axis] == shape[-1] == 8
        assert op.terms([image, weights]) == terms


def test_rows_of_operators_that_work_by_rows_are_independent() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 4)).astype(np.float32)
    t = Tensor("x", x.shape, DType.F32)
    w = np.ones((4, 4), np.float32)
    made: list[tuple[Operator, list[Any]]] = [
        (ops.Softmax(), []), (ops.LayerNorm(1), [w[0], w[0]]), (ops.FullyConnected(True), [w]),
    ]  # fmt: skip
    for op, others in made:
        assert op.works_by_rows()
        ins = [t, *(Tensor(str(i), o.shape, DType.F32) for i, o in enumerate(others))]
        outs = [Tensor("y", *each) for each in op.infer(ins)]
        [whole] = op.reference([x, *others], ins, outs)
        first, result = replace(t, shape=(1, 3, 4)), replace(outs[0], shape=(1, 3, 4))
        [part] = op.reference([x[1:], *others], [first, *ins[1:]], [result])
        np.testing.assert_array_equal(whole[1:], part)
    assert not ops.LayerNorm(2).works_by_rows() and not ops.FullyConnected().works_by_rows()


def test_kernels_of_layouts_are_measured_in_tables() -> None:
    found = [c.layout_kernels for c in ops.every() if c.layout_kernels is not None]
    assert {name for pair in found for name in pair} <= set(KERNELS)
    assert len(set(found)) == 2


def test_recurrent_functions_are_those_of_the_kernels() -> None:
    found = {c.kind for c in ops.every() if c.recurrent}
    source = (_KERNELS / "recurrent" / "functions.h").read_text()
    missing = [kind for kind in found if f"float apply_{kind}(" not in source]
    assert found and missing == [], "add their apply_KIND to recurrent/functions.h"


@pytest.mark.parametrize("operator", _FUNCTIONS, ids=lambda c: c.kind)
def test_factors_come_out_of_functions_that_keep_them(operator: type[ops.Function]) -> None:
    x = np.linspace(-2, 2, 41)
    if operator().keeps_factors([]):
        np.testing.assert_allclose(operator().formula(3.0 * x), 3.0 * operator().formula(x))


def test_a_moving_operator_invents_no_value() -> None:
    image = Tensor("x", (1, 4, 4, 4), DType.I32)
    values = np.arange(1, 65, dtype=np.int32).reshape(image.shape)
    made: list[Any] = [
        ops.Reshape((64,)), ops.Transpose((0, 2, 1, 3)), ops.DepthToSpace(2),
        ops.StridedSlice((0, 1, 0, 0), (1, 2, 1, 1), (1, 2, 4, 4), (1, 2, 4, 4)),
    ]  # fmt: skip
    for op in made:
        outs = [Tensor("y", *each) for each in op.infer([image])]
        found = op.reference([values], [image], outs)[0].reshape(-1)
        assert op.places_values and len(set(found)) == found.size and set(found) <= set(range(65))


@pytest.mark.parametrize(
    "op", [ops.Logistic(), ops.Tanh(), ops.HardSwish(), ops.HardSigmoid(), ops.HardSigmoid(0.5)],
    ids=lambda op: op.kind,
)  # fmt: skip
def test_results_are_the_same_quantized_values_beyond_saturation(op: Operator) -> None:
    ends = op.saturation()
    assert ends is not None
    step, zero = op.fixed_quantization or (1 / 256, -128)
    x = Tensor("x", (2,), DType.F32)
    for end in ends:
        if np.isfinite(end):
            values = np.float32([end, end * 4])
            first, second = op.reference([values], [x], [x])[0] / step + zero
            assert abs(first - second) <= 0.51


def test_fixed_quantized_values_are_a_scale_that_results_fit() -> None:
    x = np.float32([-50, -1, 0, 1, 50])
    t = Tensor("x", (5,), DType.F32)
    for operator in (c for c in ops.every() if c.fixed_quantization is not None):
        assert operator.fixed_quantization is not None
        step, zero = operator.fixed_quantization
        stored = np.rint(operator().reference([x], [t], [t])[0] / step + zero)
        assert stored.min() >= -128 and stored.max() <= 128


def test_what_keeps_its_scale_does() -> None:
    """A constant image keeps its value under averaging and maximum pooling."""
    quant = Quant(np.float32([0.1]), np.array([3]))
    image = Tensor("x", (1, 4, 4, 2), DType.I8, quant)
    same = np.full(image.shape, 7, np.int8)
    made: list[Operator] = [ops.AveragePool2D((2, 2), (2, 2)), ops.MaxPool2D((2, 2), (2, 2))]
    for op in made:
        assert op.on_quantized.keeps_scale
        outs = [Tensor("y", shape, dtype, quant) for shape, dtype in op.infer([image])]
        assert set(op.reference([same], [image], outs)[0].reshape(-1)) == {7}


def test_operators_with_an_activation_can_clamp() -> None:
    """`fuse_activation` supports every operator with the field, except these."""
    names = {c.__name__ for c in ops.every() if "activation" in c.__dataclass_fields__}
    known = {c.__name__ for c in ops.every() if issubclass(c, ops.Activated)}
    # A clamp itself; variants chosen by later passes; already quantized weights.
    others = {
        "Clamp",
        "ChannelsFirstConv2D",
        "ChannelsFirstDepthwiseConv2D",
        "OutlierFullyConnected",
    }
    assert names - known == others | {"Conv2D16x8"}


def test_coded_weights_are_no_quantized_form() -> None:
    for operator in (c for c in ops.every() if c.quantized_weights):
        assert operator.on_quantized is OnQuantized.NEVER
