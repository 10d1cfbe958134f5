"""Runs a model in float, quantized and with a board's kernels, and compares every operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.costs.work import multiply_adds
from edgekit.host.compiler.driver import plan_graph, prepare
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.blas import one_thread
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array, Graph, Node, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.pipeline import PreparedGraph
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import InputError
from edgekit.host.lab.compare.layers import (
    LayerError,
    References,
    Removal,
    TensorError,
    error_of,
    float_twin,
    in_layout,
    real,
    saturation,
)
from edgekit.host.lab.compare.watched import board_tensors
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.targets.board import BoardProfile

_STEPS = 1 << 31  # multiply-adds that removals may take in all
# What passes append to the name of a tensor when they make another one with its values.
_RENAMED = (".half", ".nchw", ".moved", ".converted", ".points", ".image")
_FEWEST, _MOST = 6, 64  # operators removed

Values = Mapping[str, Array]


@dataclass(frozen=True)
class Request:
    """What to compare. `reference`: a file with the model in float; `inputs`: by name, by default
    the golden ones."""

    model: Path
    board: BoardProfile
    options: CompileOptions
    reference: Path | None = None
    inputs: Values = field(default_factory=dict)
    seconds: float = 3600.0


@dataclass(frozen=True)
class Brought:
    """An operator of the model, and by how many dB the outputs' noise falls without its
    rounding."""

    name: str
    kind: str
    db: float


@dataclass(frozen=True)
class Comparison:
    """`layers` are the operators that the board runs, in order; `outputs` compares the outputs;
    `against` says what the reference is; `tried`: operators of the model whose rounding was taken
    away, of `rounding` that round; `equalized`: operators whose channels quantization has
    scaled differently from the reference, and which are compared after scaling those, too."""

    layers: tuple[LayerError, ...]
    outputs: Mapping[str, TensorError]
    brought: tuple[Brought, ...]
    against: str
    tried: int
    rounding: int
    equalized: tuple[str, ...] = ()

    @property
    def scaling(self) -> str:
        """How many operators are `equalized`, in a sentence; empty if none are."""
        if not self.equalized:
            return ""
        return (
            f"channels of {len(self.equalized)} operators are scaled as quantization equalized "
            "them before the reference is compared"
        )


def compare_model(request: Request, bundle: Bundle, target: SimulatedCore | None) -> Comparison:
    """Compares the model with its reference on one input, run as `target` or, if that is None, on
    this machine. Raises InputError."""
    made = prepare(request.model, request.board, request.options)
    scheduled, plan = plan_graph(made, request.board, request.options)
    graph, imported = scheduled.graph, made.imported
    given = request.inputs or _golden_inputs(imported)
    inputs = [given[name] for name in imported.inputs]
    on_board = board_tensors(
        scheduled, plan, request.board, bundle, inputs, target, request.seconds
    )
    floats, against, is_twin = _reference_graph(request, made)
    with one_thread():
        given_floats = _inputs_of(floats, imported, inputs)
        by_value = request.reference is not None
        names = _reference_names(graph, made, floats)
        results = {*graph.outputs, *imported.outputs}
        reference = References(floats, given_floats, names, by_value, is_twin, results)
        own = evaluate(graph, dict(zip(graph.inputs, inputs, strict=True)), keep_tensors=True)
        sources = _Sources(graph, on_board)
        layers = tuple(
            _layer(names, graph, node, own.tensors, on_board, reference, sources)
            for node in graph.nodes
            if any(name in on_board for name in node.outputs)
        )
        outputs = _output_errors(graph, made, own.outputs, on_board, reference)
        brought, tried, rounding = _find_brought(imported, given, reference)
    known = {names.get(name, name) for name in reference.equalized}
    scaled = tuple(each.name for each in layers if each.tensor in known)
    return Comparison(layers, outputs, brought, against, tried, rounding, scaled)


def _golden_inputs(imported: Graph) -> Values:
    golden = golden_of(imported, cache_folder() / "golden")
    return dict(zip(imported.inputs, golden.inputs, strict=True))


def _reference_graph(request: Request, made: PreparedGraph) -> tuple[Graph, str, bool]:
    """The reference, what it is, and whether it is a `float_twin`."""
    if request.reference is not None:
        graph = import_model(
            request.reference, request.options.shapes, max_rows=request.options.max_rows
        )
        return float_twin(graph), request.reference.name, True
    if (exact := made.base or made.exact or made.floats) is not None:
        return exact, "the model in float", False
    if any(t.quant is not None for t in made.imported.tensors.values()):
        against = (
            "the model's own weights in float; --reference names the model before quantization"
        )
        return float_twin(made.imported), against, True
    return made.imported, "the model in float", False


def _reference_names(graph: Graph, made: PreparedGraph, floats: Graph) -> dict[str, str]:
    """The names in the reference of tensors that quantization, f16 or a layout renamed."""
    found = dict(made.base_names)
    for name in graph.tensors:
        known = found.get(name, name)
        while known not in floats.tensors and known.endswith(_RENAMED):
            stem = known.rpartition(".")[0]
            known = found.get(stem, stem)
        if known != name and known in floats.tensors:
            found[name] = known
    return found


def _inputs_of(floats: Graph, graph: Graph, inputs: Sequence[Array]) -> dict[str, Array]:
    """The inputs of the reference, by name or else by place. Raises InputError."""
    by_name = dict(zip(graph.inputs, inputs, strict=True))
    if len(floats.inputs) != len(inputs):
        raise InputError(
            f"--reference: expected a model with {len(inputs)} inputs, found {len(floats.inputs)}"
        )
    found = {}
    for name, place in zip(floats.inputs, graph.inputs, strict=True):
        source = name if name in by_name else place
        value, wanted = by_name[source], floats.tensors[name]
        if wanted.dtype.is_float:
            value = real(value, graph.tensors[source]).astype(wanted.dtype.numpy)
        laid = value if value.shape == wanted.shape else in_layout(value, np.zeros(wanted.shape))
        if laid is None or laid.dtype != wanted.dtype.numpy:
            raise InputError(
                f"--reference: expected an input {name} of shape {value.shape}, found "
                f"{wanted.dtype.value} {wanted.shape}"
            )
        found[name] = np.ascontiguousarray(laid)
    return found


class _Sources:
    """Which compared operators feed each node, also through views and fused operators."""

    def __init__(self, graph: Graph, compared: Values) -> None:
        self._producer, self._compared = graph.producer(), compared

    def of(self, node: Node) -> tuple[str, ...]:
        found: dict[str, None] = {}
        waiting, seen = [*node.inputs], set[str]()
        while waiting:
            name = waiting.pop()
            if name is None or name in seen or name not in self._producer:
                continue
            seen.add(name)
            source = self._producer[name]
            if any(each in self._compared for each in source.outputs):
                found[source.name] = None
            else:
                waiting += source.inputs
        return tuple(found)


def _layer(
    names: Mapping[str, str],
    graph: Graph,
    node: Node,
    own: Values,
    on_board: Values,
    reference: References,
    sources: _Sources,
) -> LayerError:
    name = next(each for each in node.outputs if each in on_board)
    tensor, stored = graph.tensors[name], on_board[name]
    found, computed = real(stored, tensor), real(own[name], tensor)
    want = reference.like(name, computed)
    return LayerError(
        node.name,
        node.op.kind,
        names.get(name, name),
        sources.of(node),
        _error(want, own[name], tensor),
        _error(want, stored, tensor),
        _steps_between(computed, found, tensor),
    )


def _error(want: Array | None, stored: Array, tensor: Tensor) -> TensorError | None:
    if want is None:
        return None
    return error_of(want, real(stored, tensor), saturation(stored, tensor, want))


def _steps_between(computed: Array, found: Array, tensor: Tensor) -> float:
    """The largest difference in steps of the scale; of floats, relative to the largest value."""
    off = error_of(computed, found, 0.0).largest
    if tensor.is_quantized and tensor.quant is not None:
        return off / float(tensor.quant.scale.flat[0])
    return off / max(float(np.max(np.abs(computed), initial=0.0)), 1e-30)


def _output_errors(
    graph: Graph,
    made: PreparedGraph,
    own: Values,
    on_board: Values,
    reference: References,
) -> dict[str, TensorError]:
    """Of the outputs on the board, or, of those that are views, in NumPy."""
    found = {}
    for name in graph.outputs:
        tensor = graph.tensors[name]
        stored = on_board.get(name, own[name])
        want = reference.like(name, real(own[name], tensor))
        if want is not None:
            error = _error(want, stored, tensor)
            assert error is not None
            found[made.output_names.get(name, name)] = error
    return found


def _find_brought(
    graph: Graph, given: Values, reference: References
) -> tuple[tuple[Brought, ...], int, int]:
    """Removes the rounding of one operator at a time, those with the largest drop of SQNR first."""
    removal = Removal(graph, given, reference)
    rounding = [node for node in graph.nodes if removal.rounds(node)]
    work = sum(multiply_adds(graph, node) for node in graph.nodes) + len(graph.nodes) * 2**16
    most = min(max(_STEPS // max(work, 1), _FEWEST), _MOST)
    ranked = sorted(rounding, key=lambda node: -removal.drop_db(node))[:most]
    found, tried = [], 0
    for node in ranked:
        db = removal.brought_db(node)
        tried += db is not None
        if db is not None:
            found.append(Brought(node.name, node.op.kind, db))
    return tuple(sorted(found, key=lambda each: -each.db)), tried, len(rounding)
