"""Golden vectors: the reference results for the health check on the board.

The input is chosen so that the outputs are informative: finite, not saturated, and with integers
that do not depend on rounding. Tolerances are derived from how far the reference moves under noise
in its arithmetic.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from edgekit.host.common.checked_files import WORK, in_use, is_intact, put_checked
from edgekit.host.compiler.artifact import Golden
from edgekit.host.compiler.golden.blas import one_thread
from edgekit.host.compiler.golden.margins import flips, margin_of, moved
from edgekit.host.compiler.golden.noise import noisy_runs, terms_of
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.exact import can_be_exact, rows_of
from edgekit.host.compiler.ir.identity import identity
from edgekit.host.compiler.ir.types import Array, DType, Graph, Tensor

_INDICES = 100  # upper limit (exclusive) of random integers
_WAVES = 4  # maximum number of periods of a smooth input along each axis


@dataclass(frozen=True)
class Range:
    """Value range: floats from `low` to `high`, `whole` ones if requested, quantized inputs in the
    fraction `quantized` of their range, integers below `indices`. `smooth` inputs change slowly
    along the axes, like pictures and sounds."""

    low: float = -1.0
    high: float = 1.0
    quantized: float = 1.0
    indices: int = _INDICES
    smooth: bool = False
    whole: bool = False


RANGES = (
    Range(),
    Range(0.0, 1.0, smooth=True),
    Range(-1.0, 1.0, 0.5, indices=10, smooth=True),
    Range(0.0, 1.0, 0.25, indices=2),
    Range(-3.0, 3.0, 0.5),
    Range(0.0, 255.0, smooth=True),
    Range(-0.1, 0.1, 0.1, indices=1),
    Range(-30.0, 30.0),
    Range(indices=10_000, smooth=True),  # for sound lengths: features of a single frame cancel out
)  # candidates for golden inputs, most common first
# The first candidate of networks that hold integers in floats: nothing is rounded.
_WHOLE = Range(0.0, 255.0, smooth=True, whole=True)


def random_input(tensor: Tensor, rng: np.random.Generator, values: Range = RANGES[0]) -> Array:
    """Return random values; by default all values of a quantized input, [-1, 1] for floats, and
    small integers, which are mostly indices."""
    kind = tensor.dtype.numpy
    if tensor.dtype.is_float:
        if values.smooth:
            found = values.low + (values.high - values.low) * _smooth_input(tensor, rng)
        else:
            found = np.asarray(rng.uniform(values.low, values.high, tensor.shape))
        return (np.rint(found) if values.whole else found).astype(kind)
    if not (tensor.dtype.is_quantized or tensor.is_quantized):
        most = 2 if tensor.dtype is DType.BOOL else values.indices
        return rng.integers(0, most, tensor.shape).astype(kind)
    info = np.iinfo(kind)
    if values.smooth:
        middle = (info.min + info.max) / 2
        span = (info.max - info.min) * values.quantized
        return np.rint(middle + (_smooth_input(tensor, rng) - 0.5) * span).astype(kind)
    cut = int((info.max - info.min) * (1 - values.quantized) / 2)
    return rng.integers(info.min + cut, info.max + 1 - cut, tensor.shape, dtype=kind)


def _smooth_input(tensor: Tensor, rng: np.random.Generator) -> Array:
    """Sum of a wave along each axis and a little noise, scaled to [0, 1]."""
    total = rng.uniform(-0.2, 0.2, tensor.shape)
    for axis, size in enumerate(tensor.shape):
        turns, phase = rng.uniform(0.5, _WAVES), rng.uniform(0, 2 * np.pi)
        wave = np.sin(phase + turns * 2 * np.pi * np.arange(size) / max(size, 1))
        total += wave.reshape([-1 if i == axis else 1 for i in range(len(tensor.shape))])
    low, high = total.min(initial=0.0), total.max(initial=0.0)
    return np.asarray((total - low) / max(high - low, 1e-9))


_SEED = 20240501
_TRIAL_SEED = 20251127
_RUNS = 3  # number of noisy runs
_TRIALS = 3  # number of inputs of a range in trials
_LEAST_SIDE = 32  # of pictures: smaller maps may be features
_LIVELY = 0.25  # fraction of distinct values, of those possible, that is good enough
_NOTHING = 2.0**-20  # smaller values, relative to the largest, count as 0
_CALM = 1e-2  # acceptable movement, relative to the largest value
_STEPS = 1 << 32  # budget for choosing an input, in approximate multiply-adds of the reference
_STEPS_OF_NODE = 1 << 18  # overhead of a NumPy call, in multiply-adds

Values = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class _Candidate:
    """An input, the outputs for it, and those of runs that noise changed."""

    inputs: Values
    outputs: Values
    noisy: Mapping[str, tuple[Array, ...]]

    @cached_property
    def movements(self) -> Mapping[str, tuple[Array, ...]]:
        """How far outputs move in each run."""
        return {
            name: tuple(moved(self.outputs[name], y) for y in runs)
            for name, runs in self.noisy.items()
        }

    @cached_property
    def moved(self) -> Values:
        return {name: np.max(runs, axis=0) for name, runs in self.movements.items()}

    @property
    def flips(self) -> int:
        return sum(flips(y, self.moved[name]) for name, y in self.outputs.items())

    @property
    def broken(self) -> int:
        """Number of non-finite values, which carry no information."""
        return sum(int(np.count_nonzero(~np.isfinite(y))) for y in self.outputs.values())

    @property
    def life(self) -> float:
        """Mean life of all outputs, each capped, so that an output that is the same for every input
        does not outweigh the others."""
        lives = [min(_distinct_ratio(y), _LIVELY) for y in self.outputs.values()]
        return sum(lives) / len(lives) if lives else _LIVELY

    @property
    def movement(self) -> float:
        """Largest movement of an output, relative to its largest value."""
        found = 0.0
        for name, y in self.outputs.items():
            if y.dtype == np.float32:
                largest = float(np.max(np.abs(y), where=np.isfinite(y), initial=1e-30))
                off = self.moved[name]
                found = max(found, float(np.max(off, where=np.isfinite(off), initial=0)) / largest)
        return found

    @cached_property
    def rank(self) -> tuple[bool, bool, float, float]:
        """Sort key; smaller is better."""
        return self.broken > 0, self.flips > 0, -self.life, self.movement

    def good(self) -> bool:
        return self.rank <= (False, False, -_LIVELY, _CALM)


def golden_of(graph: Graph, cache: Path) -> Golden:
    """Return golden inputs, outputs and tolerances of a graph, cached in `cache` by the graph and
    the source code of the reference."""
    path = cache / f"{identity(graph)[:32]}-{_reference_hash()[:16]}.npz"
    with in_use(cache):
        kept = _load(path, len(graph.inputs), len(graph.outputs))
        if kept is None:
            with one_thread():
                kept = _make_golden(graph, _as_on_boards(graph, _choose_candidate(graph)))
            _save(path, kept)
        return kept


def trial_inputs(graph: Graph, golden: Golden | None = None) -> Iterator[Values]:
    """Return random inputs of every kind that is not larger than those of `golden`, or than 1:
    for decisions that must hold for inputs that were not chosen for a graph. Pictures are smooth:
    trained networks lose no more on others, but networks with random weights amplify noise."""
    most = max(1.0, _largest_input(golden) if golden else 0.0)
    ranges = [values for values in RANGES if max(-values.low, values.high) <= most]
    if any(_is_picture(graph.tensors[name]) for name in graph.inputs):
        ranges = [values for values in ranges if values.smooth]
    count = min(_STEPS // _count_multiply_adds(graph), _TRIALS * len(ranges))
    rng = np.random.default_rng(_TRIAL_SEED)
    for i in range(max(count, len(ranges))):
        values = ranges[i % len(ranges)]
        yield {name: random_input(graph.tensors[name], rng, values) for name in graph.inputs}


def _is_picture(tensor: Tensor) -> bool:
    if not tensor.dtype.is_float or len(tensor.shape) != 4 or tensor.shape[0] != 1:
        return False
    _, *sides = tensor.shape
    channels = sides.pop(0 if sides[0] < sides[-1] else -1)
    return channels in (1, 3) and min(sides) >= _LEAST_SIDE


def _largest_input(golden: Golden) -> float:
    return max(
        (float(np.max(np.abs(x), initial=0)) for x in golden.inputs if x.dtype.kind == "f"),
        default=0.0,
    )


def _choose_candidate(graph: Graph) -> _Candidate:
    """Return the first candidate that is good enough, or the best of those tried."""
    best: _Candidate | None = None
    tries = min(max(_STEPS // _count_multiply_adds(graph), 2), len(RANGES))
    ranges = (_WHOLE, *RANGES) if _holds_integers(graph) else RANGES
    for index, values in enumerate(ranges[:tries]):
        found = _make_candidate(graph, _SEED + index, values)
        if best is None or found.rank < best.rank:
            best = found
        if best.good():
            break
    assert best is not None
    return best


def _holds_integers(graph: Graph) -> bool:
    """Whether the first weights are f32 integers, or multiples of a power of two. Later ones, as of
    an expectation over bins, do not see integers."""
    node = next((n for n in graph.nodes if isinstance(n.op, ops.Weighted)), None)
    if node is None:
        return False
    weights = graph.tensors[node.inputs[1] or ""]
    if weights.data is None or weights.dtype is not DType.F32:
        return False
    return can_be_exact(rows_of(node.op, weights.data))


def _count_multiply_adds(graph: Graph) -> int:
    """Approximate multiply-adds of all runs for one candidate."""
    of_nodes = (
        terms_of(n, graph.tensors) * sum(graph.tensors[name].elements for name in n.outputs)
        + _STEPS_OF_NODE
        for n in graph.nodes
    )
    return (1 + _RUNS) * max(sum(of_nodes), 1)


def _make_candidate(graph: Graph, seed: int, values: Range) -> _Candidate:
    rng = np.random.default_rng(seed)
    inputs = {name: random_input(graph.tensors[name], rng, values) for name in graph.inputs}
    with np.errstate(all="ignore"):
        found = noisy_runs(graph, inputs, _RUNS if _is_rounding(graph) else 0)
    outputs = {name: runs.exact for name, runs in found.items()}
    noisy = {name: runs.noisy or (runs.exact,) for name, runs in found.items()}
    return _Candidate(inputs, outputs, noisy)


def _as_on_boards(graph: Graph, chosen: _Candidate) -> _Candidate:
    """The candidate with outputs of f16 sums that are rounded at each step, as in kernels."""
    if not any(graph.tensors[name].dtype is DType.F16 for n in graph.nodes for name in n.outputs):
        return chosen
    with np.errstate(all="ignore"):
        return replace(chosen, outputs=evaluate(graph, chosen.inputs).outputs)


def _is_rounding(graph: Graph) -> bool:
    """Whether some tensor is computed in floats: noise does not affect integers."""
    return any(
        graph.tensors[name].dtype in (DType.F32, DType.F16)
        for n in graph.nodes
        for name in n.outputs
    )


def _make_golden(graph: Graph, chosen: _Candidate) -> Golden:
    margins = [
        margin_of(
            chosen.outputs[name],
            chosen.movements[name],
            is_index=graph.tensors[name].quant is None,
        )
        for name in graph.outputs
    ]
    codes = tuple(m.codes for m in margins)
    return Golden(
        tuple(chosen.inputs[name] for name in graph.inputs),
        tuple(np.ascontiguousarray(chosen.outputs[name]) for name in graph.outputs),
        tuple(m.tolerance for m in margins),
        codes if any(c is not None for c in codes) else (),
    )


def _distinct_ratio(y: Array) -> float:
    """Number of distinct values relative to the possible number.

    Uninformative values are not counted: the limits of an integer's range, 0 and ±1 of floats, and
    values negligible next to the largest.
    """
    if not y.size or y.dtype == np.bool_:
        return 1.0
    if y.dtype.kind == "f":
        ends: Sequence[float] = (0.0, 1.0, -1.0)
    else:
        info = np.iinfo(y.dtype)
        ends = (info.min, info.max) if info.bits <= 16 else ()
    sample = y.reshape(-1)[:: max(y.size >> 16, 1)]
    sample = sample[np.isfinite(sample)]
    if y.dtype.kind == "f":
        sizes = np.abs(sample)
        sample = np.where(sizes < sizes.max(initial=0) * _NOTHING, 0, sample)
    found = np.unique(sample)
    return np.count_nonzero(~np.isin(found, ends)) / min(max(sample.size, 1), 32)


def _reference_hash() -> str:
    """Hash of the source code that determines golden vectors."""
    import edgekit.host.compiler.golden
    import edgekit.host.compiler.ir

    packages = (edgekit.host.compiler.golden, edgekit.host.compiler.ir)
    folders = (Path(next(iter(package.__path__))) for package in packages)
    files = (path for folder in folders for path in folder.rglob("*.py"))
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(path: Path, inputs: int, outputs: int) -> Golden | None:
    """Return None for a missing or damaged entry."""
    if not is_intact(path):
        return None
    try:
        with np.load(path) as data:
            margins = tuple(data.get(f"margin{i}") for i in range(outputs))
            return Golden(
                tuple(data[f"in{i}"] for i in range(inputs)),
                tuple(data[f"out{i}"] for i in range(outputs)),
                tuple(float(t) for t in data["tolerances"]),
                margins if any(m is not None for m in margins) else (),
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _save(path: Path, golden: Golden) -> None:
    arrays = {f"in{i}": x for i, x in enumerate(golden.inputs)}
    arrays |= {f"out{i}": y for i, y in enumerate(golden.outputs)}
    arrays |= {f"margin{i}": m for i, m in enumerate(golden.margins) if m is not None}
    tolerances = np.array(golden.tolerances, np.float64)
    with tempfile.TemporaryDirectory(prefix=WORK, dir=path.parent) as work:
        made = Path(work) / path.name
        np.savez(made, allow_pickle=False, tolerances=tolerances, **arrays)
        put_checked(made, path)
