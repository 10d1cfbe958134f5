"""Products of few bytes, whose weights stay in registers for strips of pixels."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Graph, Padding
from tests.support.op_cases import Case, Rng, constant, quant, tensor
from tests.support.op_graphs import graph_of

# Images, window, input and output channels: strips end within a row, within an image and at the end
# of x; few and many panels; a last step of up to 8 bytes.
_FORMS = (
    ((1, 9, 13), 1, 16, 4),
    ((2, 7, 9), 1, 24, 36),
    ((1, 11, 12), 1, 13, 24),
    ((1, 1, 23), 1, 29, 8),
    ((1, 8, 16), 1, 32, 20),
    ((2, 13, 21), 3, 3, 32),
    ((1, 9, 10), 3, 1, 4),
)
_ZEROS = (0, 131)  # of weights: their sums of rows are subtracted


def few_bytes_graph() -> Graph:
    """Signed and unsigned bytes, weights with a scale for each channel or with a zero point, and a
    table behind. Only weights of 8 channels contain -128, which no strips take."""
    rng = np.random.default_rng(3)
    cases = [_convolution(rng, *form, dtype) for form in _FORMS for dtype in (DType.I8, DType.U8)]
    rows = tensor((37, 20), DType.I8, quant(0.05, 7))
    weights = constant(rng.integers(-127, 128, (12, 20)), DType.I8, quant(0.02))
    return graph_of([*cases, Case(ops.FullyConnected(), (rows, weights, None), quant(0.2, -3))])


def _convolution(
    rng: Rng, image: tuple[int, int, int], side: int, c: int, n: int, dtype: DType
) -> Case:
    info = np.iinfo(dtype.numpy)
    weights = rng.integers(info.min + (n != 8), info.max + 1, (n, side, side, c))
    scale = rng.uniform(0.01, 0.02, n).astype(np.float32)
    held = quant(scale) if dtype is DType.I8 else quant(0.02, _ZEROS[n % 3 > 0])
    op = ops.Conv2D((side // 2 + 1,) * 2, padding=Padding(*4 * (side // 2,)))
    x = tensor((*image, c), dtype, quant(0.05, info.min + 9))
    bias = constant(rng.integers(-9999, 9999, n), DType.I32)
    after = Case(ops.Logistic(), (), quant(1 / 256, info.min)) if n == 20 else None
    zero = info.min if n == 24 else info.min + 120
    return Case(op, (x, constant(weights, dtype, held), bias), quant(0.05 * c**0.5, zero), after)
