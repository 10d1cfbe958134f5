"""Describes the compiled form of multiplying operators, derived from their kernel calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from edgekit.host.compiler.costs.methods.gemm import Split
from edgekit.host.compiler.costs.methods.operators import (
    Family,
    OperatorMethod,
    banded,
    sums_at_once,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Node, Operator
from edgekit.host.compiler.lowering.choice import BY_LAYOUTS, CHAINED, ONLY, Choice, CompiledProduct
from edgekit.host.compiler.lowering.common.arguments import C_TYPES
from edgekit.host.compiler.lowering.context import Context
from edgekit.host.compiler.lowering.gemm.grouped_row import STREAM_TABLES
from edgekit.host.compiler.lowering.gemm.row_tables import LOOKED_UP, why_unpacked
from edgekit.host.compiler.lowering.plan import Field, Kernel, KernelCall, LoopCall
from edgekit.kb.targets.isa import Isa

_FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "conv/f32_conv.c": "in_place",
        "conv/i8_conv.c": "in_place",
        "conv/f32_winograd.c": "winograd",
        "conv/i8_winograd.c": "winograd",
        "conv/dwconv.c": "depthwise",
        "conv/dwconv_blocks.c": "depthwise",
        "conv/chw_conv.c": "lines",
        "conv/conv_16x8.c": "wide",
        "conv/dwconv_chw.c": "depthwise_chw",
        "conv/dwconv_chw_direct.c": "depthwise_chw",
        "conv/dwconv_chw_rows.c": "depthwise_chw",
        "conv/chain.c": "chain",
        "conv/stem.c": "chain",
        "product/matmul.c": "unpacked",
        "product/packed.c": "packed",
        "product/streamed.c": "streamed",
        "sparse/layer.c": "sparse",
        "sparse/window.c": "sparse",
        "sparse/spmv_layer.c": "strips",
        "sparse/i8_layer.c": "strips",
        "outlier/layer.c": "outlier",
        "outlier/grouped_row.c": "outlier",
        "recurrent/layer.c": "recurrent",
        "recurrent/quantized_lstm.c": "recurrent",
        "recurrent/quantized_svdf.c": "recurrent",
        "nna/layer.c": "nna",
        "nna/product.c": "nna",
    }
)
_OF_CHOICES = ("in_place", "winograd", "depthwise", "unpacked", "packed", "streamed")
_PRECISIONS = {text: dtype.value for dtype, text in C_TYPES.items()}
_ONE_PRECISION: Mapping[Family, str] = MappingProxyType(
    {"sparse": "f32", "strips": "f32", "outlier": "s8", "nna": "s8"}
)


def compiled_of(
    ctx: Context, node: Node, calls: Sequence[KernelCall | LoopCall]
) -> CompiledProduct | None:
    """Returns None for operators that do not multiply, and for loops, whose bodies contain
    operators."""
    made = [c for c in calls if isinstance(c, KernelCall) and c.kernel.source in _FAMILIES]
    if not made:
        return None
    first, *more = made
    whole = _describe_kernel(ctx, node, first.kernel, first.fields)
    inner = {c.kernel.symbol: c for c in more if c.kernel.symbol != first.kernel.symbol}
    members = [_describe_kernel(ctx, node, c.kernel, c.fields) for c in inner.values()]
    if isinstance(node.op, ops.OutlierFullyConnected):
        whole = dataclasses.replace(whole, choice=Choice("only", _storage_of(ctx, made[-1])))
    if isinstance(node.op, ops.RowChain):
        parts = [part for part in first.kernel.parts if part.source in _FAMILIES]
        names = node.op.names or (None,) * len(node.op.members)
        named = [n for n, op in zip(names, node.op.members, strict=True) if _is_convolution(op)]
        pairs = zip(named, parts, strict=True)
        members = [_describe_kernel(ctx, node, kernel, {}, name) for name, kernel in pairs]
        method = dataclasses.replace(whole.method, members=len(members))
        whole = dataclasses.replace(whole, method=method)
    return dataclasses.replace(whole, members=tuple(members))


def _storage_of(ctx: Context, call: KernelCall) -> str:
    """How a kernel has the weights of an outlier split, and why so."""
    macros = dict(call.kernel.macros)
    is_row = call.kernel.source == "outlier/grouped_row.c"
    form = int(macros.get("BITS", macros.get("STREAM_BITS", 4 if "INT4" in macros else 8)))
    bits, looks_up = form % STREAM_TABLES, form > STREAM_TABLES
    groups = f"groups of {macros['GROUPS']}" if "GROUPS" in macros else "a scale for each output"
    if bits == 8:
        how = "multiplied as they are"
    elif is_row and looks_up:
        how = LOOKED_UP
    elif is_row:
        how = "unpacked in registers, since a row reads each once"
    else:
        how = "each panel unpacked to bytes once"
    kind = ctx.isa.i8.value.removeprefix("EK_I8_")
    why = "" if bits == 8 or looks_up else f"; {why_unpacked(ctx.board, bits)}"
    return f"{bits}-bit weights, {groups}, {how} ({kind}){why}"


def _is_convolution(op: Operator) -> bool:
    return isinstance(op, ops.Conv2D | ops.DepthwiseConv2D)


def _describe_kernel(
    ctx: Context,
    node: Node,
    kernel: Kernel,
    fields: Mapping[str, Field],
    name: str | None = None,
) -> CompiledProduct:
    """Describes one kernel call of a node; `name` is the chain member of the kernel."""
    family = _FAMILIES[kernel.source]
    macros = dict(kernel.macros)
    precision = _ONE_PRECISION.get(family) or kernel.symbol.split("_")[1]
    if "TX" in macros:
        precision = _PRECISIONS[macros["TX"]]
    elif family == "chain":
        precision = _PRECISIONS[macros["T"]]
    isa = ctx.isa.of_half if precision == DType.F16.value else ctx.isa
    rows, columns = _tile_size(isa, family, macros)
    split: Split = "n" if fields.get("panel_outer") == 1 else "m"
    block = int(macros["K_BLOCK"]) if "K_BLOCK" in macros else None
    method = OperatorMethod(family, precision, rows, columns, split, block)
    choice = _method_choice(ctx, node, family, name or node.name)
    band = fields["band"] if family == "in_place" and split == "n" else 0
    assert isinstance(band, int)
    at_once = band * (rows or 0)
    if choice.form is not None:
        method = banded(method, at_once, choice.form, ctx.board, ctx.threads)
    return CompiledProduct(kernel.symbol, method, choice, band_rows=at_once)


def _tile_size(
    isa: Isa, family: Family, macros: Mapping[str, str]
) -> tuple[int | None, int | None]:
    if family == "depthwise":
        return int(macros.get("ROWS", "1")), sums_at_once(isa, "FLOAT_X" in macros)
    if family == "wide":
        return 1, int(macros["BLOCK"])
    if "NV" in macros:
        if family == "outlier":
            return 1, int(macros["NV"]) * isa.vl
        return int(macros["MR"]), int(macros["NV"]) * isa.vl
    return None, None


def _method_choice(ctx: Context, node: Node, family: Family, name: str) -> Choice:
    group = ctx.of_groups.get(name)
    # The form describes the group, not this operator
    together = group and dataclasses.replace(group, form=None)
    if isinstance(node.op, ops.PrunedConv2D | ops.PrunedFullyConnected):
        return _by_costs(together, Choice("layouts", node.op.rule))
    if family in ("depthwise_chw", "sparse"):
        return _by_costs(together, BY_LAYOUTS)
    if family == "chain":
        return _by_costs(together, CHAINED)
    if family not in _OF_CHOICES:
        return ONLY
    own = ctx.choices.get(name, ONLY)
    if group is None or group.row is None or group.row.method is None or group.form is None:
        return own
    apart = f"the row of {group.row.source} for {group.form.name}: {group.why}"
    return dataclasses.replace(own, why=f"{own.why}; kept separate by {apart}")


def _by_costs(together: Choice | None, costs: Choice) -> Choice:
    """The decision on a group, with the reason from `costs` unless a row decided."""
    if together is None:
        return costs
    if together.row is not None and together.row.method is not None:
        return dataclasses.replace(together, why=f"{together.why}; else: {costs.why}")
    return dataclasses.replace(together, rule=costs.rule, why=costs.why)
