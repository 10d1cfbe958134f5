"""What random networks are compared with: ONNX Runtime and LiteRT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgekit.host.compiler.ir.types import Array

Peer = Callable[[Mapping[str, Array]], list[Array]]


def onnx_peers(content: bytes) -> list[Peer]:
    """ONNX Runtime with and without its graph optimizations."""
    import onnxruntime as ort

    ort.set_default_logger_severity(4)

    def peer(level: str) -> Peer:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, level)
        session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        return lambda inputs: session.run(None, dict(inputs))

    try:
        optimized = peer("ORT_ENABLE_ALL")
    except ort.capi.onnxruntime_pybind11_state.Fail:  # its fusions break some s8 networks
        optimized = peer("ORT_ENABLE_BASIC")
    return [optimized, peer("ORT_DISABLE_ALL")]


def litert_peers(content: bytes) -> list[Peer]:
    """LiteRT's reference kernels, and those that it uses itself."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    peers: list[Peer] = []
    for kind in (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kind)
        interpreter.allocate_tensors()

        def run(inputs: Mapping[str, Array], held: Any = interpreter) -> list[Array]:
            for detail, value in zip(held.get_input_details(), inputs.values(), strict=True):
                held.set_tensor(detail["index"], value)
            held.invoke()
            return [held.get_tensor(d["index"]) for d in held.get_output_details()]

        peers.append(run)
    return peers
