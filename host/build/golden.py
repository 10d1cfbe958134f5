"""Golden vectors: what the health check on the board compares with."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from edgekit.host.build.artifact import Golden
from edgekit.host.files import writing_whole
from edgekit.host.graph.evaluate import evaluate
from edgekit.host.graph.ops import Conv2D, OutlierFullyConnected
from edgekit.host.graph.types import Array, DType, Graph, Tensor

_SEED = 20240501
_INDICES = 100  # below this are random whole numbers
_RELATIVE = 1e-4  # float kernels add in another order than the reference
_RELATIVE_HYBRID = 5e-2  # an activation on the edge between two 8-bit codes may fall either way


def random_input(tensor: Tensor, rng: np.random.Generator) -> Array:
    """Values as a model may meet: all codes of a quantized input, [-1, 1] of a float one, small
    numbers of whole ones, which are mostly indices."""
    if tensor.dtype is DType.F32:
        return rng.uniform(-1, 1, tensor.shape).astype(np.float32)
    if not tensor.dtype.is_quantized:
        most = 2 if tensor.dtype is DType.BOOL else _INDICES
        return rng.integers(0, most, tensor.shape).astype(tensor.dtype.numpy)
    info = np.iinfo(tensor.dtype.numpy)
    return rng.integers(info.min, info.max + 1, tensor.shape, dtype=tensor.dtype.numpy)


def golden_of(graph: Graph, model_sha256: str, cache: Path) -> Golden:
    """One random input and the reference's outputs; kept in `cache` by model and reference."""
    rng = np.random.default_rng(_SEED)
    inputs = tuple(random_input(graph.tensors[name], rng) for name in graph.inputs)
    path = cache / f"{model_sha256[:32]}-{_reference_hash()[:16]}.npz"
    outputs = _load(path, len(graph.outputs))
    if outputs is None:
        result = evaluate(graph, dict(zip(graph.inputs, inputs, strict=True)))
        outputs = tuple(np.ascontiguousarray(result.outputs[name]) for name in graph.outputs)
        _save(path, outputs)
    relative = _RELATIVE_HYBRID if _is_hybrid(graph) else _RELATIVE
    tolerances = tuple(
        relative * max(float(np.abs(y).max(initial=0.0)), 1e-6) if y.dtype == np.float32 else 0.0
        for y in outputs
    )
    return Golden(inputs, outputs, tolerances)


def _is_hybrid(graph: Graph) -> bool:
    """Some operator quantizes its f32 input as it runs."""
    return any(
        isinstance(n.op, OutlierFullyConnected)
        or (
            isinstance(n.op, Conv2D)
            and graph.tensors[n.inputs[0] or ""].dtype is DType.F32
            and graph.tensors[n.inputs[1] or ""].dtype is DType.I8
        )
        for n in graph.nodes
    )


def _reference_hash() -> str:
    """Changes whenever the code of the reference changes."""
    import edgekit.host.graph as package

    digest = hashlib.sha256()
    for path in sorted(Path(next(iter(package.__path__))).rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(path: Path, count: int) -> tuple[Array, ...] | None:
    """None where there is no entry, or one that a crash left damaged."""
    try:
        with np.load(path) as data:
            return tuple(data[f"out{i}"] for i in range(count))
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _save(path: Path, outputs: tuple[Array, ...]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing_whole(path) as file:
        np.savez(file, allow_pickle=False, **{f"out{i}": y for i, y in enumerate(outputs)})
