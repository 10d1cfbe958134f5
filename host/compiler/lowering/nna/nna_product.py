"""Products of two computed 8-bit matrices on the NNA."""

from __future__ import annotations

import dataclasses
import math

from edgekit.device.runtime.kernel_facts import MATMUL_DIMS
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.host.compiler.costs.nna import ProductForm, product_form
from edgekit.host.compiler.ir.nna import product_of
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.broadcast import collapse
from edgekit.host.compiler.lowering.common.arguments import operand_of
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.elementwise.plain import code_fields
from edgekit.host.compiler.lowering.nna.nna import chip_fields, emulator_of
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value

_FORMS: dict[ProductForm, int] = {"columns": 0, "values": 1}  # as in nna/product.h


def lower_nna_product(ctx: Context, node: Node) -> list[KernelCall]:
    """A `MatMul` that fits; the core subtracts the zero points from the sums."""
    assert ctx.board.nna is not None
    a, b = ctx.tensor(node.inputs[0]), ctx.tensor(node.inputs[1])
    y = ctx.tensor(node.outputs[0])
    stack, m, k, n = product_of(ctx.graph, node)
    stacked = collapse([a.shape[:-2], b.shape[:-2]], y.shape[:-2], MATMUL_DIMS)
    ins, outs = math.ceil(k / CHANNELS), math.ceil(n / CHANNELS)
    form = product_form(ctx.board.nna.chip, m, k, n)
    by_columns = form == "columns"
    fields: dict[str, Field] = {
        "chip": chip_fields(ctx),
        "form": _FORMS[form],
        "m": m,
        "k": k,
        "n": n,
        "matrices": stack,
        "dim": stacked.dims,
        "a_stride": tuple(s * m * k for s in stacked.strides[0]),
        "b_stride": tuple(s * k * n for s in stacked.strides[1]),
        "a": operand_of(ctx, a),
        "b": operand_of(ctx, b),
        **code_fields(a, b, y),
        "features": ctx.scratch(node, ins * m * CHANNELS if by_columns else k * n),
        "weights": ctx.scratch(node, outs * ins * CHANNELS * CHANNELS) if by_columns else None,
        "sums": ctx.scratch(node, 4 * m * (outs * CHANNELS if by_columns else n)),
        "columns": ctx.scratch(node, 4 * outs * CHANNELS),
        "y": Value(y.name),
    }
    kernel = ctx.kernel("nna_product", "nna/product.c", "nna/product.h", "ek_nna_product_args")
    return [KernelCall(dataclasses.replace(kernel, parts=(emulator_of(ctx),)), fields, None)]
