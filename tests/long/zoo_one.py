"""Tests one model of the zoo in a separate process: the last line of stdout is a JSON verdict."""

from __future__ import annotations

import json
import re
import resource
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host import compile_model, connect
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.errors import EdgekitError, InputError, RolledBackError

_MEMORY = 10 << 30
_SEEDS = (1, 2)
_NUDGE = 4 * 2.0**-24  # relative: a few f32 roundings
_NUDGE_QUANTIZED = 1 / 512  # of the largest: half a step of a quantized model with f32 inputs
_MARGIN = 64  # an output may differ by this multiple of the peer's change under the nudge
_FLOOR = 2e-4  # of the largest magnitude: different summation order
_CODES = 1  # steps that 8-bit outputs may differ by if the model computes some layers in floats

Arrays = dict[str, Any]
Peer = Callable[[Mapping[str, Any]], list[Any]]


def main() -> int:
    model = Path(sys.argv[1]).resolve()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        verdict, detail = judged(model)
    except RolledBackError as error:
        verdict, detail = "rolled back", str(error)
    except InputError as error:
        verdict, detail = "refused", str(error)
    except EdgekitError as error:
        verdict, detail = "crashed", str(error)
    if verdict == "refused" and not peer_runs(model):
        verdict = "unfit"
    print(json.dumps({"verdict": verdict, "detail": detail[:400]}))
    return 0


def judged(model: Path) -> tuple[str, str]:
    shapes = proposed_shapes(model)
    graph = import_model(model, shapes)
    # The network alone: a wake word would otherwise bring the networks before it.
    bundle = compile_model(model, board="local", input_shapes=shapes, task="none")
    with connect("local").temporary() as device:
        deployed = device.deploy(bundle)
        try:
            peer = peer_of(model)
        except PeerError as error:
            return "no peer", str(error)
        worst = 0.0
        for seed in _SEEDS:
            rng = np.random.default_rng(seed)
            nudge = _NUDGE_QUANTIZED if is_quantized(graph) else _NUDGE
            inputs = {n: random_input(graph.tensors[n], rng) for n in graph.inputs}
            found, _ = deployed.run(inputs)
            outputs = [found[n] for n in graph.outputs]
            try:
                worst = max(worst, distance(outputs, inputs, peer, rng, nudge))
            except WrongError as error:
                # LiteRT's fast quantized kernels round differently from its reference; ours do not.
                if model.suffix == ".onnx" or not is_quantized(graph):
                    return "wrong", str(error)
                try:
                    reference = litert_peer(model, reference=True)
                    worst = max(worst, distance(outputs, inputs, reference, rng, nudge))
                except WrongError:
                    return "wrong", str(error)
            except PeerError as error:
                return "no peer", str(error)
    return "right", f"at most {worst:.2f} of what is allowed"


def proposed_shapes(model: Path) -> dict[str, tuple[int, ...]]:
    """The shapes that the error for a model with open shapes suggests."""
    try:
        import_model(model)
    except InputError as error:
        found = re.findall(r"--input-shape '?([^=\s]+)=([\d,]+)", str(error))
        return {name: tuple(int(d) for d in sizes.split(",")) for name, sizes in found}
    return {}


class WrongError(Exception):
    """An output differs from the peer's."""


class PeerError(Exception):
    """The peer cannot load or run the model, so there is nothing to compare with."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}".replace("\n", " ")[:100])


def is_quantized(graph: Graph) -> bool:
    """Whether some layers compute in 8 bits, where rounding decides between two values.

    Layers that quantize their inputs dynamically have no scale in the graph.
    """
    made = {name for node in graph.nodes for name in node.outputs}
    return any(
        t.dtype.bytes == 1 and t.dtype is not DType.BOOL and (t.quant is not None or t.name in made)
        for t in graph.tensors.values()
    )


def distance(
    outputs: list[Any], inputs: Arrays, peer: Peer, rng: np.random.Generator, nudge: float
) -> float:
    """The largest difference of an output, divided by its tolerance.

    Raises `WrongError` above 1, `PeerError` if the peer rejects the inputs.
    """
    try:
        expected = peer(inputs)
        moved = [peer(nudged(inputs, rng, nudge)) for _ in range(2)]
    except Exception as error:
        raise PeerError(error) from None
    worst = 0.0
    if len(outputs) < len(expected):
        raise WrongError(f"{len(outputs)} outputs, the peer has {len(expected)}")
    lengths = len(outputs) - len(expected)  # outputs whose size depends on the data
    for number, (y, wanted) in enumerate(zip(outputs, expected, strict=not lengths)):
        if lengths and y.ndim == wanted.ndim:
            y = y[tuple(slice(size) for size in wanted.shape)]
        if y.size != wanted.size:
            raise WrongError(f"output {number}: {list(y.shape)}, the peer's {list(wanted.shape)}")
        if not y.size:
            continue
        spread = max(apart(m[number], wanted) for m in moved)
        floor = _FLOOR * float(np.abs(np.nan_to_num(wanted.astype(np.float64))).max())
        allowed = _MARGIN * spread + (floor if wanted.dtype.kind == "f" else _CODES)
        ratio = apart(y, wanted) / max(allowed, 1e-7)
        if not ratio <= 1:
            raise WrongError(f"output {number}: {ratio:.3g} times what it may differ")
        worst = max(worst, ratio)
    return worst


def apart(a: Any, b: Any) -> float:
    wide_a, wide_b = (np.nan_to_num(t.reshape(-1).astype(np.float64)) for t in (a, b))
    return float(np.abs(wide_a - wide_b).max()) if wide_a.size == wide_b.size else 0.0


def nudged(inputs: Arrays, rng: np.random.Generator, nudge: float) -> Arrays:
    return {
        name: np.asarray(x * (1 + rng.uniform(-nudge, nudge, x.shape)), x.dtype)
        if x.dtype.kind == "f"
        else x
        for name, x in inputs.items()
    }


def peer_runs(model: Path) -> bool:
    try:
        peer_of(model)
    except PeerError:
        return False
    return True


def peer_of(model: Path) -> Peer:
    """Raises `PeerError` if the peer cannot load the model."""
    try:
        return onnx_peer(model) if model.suffix == ".onnx" else litert_peer(model)
    except Exception as error:
        raise PeerError(error) from None


def onnx_peer(model: Path) -> Peer:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(None, dict(inputs))


def litert_peer(model: Path, reference: bool = False) -> Peer:
    """A new interpreter for each run resets variables, as after a deploy."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kind = "BUILTIN_REF" if reference else "BUILTIN_WITHOUT_DEFAULT_DELEGATES"
    content = model.read_bytes()

    def load() -> Any:
        made = Interpreter(
            model_content=content,
            experimental_op_resolver_type=OpResolverType[kind],
        )
        made.allocate_tensors()
        return made

    load()

    def run(inputs: Mapping[str, Any]) -> list[Any]:
        interpreter = load()
        for detail, value in zip(interpreter.get_input_details(), inputs.values(), strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]

    return run


if __name__ == "__main__":
    raise SystemExit(main())
