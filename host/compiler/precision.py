"""Whether a model computes in half precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from edgekit.host.compiler.costs.work import multiply_adds
from edgekit.host.compiler.fit import spending_of
from edgekit.host.compiler.golden.half import (
    HalfLoss,
    Values,
    half_loss,
    output_pairs,
    overflows,
    rounded_losses,
)
from edgekit.host.compiler.golden.vectors import golden_of, trial_inputs
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.lowering.gemm.winograd_memory import with_winograd
from edgekit.host.compiler.target import Target
from edgekit.host.compiler.transforms.passes.half import (
    convert_nodes,
    half_parts,
    narrow_weights,
    to_half,
)
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import last_cache
from edgekit.kb.targets.clusters import clusters_of

_OVERFLOW = "values exceed 65504, the largest of half precision"
_PARTS = 16  # of a model, of which each may stay in f32
_PART_STEPS = 1 << 34  # multiply-adds of runs to find out what each part loses
_OVERFLOWED = 1e6  # the loss of a part whose values become infinite
_MOST_KEPT = 0.75  # of the parts
_EXAGGERATED = 0.5  # a loss over that of a noisy run; 0.3 to 0.8 were seen
_MARGIN = 0.75  # of the limit, for a mixture: kernels add in other orders, which moves a loss by 7%
_NEAR = 1  # parts fewer than expected, from where parts are tried
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
    if graph is not direct and _flaw_of("auto", exact, graph, target):
        rough = asked == "f16" and _rounds_like(direct, exact, graph, target)
        graph = graph if rough else direct
    if graph is direct and (flaw := _flaw_of(asked, exact, direct, target)):
        mixed = _mostly_half(exact, flaw, target) if board.computes_half else None
        if mixed is None:
            return exact, f"f32: {flaw.why}"
        return mixed, f"f32 for the operators that lose most: {flaw.why}"
    return graph, ""


@dataclass(frozen=True)
class _Flaw:
    """Why a graph in half precision does not do: it would lose `loss`, or overflows."""

    why: str
    loss: HalfLoss | None = None


def _mostly_half(exact: Graph, flaw: _Flaw, target: Target) -> Graph | None:
    """`exact` in half precision but for the parts that lose most; None if these are too many.

    Errors of parts are nearly independent: the square root of the sum of the squares of what each
    loses alone is 0.80 of what all lose together in UltraFace and 0.90 in FastestDet.
    """
    if flaw.loss is None:
        return None
    work = sum(multiply_adds(exact, node) for node in exact.nodes)
    threads, count = target.options.threads or 1, min(_PARTS, _PART_STEPS // max(work, 1))
    parts = half_parts(exact, threads, count) if count > 1 else []
    alone = (convert_nodes(exact, part) for part in parts)
    # A part that overflows alone is among the first to stay in f32.
    losses = np.square(np.minimum(rounded_losses(exact, alone, flaw.loss.inputs), _OVERFLOWED))
    if not np.any(losses):
        return None
    order = np.argsort(-losses, kind="stable")
    rest = 1 - np.cumsum(losses[order]) / np.sum(losses)  # of the squares, without the first parts
    off = flaw.loss.off * (_EXAGGERATED if flaw.loss.noisy else 1.0)
    careful = replace(target, half_loss=_MARGIN * target.half_loss)
    within = off * np.sqrt(np.maximum(rest, 0)) <= careful.half_loss
    least = int(np.argmax(within)) + 1
    most = min(least + 2, int(_MOST_KEPT * len(parts)))
    for kept in range(max(least - _NEAR, 1), most + 1):
        names = frozenset[str]().union(*(parts[i] for i in order[:kept]))
        made = to_half(exact, threads=threads, exact=names)
        if made is exact:
            return None
        for graph in dict.fromkeys((_with_winograd(made, target), made)):
            lost = half_loss(exact, graph, [flaw.loss.inputs], careful.half_loss)
            if lost.off <= careful.half_loss and not _flaw_of("auto", exact, graph, careful):
                return graph
    return None


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


def _flaw_of(asked: str, exact: Graph, made: Graph, target: Target) -> _Flaw | None:
    """Why `auto` does not use `made`, in half precision; None to use it.

    Raises InputError if half precision was requested explicitly but overflows.
    """
    if asked == "auto":  # before golden inputs of `made` are chosen, which takes longer
        inputs = target.samples or _judged_inputs(exact, target)
        lost = half_loss(exact, made, inputs, target.half_loss)
        if lost.off > target.half_loss:
            return _excess(lost, target)
    golden = golden_of(made, target.golden)
    if overflows(output_pairs(exact, golden)):
        if asked == "f16":
            raise InputError(
                "--precision f16: expected values up to 65504, the largest of half precision, "
                "found larger ones, so outputs are NaN or infinite; leave the option out, or use "
                "auto"
            )
        return _Flaw(_OVERFLOW)
    return None


def _judged_inputs(exact: Graph, target: Target) -> Iterator[Values]:
    """Random inputs and the golden ones, for which users see the loss: those are often noise, of
    which networks with random weights lose a hundred times as much as of smooth pictures."""
    golden = golden_of(exact, target.golden)
    yield dict(zip(exact.inputs, golden.inputs, strict=True))
    yield from trial_inputs(exact, golden)


def _excess(lost: HalfLoss, target: Target) -> _Flaw:
    if not math.isfinite(lost.off):
        return _Flaw(_OVERFLOW)
    which = "samples" if target.samples else "random inputs"
    why = (
        f"half precision would change outputs by {lost.off:.2%} of their largest value on {which}, "
        f"more than {target.half_loss:.0%}"
    )
    return _Flaw(why, lost)


def _rounds_like(direct: Graph, exact: Graph, made: Graph, target: Target) -> bool:
    """True if Winograd's transform loses at most twice as much as half precision does anyway: for a
    model that was to be in half precision although that loses more than `auto` permits."""
    golden = golden_of(made, target.golden)
    if overflows(output_pairs(exact, golden)):
        return False
    inputs = list(islice(target.samples or trial_inputs(exact, golden), 1))
    lost, usual = (half_loss(exact, graph, inputs, math.inf).off for graph in (made, direct))
    return lost <= _MOST_MORE * usual
