"""Python environments of the engines that edgekit is compared with.

An engine that is not installed alongside edgekit gets an environment of its own. tflite-runtime
always runs there, with the NumPy 1 it was built for.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.environments import environment
from edgekit.host.errors import InputError


@dataclass(frozen=True)
class EngineWheels:
    """modules: required by its worker; wheels: packages that provide them; alone: packages
    installed without dependencies.

    pythons: names of interpreters it has wheels for; empty for edgekit's own. suffixes: model
    files it runs; empty for any.
    """

    modules: tuple[str, ...]
    wheels: tuple[str, ...]
    alone: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()


_ENGINES = {
    "litert": EngineWheels(("ai_edge_litert",), ("ai-edge-litert",), suffixes=(".tflite",)),
    "tflite-runtime": EngineWheels(
        ("tflite_runtime",),
        ("tflite-runtime", "numpy<2"),
        pythons=("python3.11", "python3.10", "python3.9"),
        suffixes=(".tflite",),
    ),
    "onnxruntime": EngineWheels(
        ("onnxruntime", "onnx"), ("onnxruntime", "onnx"), suffixes=(".onnx",)
    ),
    "openvino": EngineWheels(("openvino",), ("openvino",)),
    "mnn": EngineWheels(("MNN", "onnx"), ("MNN", "onnx"), suffixes=(".tflite", ".onnx")),
    # Only pnnx's program is used, which does not need PyTorch.
    "ncnn": EngineWheels(
        ("ncnn", "pnnx", "onnx"), ("ncnn", "onnx"), alone=("pnnx",), suffixes=(".onnx",)
    ),
}


def interpreter(
    kind: str,
    model: Path,
    tell: Callable[[str], None],
    engines: Mapping[str, EngineWheels] = _ENGINES,
) -> str:
    """The Python that runs an engine, creating its environment if needed; `tell` reports progress.

    kind: as for process.Worker; engines: those that need modules, by name. Raises InputError with
    the reason if the engine is unavailable or cannot run this type of model.
    """
    name = kind.partition(":")[0]
    engine = engines.get(name)
    if engine is None:
        return sys.executable
    if engine.suffixes and model.suffix not in engine.suffixes:
        raise InputError(f"runs {' and '.join(engine.suffixes)} models only")
    if all(importlib.util.find_spec(module) for module in engine.modules):
        return sys.executable
    installs = [[engine.wheels], *([[("--no-deps", *engine.alone)]] if engine.alone else ())]
    return environment(name, installs, tell, _base_python(engine))


def _base_python(engine: EngineWheels) -> str:
    if not engine.pythons:
        return sys.executable
    for name in engine.pythons:
        if f"python{sys.version_info.major}.{sys.version_info.minor}" == name:
            return sys.executable
        if found := shutil.which(name):
            return found
    raise InputError(f"not installed: it has wheels only for {', '.join(engine.pythons)}")
