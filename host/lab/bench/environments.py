"""Python environments of the engines that edgekit is compared with.

An engine that is not installed alongside edgekit is installed as wheels into a virtual environment
in the cache folder (`edgekit cache --clean` removes it), leaving the user's own untouched.
tflite-runtime always runs there, with the NumPy 1 it was built for.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.files import locked
from edgekit.host.common.paths import cache_folder
from edgekit.host.errors import InputError

_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
_PATIENCE = ("--retries", "1", "--timeout", "15", "--only-binary", ":all:")
_INSTALL_S = 1800.0
_OFF = "EDGEKIT_NO_FETCH"


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
    folder = cache_folder() / "engines" / name
    python = folder / "bin" / "python"
    with locked(folder.with_suffix(".lock")):
        if not (folder / "ready").is_file() or not python.exists():
            if _OFF in os.environ:
                raise InputError(f"not installed, and {_OFF} is set")
            tell(f"fetching {name}, once")
            _create_environment(folder, python, engine)
    return str(python)


def _create_environment(folder: Path, python: Path, engine: EngineWheels) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _run_command([_base_python(engine), "-m", "venv", str(folder)], "a virtual environment")
    _run_command([str(python), *_PIP, *_PATIENCE, *engine.wheels], " and ".join(engine.wheels))
    if engine.alone:
        _run_command([str(python), *_PIP, *_PATIENCE, "--no-deps", *engine.alone], engine.alone[0])
    (folder / "ready").touch()


def _base_python(engine: EngineWheels) -> str:
    if not engine.pythons:
        return sys.executable
    for name in engine.pythons:
        if f"python{sys.version_info.major}.{sys.version_info.minor}" == name:
            return sys.executable
        if found := shutil.which(name):
            return found
    raise InputError(f"not installed: it has wheels only for {', '.join(engine.pythons)}")


def _run_command(command: Sequence[str], what: str) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=_INSTALL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"not installed, and {what} could not be installed: {error}") from None
    if done.returncode:
        errors = [x for x in done.stderr.decode(errors="replace").splitlines() if "ERROR" in x]
        why = errors[-1].replace("ERROR:", "").strip() if errors else f"exit {done.returncode}"
        raise InputError(f"not installed, and {what} could not be installed: {why[:200]}")
