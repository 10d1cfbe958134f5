"""Has PyTorch export a network to ONNX, and checks that edgekit computes what PyTorch does."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.features import memory_bytes
from edgekit.host.common.environments import environment
from edgekit.host.common.text import one_line
from edgekit.host.compiler.frontends.model import import_model
from edgekit.host.compiler.frontends.pytorch.source import TorchSource
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.similarity import cosine
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.options import Shapes
from edgekit.host.compiler.sidecars import copy_configs
from edgekit.host.errors import InputError

_WORKER = Path(__file__).with_name("worker.py")
_SECONDS = 1800
_SECONDS_TO_END = 5
_MEMORY_SHARE = 0.75  # of what is available; other programs need the rest
_LEAST_COSINE = 0.999
# The build for CPUs is a tenth of the other one; not every index has it.
_TORCH = (("torch==2.13.0+cpu",), ("torch>=2.6",))
_EXPORTER = (("numpy", "onnx", "onnxscript", "safetensors"),)
_TIMM = (("timm", "torchvision==0.28.0+cpu"), ("timm",))
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")


@dataclass(frozen=True)
class Exported:
    """An ONNX file, the version of PyTorch that made it, and how edgekit's outputs agree."""

    model: Path
    torch: str
    cosine: float
    largest: float


def export(
    source: TorchSource,
    shapes: Shapes,
    folder: Path,
    tell: Callable[[str], None],
    python: str | None = None,
) -> Exported:
    """Exports a network to a file in `folder`. `shapes`: of its inputs, if the source does not say.
    `python`: an interpreter that has PyTorch; by default edgekit's own, else one that is fetched.

    Loading a network runs code:
    this happens in another process, with limits of time, memory and files, but with the user's
    rights. Raises InputError with one line.
    """
    try:
        python = python or interpreter_for(source.needs, tell)
    except InputError as error:
        raise InputError(f"{source.path}: expected PyTorch to read it, found {error}") from None
    tell(f"{source.path.name}: loading a network runs its code, in a process of its own")
    answer = _run_worker(python, source, shapes, folder)
    model = folder / f"{source.name}.onnx"
    try:
        (folder / "model.onnx").replace(model)
        with np.load(folder / "values.npz", allow_pickle=False) as found:
            values = dict(found)
    except (OSError, ValueError) as error:
        raise InputError(f"{source.path}: PyTorch wrote no model: {one_line(str(error))}") from None
    if source.kind == "folder":
        copy_configs(source.path, folder)
    lowest, largest = _compare(model, values)
    if not lowest >= _LEAST_COSINE:
        raise InputError(
            f"{source.path}: expected the outputs of PyTorch {answer}, found a cosine of "
            f"{lowest:.6f}; report it with the network"
        )
    return Exported(model, answer, lowest, largest)


def interpreter_for(needs: str, tell: Callable[[str], None]) -> str:
    """A Python that has PyTorch, and the library `needs` unless it is empty."""
    modules = ("torch", "onnxscript", "onnx", *((needs,) if needs else ()))
    if all(importlib.util.find_spec(module) for module in modules):
        return sys.executable
    installs: list[Sequence[Sequence[str]]] = [_TORCH, _EXPORTER]
    if needs:
        installs.append(_TIMM if needs == "timm" else (("transformers",),))
    return environment(f"pytorch-{needs}" if needs else "pytorch", installs, tell)


def _run_worker(python: str, source: TorchSource, shapes: Shapes, folder: Path) -> str:
    """Runs the worker to its end; returns the version of PyTorch."""
    request, answer = folder / "request.json", folder / "answer.json"
    content = {
        "kind": source.kind,
        "source": str(source.path.resolve()),
        "factory": source.factory,
        "shapes": {name: list(shape) for name, shape in shapes.items()},
        "folder": str(folder.resolve()),
        "cpu_seconds": 2 * _SECONDS,
        "memory_bytes": int((memory_bytes().available or 0) * _MEMORY_SHARE) or None,
    }
    request.write_text(json.dumps(content))
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HOME": str(folder)}
    process = subprocess.Popen(
        [python, "-B", str(_WORKER), str(request), str(answer)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**kept, **offline},
        start_new_session=True,
    )
    try:
        code = process.wait(_SECONDS)
    except subprocess.TimeoutExpired:
        raise InputError(f"{source.path}: expected an export within {_SECONDS} s") from None
    finally:
        _end(process)
    return _read_answer(source, answer, code)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the worker, which first ends what the network started."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SECONDS_TO_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read_answer(source: TorchSource, answer: Path, code: int) -> str:
    try:
        found = json.loads(answer.read_bytes())
    except (OSError, ValueError):
        why = "is there enough memory?" if code < 0 else "does the network's own code end it?"
        raise InputError(
            f"{source.path}: expected PyTorch to export it, found its process ended with code "
            f"{code}; {why}"
        ) from None
    if "error" in found:
        what = one_line(str(found["error"]))[:400].rstrip(": ")
        if what == "MemoryError":
            what += f"; it may use {_MEMORY_SHARE:.0%} of the free memory, so end other programs"
        raise InputError(f"{source.path}: PyTorch: {what}")
    return str(found["torch"])


def _compare(model: Path, values: Mapping[str, Array]) -> tuple[float, float]:
    """The lowest cosine of an output, and the largest difference."""
    inputs = [values[f"in{i}"] for i in range(sum(name.startswith("in") for name in values))]
    outputs = [values[f"out{i}"] for i in range(sum(name.startswith("out") for name in values))]
    names = _input_names(model)
    shapes = {name: x.shape for name, x in zip(names, inputs, strict=True)}
    graph = import_model(model, shapes)
    given = dict(zip(names, inputs, strict=True))
    missing = [name for name in graph.inputs if name not in given]
    if missing or len(outputs) < len(graph.outputs):
        raise InputError(f"{model.name}: expected PyTorch's inputs and outputs, found others")
    found = evaluate(graph, {name: given[name] for name in graph.inputs}).outputs
    pairs = list(zip(outputs, (found[name] for name in graph.outputs), strict=False))
    if any(want.shape != have.shape for want, have in pairs):
        return -1.0, float("inf")
    return (
        min((cosine(want, have) for want, have in pairs), default=1.0),
        max((float(np.abs(want - have).max(initial=0.0)) for want, have in pairs), default=0.0),
    )


def _input_names(model: Path) -> list[str]:
    import onnx

    return [each.name for each in onnx.load(model, load_external_data=False).graph.input]
