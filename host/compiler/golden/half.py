"""Loss of golden outputs by reduced precision, relative to the f32 model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from edgekit.device.runtime.agent.specs import LossSpec
from edgekit.host.compiler.artifact import Golden
from edgekit.host.compiler.costs.work import multiply_adds
from edgekit.host.compiler.golden.blas import one_thread
from edgekit.host.compiler.golden.choices import Choices, names_of_sources
from edgekit.host.compiler.golden.noise import noisy_runner
from edgekit.host.compiler.ir.evaluate import Runner, evaluate, run_node
from edgekit.host.compiler.ir.makers import probabilities
from edgekit.host.compiler.ir.similarity import cosine, least_cosine
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node

_NONE = 1e-30
_MOST_OFF = 1e9  # reported for non-finite outputs
_BY_FAR = 8  # times the limit, in a noisy run
_EMULATED = 1 << 29  # multiply-adds whose f16 sums are rounded at each step, at one input at least


Pairs = Sequence[tuple[Array, Array]]  # of outputs: wanted and found
Values = Mapping[str, Array]
Follow = Callable[[Runner[Array]], Runner[Array]]  # to a runner that chooses as another did
Run = Callable[[Graph, Values, Follow], Values]


class HalfLoss(NamedTuple):
    """A loss, the input where it was found, and whether a noisy run found it."""

    off: float
    inputs: Values
    noisy: bool = False


def half_loss(exact: Graph, made: Graph, inputs: Iterable[Values], limit: float) -> HalfLoss:
    """Loss of `made`, in half precision, against `exact`, the same model in f32: the largest error
    of an output relative to its largest value, or to 1 for probabilities, for the first of `inputs`
    that exceeds `limit`, or else for the worst.

    A noisy run exaggerates the errors of f16 sums, up to three times. Only where it exceeds
    `limit`, but not by far, and for the worst inputs of graphs with Winograd's transforms, which it
    leaves out, are sums rounded at each step as in kernels: that takes a hundred times as long.
    """
    tried = []
    for each in inputs:
        tried.append((_loss_with(_noisy_run, exact, made, each), each))
        if not tried[-1][0] <= _BY_FAR * limit:
            return HalfLoss(*tried[-1], noisy=True)
    tried.sort(key=lambda pair: -pair[0])
    transforms = any(getattr(node.op, "winograd", False) for node in made.nodes)
    work = sum(multiply_adds(made, node) for node in made.nodes)
    emulated, worst = max(_EMULATED // max(work, 1), 1) if transforms else 0, HalfLoss(0.0, {})
    for number, (lost, each) in enumerate(tried):
        if lost > limit or number < emulated:
            lost = _loss_with(_rounded_run, exact, made, each)
        worst = max(worst, HalfLoss(lost, each), key=lambda loss: loss.off)
        if worst.off > limit:
            break
    return worst


def rounded_losses(exact: Graph, made: Iterable[Graph], inputs: Values) -> list[float]:
    """Losses of several graphs for one input, with sums of f16 rounded at each step as in kernels:
    of graphs whose parts in half precision are disjoint that takes as long as of one with all."""
    want = _exact_run(exact, inputs)
    return [_largest_loss(exact, each, want, _rounded_run, inputs) for each in made]


def _loss_with(run: Run, exact: Graph, made: Graph, inputs: Values) -> float:
    return _largest_loss(exact, made, _exact_run(exact, inputs), run, inputs)


class _ExactRun(NamedTuple):
    outputs: Values
    choices: Choices


def _exact_run(graph: Graph, inputs: Values) -> _ExactRun:
    choices = Choices()
    return _ExactRun(_run(graph, inputs, choices.recording(run_node)), choices)


def _largest_loss(exact: Graph, made: Graph, want: _ExactRun, run: Run, inputs: Values) -> float:
    """Of the outputs of `made` with the choices of the exact run, and of what both choose from."""
    found: dict[tuple[str, int], Array] = {}
    outputs = run(made, inputs, partial(want.choices.followed_by, sources=found))
    pairs = [
        (exact.outputs[i], want.outputs[exact.outputs[i]], outputs[made.outputs[i]])
        for i in _compared(exact)
    ]
    sources = names_of_sources(exact)
    pairs += [(sources[at], want.choices.sources[at], y) for at, y in found.items()]
    units = probabilities(exact, [name for name, _, _ in pairs])
    return max(
        (_max_relative_error(a, b, 1.0 if name in units else _NONE) for name, a, b in pairs),
        default=0.0,
    )


def _rounded_run(graph: Graph, inputs: Values, follow: Follow) -> Values:
    return _run(graph, inputs, follow(run_node))


def _run(graph: Graph, inputs: Values, run: Runner[Array]) -> Values:
    with np.errstate(all="ignore"), one_thread():
        return evaluate(graph, inputs, runner=run).outputs


def _noisy_run(graph: Graph, inputs: Values, follow: Follow) -> Values:
    return _run(graph, inputs, follow(noisy_runner()))


def overflows(pairs: Pairs) -> bool:
    """Whether outputs are non-finite where finite ones are wanted."""
    return any(bool(np.any(np.isfinite(want) & ~np.isfinite(found))) for want, found in pairs)


def loss_of(exact: Graph, made: Graph, golden: Golden) -> LossSpec:
    """Loss of a reduced-precision model's golden outputs against `exact`, the f32 model; where
    operators choose, with the choices of that."""
    inputs = dict(zip(exact.inputs, golden.inputs, strict=True))
    want, outputs = _exact_run(exact, inputs), golden.outputs
    if want.choices.results:
        follow = partial(want.choices.followed_by, sources={})
        outputs = tuple(_rounded_run(made, inputs, follow)[name] for name in made.outputs)
    pairs = [(want.outputs[exact.outputs[i]], outputs[i]) for i in _compared(exact)]
    pairs = [pair for pair in pairs if pair[0].size]
    least = min((cosine(want, found) for want, found in pairs), default=1.0)
    off = max((_max_relative_error(want, found) for want, found in pairs), default=0.0)
    return LossSpec(float(np.clip(least, -1, 1)), min(off, _MOST_OFF))


def worse(one: LossSpec | None, other: LossSpec | None) -> LossSpec | None:
    """Return the loss with the lower cosine, of two that occurred in sequence."""
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda loss: loss.cosine)


def code_note(made: Graph, loss: LossSpec | None) -> str:
    """Describe `made`, a model with quantized weights. Without `loss`, it is a language model,
    whose golden tokens are random: it predicts nothing from them that could be compared."""
    narrow = sum(node.op.quantized_weights for node in made.nodes)
    lost = "--samples TEXT measures what that costs" if loss is None else loss.describe()
    return f"low-bit weights: {narrow} of {len(made.nodes)} operators; {lost}"


def sample_note(exact: Graph, made: Graph, samples: Sequence[Mapping[str, Array]]) -> str:
    """Describe the loss of `made` against `exact` on samples it was not fitted to: least and median
    cosine."""
    cosines = _cosines(exact, made, samples)
    return (
        f"fitted to samples: on {len(cosines)} held-out samples, outputs have a cosine of at least "
        f"{min(cosines):.5f} with the float model's, {float(np.median(cosines)):.5f} in the median"
    )


def unfitted_note(exact: Graph, made: Graph, samples: Sequence[Mapping[str, Array]]) -> str:
    """The same of a graph that was not fitted, for comparison."""
    cosines = _cosines(exact, made, samples)
    middle = float(np.median(cosines))
    return f"without samples, at least {min(cosines):.5f}, {middle:.5f} in the median"


def _cosines(exact: Graph, made: Graph, samples: Sequence[Mapping[str, Array]]) -> list[float]:
    cosines = []
    for each in samples:
        with np.errstate(all="ignore"):
            found, want = (evaluate(graph, each).outputs for graph in (made, exact))
        cosines.append(least_cosine(want, found))
    return cosines


def output_pairs(exact: Graph, golden: Golden) -> Pairs:
    """Pairs of `exact` outputs for the golden inputs and golden outputs, in f64."""
    with np.errstate(all="ignore"), one_thread():
        found = evaluate(exact, dict(zip(exact.inputs, golden.inputs, strict=True))).outputs
    made = ((found[exact.outputs[i]], golden.outputs[i]) for i in _compared(exact))
    return [(want.astype(np.float64), y.astype(np.float64)) for want, y in made]


def _compared(graph: Graph) -> list[int]:
    """The outputs whose differences are a loss: not those of operators that select, like boxes,
    if others show what these select from."""
    producer = graph.producer()
    selected = {n for n in graph.outputs if n in producer and producer[n].op.jumps}
    every = range(len(graph.outputs))
    return [i for i in every if graph.outputs[i] not in selected] or list(every)


def _max_relative_error(want: Array, found: Array, unit: float = _NONE) -> float:
    """Largest difference relative to the largest expected value, or to `unit` if that is larger."""
    want, found = want.astype(np.float64), found.astype(np.float64)
    with np.errstate(all="ignore"):
        off = float(np.max(np.abs(found - want), initial=0.0))
        largest = max(float(np.max(np.abs(want), initial=0.0)), unit)
    return off / largest if np.isfinite(off) else np.inf


def _uses_half(graph: Graph, node: Node) -> bool:
    """Whether the node computes in f16, or has weights of it."""
    ins = (graph.tensors[name] for name in node.inputs if name is not None)
    used = [graph.tensors[name] for name in node.outputs] + [t for t in ins if t.data is not None]
    return any(t.dtype is DType.F16 for t in used)


def half_note(exact: Graph, made: Graph, golden: Golden, loss: LossSpec) -> str:
    """Describe the gain and loss of `made`, which computes in f16 where it pays, against `exact` in
    f32."""
    inside = sum(_uses_half(made, node) for node in made.nodes)
    bound = max(
        golden.tolerances[i] / max(float(np.max(np.abs(golden.outputs[i]), initial=0)), 1e-30)
        for i in _compared(exact)
    )
    return (
        f"half precision: {inside} of {len(made.nodes)} operators, "
        f"{_constant_bytes(made):,} instead of {_constant_bytes(exact):,} bytes of constants; "
        f"golden outputs differ by {loss.off:.2%} of f32's largest value, on a board by up to "
        f"{bound:.2%} more"
    )


def _constant_bytes(graph: Graph) -> int:
    used = {name for n in graph.nodes for name in n.inputs if name is not None}
    return sum(t.bytes for t in graph.tensors.values() if t.data is not None and t.name in used)
