"""Runs one contender of a comparison in its own process, driven by JSON lines over pipes.

Run by path with the Python that has the contender's package, possibly an older one without
edgekit (tflite-runtime needs NumPy 1). So this file imports only the standard library, NumPy and
contender.py, and the contender's own package when constructing it.

    worker.py KIND MODEL THREADS CPUS SHAPES
        KIND: edgekit, litert:SET, tflite-runtime:SET, onnxruntime, openvino, mnn or ncnn
        SHAPES: JSON, of an ONNX model's dynamic inputs: {"image": [1, 3, 224, 224]}

    {"do": "time", "count": n}                              -> {"ns": [...]}
    {"do": "run", "inputs": x, "outputs": y, "steps": s}    -> {"ok": true}

Files x and y are .npz with in0, in1, ... and out0, out1, ...: the first axis counts calls; state
is reset before every s-th call.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Last in the path, so that an environment without edgekit uses its own packages first.
sys.path += filter(None, os.environ.get("EDGEKIT_SOURCES", "").split(os.pathsep))

from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.host.lab.bench.contender import (
    Array,
    ModelContender,
    Shapes,
    UnfitError,
    time_calls,
)

KERNEL_SETS = {
    "reference": "BUILTIN_REF",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "xnnpack": "AUTO",
}
_PACKAGES = {"litert": "ai_edge_litert", "tflite-runtime": "tflite_runtime"}


class EdgekitContender:
    """Our compiled model in the same runtime as on a board."""

    def __init__(self, folder: Path, threads: int) -> None:
        from edgekit.device.runtime.agent.model import LoadedModel
        from edgekit.device.runtime.dtypes import BY_NAME
        from edgekit.device.version import VERSION

        self.version = VERSION
        self._model = LoadedModel(ReleaseFiles(folder), threads=threads)
        description = self._model.description
        self._names = [spec.name for spec in description.inputs]
        self._outputs = [
            (spec.name, np.dtype(BY_NAME[spec.dtype].npy)) for spec in description.outputs
        ]
        self.inputs = [
            (tuple(spec.shape), np.dtype(BY_NAME[spec.dtype].npy).name)
            for spec in description.inputs
        ]
        self.stateful = description.memory.state_bytes > 0

    def reset(self) -> None:
        self._model.reset()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        arrays, _ = self._model.run(dict(zip(self._names, inputs, strict=True)))
        return [
            np.frombuffer(arrays[name].data, dtype).reshape(arrays[name].shape)
            for name, dtype in self._outputs
        ]

    def time(self, count: int) -> list[int]:
        return time_calls(self._model.prepared_call(), count)


class TfliteContender:
    """LiteRT or tflite-runtime with one of their kernel sets."""

    def __init__(
        self, package: str, kernels: str, model: Path, threads: int, shapes: Shapes
    ) -> None:
        self._shapes = shapes
        self._module: Any = importlib.import_module(f"{package}.interpreter")
        self._options = {
            "model_path": str(model),
            "num_threads": threads,
            "experimental_op_resolver_type": self._module.OpResolverType[KERNEL_SETS[kernels]],
        }
        self.version = str(getattr(importlib.import_module(package), "__version__", "unknown"))
        self.reset()
        details = self._interpreter.get_input_details()
        self.inputs = [
            (tuple(int(n) for n in d["shape"]), np.dtype(d["dtype"]).name) for d in details
        ]
        operators = self._interpreter._get_ops_details()
        self.stateful = any(o["op_name"] == "VAR_HANDLE" for o in operators)

    def reset(self) -> None:
        """Creates a new interpreter: resource variables cannot be reset otherwise."""
        self._interpreter = self._module.Interpreter(**self._options)
        for detail in self._interpreter.get_input_details():
            if detail["name"] in self._shapes:
                shape = list(self._shapes[detail["name"]])
                self._interpreter.resize_tensor_input(detail["index"], shape)
        self._interpreter.allocate_tensors()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        for detail, array in zip(self._interpreter.get_input_details(), inputs, strict=True):
            self._interpreter.set_tensor(detail["index"], array)
        self._interpreter.invoke()
        details = self._interpreter.get_output_details()
        return [np.array(self._interpreter.get_tensor(d["index"])) for d in details]

    def time(self, count: int) -> list[int]:
        return time_calls(self._interpreter.invoke, count)


def open_contender(kind: str, model: Path, threads: int, shapes: Shapes) -> ModelContender:
    engine, _, kernels = kind.partition(":")
    if engine == "edgekit":
        return EdgekitContender(model, threads)
    if engine not in _PACKAGES:
        from edgekit.host.lab.bench.engines import ENGINES

        return ENGINES[engine](model, threads, shapes)
    return TfliteContender(_PACKAGES[engine], kernels, model, threads, shapes)


def run_file(contender: ModelContender, inputs: Path, outputs: Path, steps: int) -> None:
    """Runs each row of `inputs` and stacks the outputs into `outputs`."""
    with np.load(inputs, allow_pickle=False) as stored:
        arrays = [stored[f"in{i}"] for i in range(len(stored.files))]
    rows = []
    for call in range(len(arrays[0])):
        if contender.stateful and call % steps == 0:
            contender.reset()
        rows.append(contender.run([array[call] for array in arrays]))
    stacked = {f"out{i}": np.stack(column) for i, column in enumerate(zip(*rows, strict=True))}
    np.savez(outputs, allow_pickle=False, **stacked)


def answer(contender: ModelContender, question: dict[str, Any]) -> dict[str, Any]:
    if question["do"] == "time":
        return {"ns": contender.time(question["count"])}
    paths = Path(question["inputs"]), Path(question["outputs"])
    run_file(contender, *paths, question["steps"])
    return {"ok": True}


def main(kind: str, model: str, threads: str, cpus: str, shapes: str) -> None:
    # Engines print to stdout freely, so replies use a private copy of the descriptor.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    try:
        if cpus:
            os.sched_setaffinity(0, {int(c) for c in cpus.split(",")})
        contender = open_contender(kind, Path(model), int(threads), json.loads(shapes))
        rng = np.random.default_rng(0)
        contender.run([rng.random(s).astype(t) for s, t in contender.inputs])
        inputs = [{"shape": s, "dtype": t} for s, t in contender.inputs]
        reply({"version": contender.version, "stateful": contender.stateful, "inputs": inputs})
        for line in sys.stdin:
            reply(answer(contender, json.loads(line)))
    except ModuleNotFoundError as error:
        reply({"error": f"not installed ({error})"})
    except UnfitError as error:
        reply({"error": str(error)})
    # The parent turns every failure into its own error, whatever the engine raised.
    except Exception as error:
        reply({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})


if __name__ == "__main__":
    main(*sys.argv[1:])
