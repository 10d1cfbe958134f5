"""Benchmarks pruned weights times pixels against our dense product, by time or by estimate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from edgekit.device.runtime.arrays.sparse_file import DAMAGED
from edgekit.device.runtime.arrays.sparse_weights import SparseWeights
from edgekit.host.common.decode import fitting
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.ops import Conv2D
from edgekit.host.compiler.ir.types import DType
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from edgekit.host.deploy.release.product_answers import SpmmAnswer
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.gemm import geometric_mean
from edgekit.host.lab.tune.board_kernels import BoardKernels, median_cost
from edgekit.host.simulator.products import Multiplication, product_costs
from edgekit.host.simulator.sparse import panel_of, spmm_cost
from edgekit.host.simulator.target import SimulatedCore
from edgekit.host.simulator.timed import RunnerCalls
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import BoardProfile

_STANDARD = ((32, 32), (64, 32), (64, 64), (128, 128), (384, 96), (96, 384))
_DENSITY = 0.3
Side = Literal["none", "a"]
SIDES: tuple[Side, ...] = ("none", "a")


@dataclass(frozen=True)
class SparseLayer:
    """Weights [outputs, inputs] of a 1x1 convolution; `pixels` if the model determines them."""

    name: str
    weights: np.ndarray[Any, Any]
    pixels: int | None = None


@dataclass(frozen=True)
class SpmmResult:
    """One layer on `pixels` pixels: costs of one product, and the ratio of the dense one's to
    ours."""

    name: str
    outputs: int
    inputs: int
    pixels: int
    density: float
    sparse: float
    dense: float

    @property
    def ratio(self) -> float:
        return self.dense / self.sparse


class SpmmMeasurer(Protocol):
    """Costs of products on a board. `unit`: "seconds" or "instructions"."""

    @property
    def board(self) -> BoardProfile: ...

    @property
    def unit(self) -> str: ...

    def measure(
        self, weights: SparseWeights, pixels: int, dense: Mapping[Side, Method],
        threads: int, seconds: float,
    ) -> tuple[float, float]:  # fmt: skip
        """The cost of weights times pixels, and the cost of the f32 dense product by these methods:
        the lower of unpacked weights ("none") and weights packed ahead ("a")."""


def layers_of(path: Path | None) -> list[SparseLayer]:
    """The pruned 1x1 convolutions of a model or the arrays of an .npz, one layer per shape;
    without a path, standard layers at density 0.3.

    Raises InputError for a file without weights.
    """
    if path is None:
        rng = np.random.default_rng(0)
        made = []
        for shape in _STANDARD:
            values = rng.standard_normal(shape).astype(np.float32)
            made.append(SparseLayer(f"{shape[0]} x {shape[1]}", _prune_random(rng, values)))
        return made
    if path.suffix.lower() != ".npz":
        return _of_model(path)
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        found = error.strerror or error
        raise InputError(f"{path}: expected an .npz of weights, found: {found}") from None
    except DAMAGED as error:
        raise InputError(f"{path}: expected an .npz of weights, found: {error}") from None
    layers: dict[tuple[int, ...], SparseLayer] = {}
    for name, array in arrays.items():
        if array.ndim >= 2 and array.size and array.dtype.kind == "f":
            flat = array.reshape(array.shape[0], -1).astype(np.float32)
            layers.setdefault(flat.shape, SparseLayer(name, flat))
    if not layers:
        raise InputError(f"{path}: expected weights of 2 dimensions or more, found none")
    return list(layers.values())


def _of_model(path: Path) -> list[SparseLayer]:
    """Layers with zeros, one per shape and number of pixels."""
    graph, _ = run_passes(import_model(path))
    layers: dict[tuple[int, ...], SparseLayer] = {}
    for node in graph.nodes:
        if not isinstance(node.op, Conv2D):
            continue
        w, y = (graph.tensors[str(name)] for name in (node.inputs[1], node.outputs[0]))
        if w.data is None or w.shape[1:3] != (1, 1) or w.dtype is not DType.F32:
            continue
        flat = w.data.reshape(w.shape[0], -1)
        pixels = y.elements // y.shape[3]
        if np.count_nonzero(flat) < flat.size:
            layers.setdefault((*flat.shape, pixels), SparseLayer(node.name, flat, pixels))
    if not layers:
        raise InputError(f"{path}: expected pruned 1x1 convolutions of f32, found none")
    return list(layers.values())


def bench_layer(
    measurer: SpmmMeasurer,
    layer: SparseLayer,
    pixels: int,
    threads: int,
    seconds: float,
    storage: str = "f32",
) -> SpmmResult:
    """The sparse product and the float32 dense one; the dense weights are packed ahead or not,
    whichever is faster."""
    weights = SparseWeights.from_dense(layer.weights, storage)
    (outputs, inputs), board = layer.weights.shape, measurer.board
    shape, table = GemmShape(outputs, inputs, pixels), table_of(board)
    dense = {side: table.choose(board, shape, "f32", threads, side).method for side in SIDES}
    costs = measurer.measure(weights, pixels, dense, threads, seconds)
    return SpmmResult(layer.name, outputs, inputs, pixels, weights.density, *costs)


class EstimatedSpmm:
    """Estimates for a core that we do not have."""

    unit = "seconds"

    def __init__(self, target: SimulatedCore) -> None:
        """InputError if there is no emulator."""
        self.board = target.board
        self._calls = RunnerCalls(target)

    def measure(
        self, weights: SparseWeights, pixels: int, dense: Mapping[Side, Method],
        threads: int, seconds: float,
    ) -> tuple[float, float]:  # fmt: skip
        del seconds  # an estimate has no noise
        x = _pixels_of(weights, pixels)
        shape = GemmShape(*weights.shape, pixels)
        cycles = [spmm_cost(self._calls, weights, x, threads).cycles]
        for side, how in dense.items():
            wanted = Multiplication(shape, "f32", side, threads)
            cycles += [cost.cycles for cost in product_costs(self._calls, wanted, (how,))]
        sparse, *others = (self._calls.target.milliseconds(each) / 1e3 for each in cycles)
        return sparse, min(others)


class BoardSpmm:
    """Times on a board, alternately, or instructions of an emulated one."""

    def __init__(self, device: BoardCalls, board: BoardProfile, emulated: bool) -> None:
        self.board = board
        self._kernels = BoardKernels(device, board, emulated)
        self.unit = self._kernels.unit

    def measure(
        self, weights: SparseWeights, pixels: int, dense: Mapping[Side, Method],
        threads: int, seconds: float,
    ) -> tuple[float, float]:  # fmt: skip
        arrays = weights.arrays(panel_of(self.board))
        operands = {
            "shape": np.array(weights.shape, np.int64),
            "start": arrays.start,
            "index": arrays.index,
            "values": arrays.values,
            "pair": arrays.pairs.pair.view(np.uint8),
            "columns": arrays.pairs.columns,
            "packed": arrays.pairs.values,
            "plan": np.array([arrays.pairs.panels, arrays.pairs.pairs], np.int64),
            "x": _pixels_of(weights, pixels),
        }
        if arrays.scale is not None:
            operands["scale"] = arrays.scale
        request = {
            "stored": weights.stored,
            "pixels": pixels,
            "dense": {side: asdict(how) for side, how in dense.items()},
            "threads": threads,
        }
        answer = self._kernels.measure("spmm-bench", operands, request, seconds)
        found = fitting(answer, SpmmAnswer)
        dense_costs = map(median_cost, found["dense"].values())
        return median_cost(found["sparse"]), min(dense_costs)


def _pixels_of(weights: SparseWeights, pixels: int) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(1).standard_normal((weights.shape[1], pixels))
    return values.astype(np.float32)


def mean_ratio(results: Sequence[SpmmResult]) -> float:
    """The geometric mean of the ratios."""
    return geometric_mean(r.ratio for r in results)


def _prune_random(rng: np.random.Generator, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    values[rng.random(values.shape) >= _DENSITY] = 0
    return values
