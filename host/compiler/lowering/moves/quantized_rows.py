"""Gathers of rows stored in fewer bits than f32, widened as they are read (embeddings)."""

from __future__ import annotations

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Node
from edgekit.host.compiler.lowering.common.arguments import C_NAMES, operand_of
from edgekit.host.compiler.lowering.context import Context, lowers
from edgekit.host.compiler.lowering.gemm.outlier import packed_rows, streamed_rows
from edgekit.host.compiler.lowering.gemm.scales import stored_scales
from edgekit.host.compiler.lowering.narrow import Narrow
from edgekit.host.compiler.lowering.packing import pack_int4
from edgekit.host.compiler.lowering.plan import Field, KernelCall, Value


@lowers(ops.GatherQuantized)
def lower_gather_quantized(ctx: Context, node: Node) -> list[KernelCall]:
    """Lowers a gather of quantized rows.

    If a product uses the table as its weights, as the last layer of a language model often does,
    rows are read from the packed weights. Other tables with values in [-8, 7] are stored two per
    byte if rows have even length.
    """
    if call := _gather_streamed(ctx, node):
        return [call]
    table = ctx.constant(node, 0, "table")
    scale = stored_scales(ctx.constant(node, 2, "scales"), 8)
    indices = ctx.tensor(node.inputs[1])
    rows, run = table.shape
    packed = packed_rows(ctx, str(node.inputs[0]))
    is_int4 = packed is None and run % 2 == 0 and bool(np.all((table >= -8) & (table <= 7)))
    fields: dict[str, Field] = {
        "size": rows,
        "run": run,
        "group": run // scale.values.shape[1],
        "scale": ctx.weights.add(scale.values),
        "least": scale.least,
        "indices": operand_of(ctx, indices),
        "y": Value(node.outputs[0]),
    }
    macros: dict[str, int] = {"SCALE_BITS": scale.bits}
    form = "s8"
    if packed is not None:
        fields |= {"depth": packed.depth, "columns": packed.columns, "padded": packed.padded}
        fields["table"] = packed.weights
        macros["PACKED"], form = ctx.isa.i8.group, f"s8_by_{ctx.isa.i8.group}"
    else:
        fields["table"] = ctx.weights.add(pack_int4(table.reshape(-1), run) if is_int4 else table)
    if is_int4:
        macros["INT4"], form = 1, "i4"
    kernel = ctx.kernel(
        f"gather_{form}_{scale.bits}_{indices.dtype.value}",
        "layout/gather_quantized.c",
        "layout/gather_quantized.h",
        "ek_gather_quantized_args",
        TI=C_NAMES[indices.dtype],
        **macros,
    )
    return [KernelCall(kernel, fields, indices.elements, max(1, 4096 // run))]


def _gather_streamed(ctx: Context, node: Node) -> KernelCall | None:
    """A gather of rows from the weights that a product streams, which have the scales, too."""
    indices, (rows, run) = ctx.tensor(node.inputs[1]), ctx.constant(node, 0, "table").shape
    scale = ctx.constant(node, 2, "scales")
    found = streamed_rows(ctx, str(node.inputs[0]), scale)
    if found is None:
        return None
    stream, padded = found
    fields: dict[str, Field] = {
        "size": rows,
        "run": run,
        "group": run // stream.groups,
        "table": stream.at,
        "columns": stream.columns,
        "padded": padded,
        "indices": operand_of(ctx, indices),
        "y": Value(node.outputs[0]),
    }
    kind = stream.scales.removeprefix("STREAM_").lower()
    kernel = ctx.kernel(
        f"gather_stream_int{stream.form}_{stream.depth}_{kind}_{indices.dtype.value}",
        "layout/gather_quantized.c",
        "layout/gather_quantized.h",
        "ek_gather_quantized_args",
        TI=C_NAMES[indices.dtype],
        SCALE_BITS=0,
        STREAM=stream.form,
        GROUPS=stream.depth,
        SCALES=stream.scales,
    )
    return KernelCall(kernel, fields, indices.elements, max(1, 4096 // run))


def gather_narrow(ctx: Context, node: Node, rows: Narrow) -> list[KernelCall]:
    """Lowers a gather of f32 rows that are stored as `rows`."""
    indices, (size, run) = ctx.tensor(node.inputs[1]), rows.values.shape
    fields: dict[str, Field] = {
        "size": size,
        "run": run,
        "group": run,
        "table": ctx.weights.add(rows.values),
        "indices": operand_of(ctx, indices),
        "y": Value(node.outputs[0]),
    }
    if rows.scales is None:
        name, macros = "f16", {"FROM_F16": 1, "SCALE_BITS": 0}
    else:
        name, macros = "s8_32", {"SCALE_BITS": 32}
        fields["scale"] = ctx.weights.add(rows.scales)
    kernel = ctx.kernel(
        f"gather_{name}_{indices.dtype.value}",
        "layout/gather_quantized.c",
        "layout/gather_quantized.h",
        "ek_gather_quantized_args",
        TI=C_NAMES[indices.dtype],
        **macros,
    )
    return [KernelCall(kernel, fields, indices.elements, max(1, 4096 // run))]
