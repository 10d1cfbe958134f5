"""Whether a model computes in half precision."""

from __future__ import annotations

import math
from itertools import islice

from edgekit.host.compiler.fit import spending_of
from edgekit.host.compiler.golden.half import half_loss, output_pairs, overflows
from edgekit.host.compiler.golden.vectors import golden_of, trial_inputs
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.lowering.gemm.winograd_memory import with_winograd
from edgekit.host.compiler.target import Target
from edgekit.host.compiler.transforms.passes.half import narrow_weights, to_half
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import last_cache
from edgekit.kb.targets.clusters import clusters_of

_MOST_MORE = 2  # times what half precision loses, where it was asked for: by Winograd's transform


def choose_precision(exact: Graph, target: Target) -> tuple[Graph, str]:
    """The f32 graph `exact` in half precision if the options request it and the board supports it,
    else as it is; and a note for users, if there is something to say."""
    asked, board = target.options.precision, target.board
    if asked == "f32":
        return exact, ""
    if not board.computes_half and asked == "f16":
        raise InputError(
            f"--precision f16: expected a board whose core computes in half precision "
            f"(asimdhp of ARM, zvfh of RISC-V), found {board.name}; leave the option out, or "
            "use auto"
        )
    if board.computes_half:
        direct = to_half(exact, threads=target.options.threads or 1)
    elif board.arch == "aarch64":
        direct = narrow_weights(exact, last_cache(board))
    else:
        return exact, ""
    if direct is exact:
        gains = asked == "f16" or _has_float_matrices(direct)
        return exact, "f32: no operator has a faster half-precision kernel" if gains else ""
    graph = _with_winograd(direct, target)
    if graph is not direct and _f32_reason("auto", exact, graph, target):
        rough = asked == "f16" and _rounds_like(direct, exact, graph, target)
        graph = graph if rough else direct
    if graph is direct and (why := _f32_reason(asked, exact, direct, target)):
        return exact, f"f32: {why}"
    return graph, ""


def _with_winograd(graph: Graph, target: Target) -> Graph:
    board = target.board
    if not board.computes_half:
        return graph
    # Large convolutions, which decide on time, usually run on all cores.
    likely = target.options.threads or clusters_of(board)[0].cores
    return with_winograd(graph, board, target.table, likely, spending_of(target.options))


def _has_float_matrices(graph: Graph) -> bool:
    """True if the graph might gain from half precision: quantized weights do not."""
    constants = (t for t in graph.tensors.values() if t.data is not None)
    return any(t.dtype is DType.F32 and len(t.shape) > 1 for t in constants)


def _f32_reason(asked: str, exact: Graph, made: Graph, target: Target) -> str:
    """The reason why `auto` keeps f32 instead of `made`, in half precision; empty to use it.

    Raises InputError if half precision was requested explicitly but overflows.
    """
    golden, limit = golden_of(made, target.golden), target.half_loss
    pairs = output_pairs(exact, golden)
    if overflows(pairs):
        if asked == "f16":
            raise InputError(
                "--precision f16: expected values up to 65504, the largest of half precision, "
                "found larger ones, so outputs are NaN or infinite; leave the option out, or use "
                "auto"
            )
        return "values exceed 65504, the largest of half precision"
    if asked != "auto":
        return ""
    lost = half_loss(exact, made, target.samples or trial_inputs(exact, golden), limit)
    if lost <= limit:
        return ""
    which = "samples" if target.samples else "random inputs"
    return (
        f"half precision would change outputs by {lost:.2%} of their largest value on {which}, "
        f"more than {limit:.0%}"
    )


def _rounds_like(direct: Graph, exact: Graph, made: Graph, target: Target) -> bool:
    """True if Winograd's transform loses at most twice as much as half precision does anyway: for a
    model that was to be in half precision although that loses more than `auto` permits."""
    golden = golden_of(made, target.golden)
    if overflows(output_pairs(exact, golden)):
        return False
    inputs = list(islice(target.samples or trial_inputs(exact, golden), 1))
    lost, usual = (half_loss(exact, graph, inputs, math.inf) for graph in (made, direct))
    return lost <= _MOST_MORE * usual
