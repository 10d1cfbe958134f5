"""Contenders for engines that run more than TensorFlow Lite files.

They run in worker.py's process. All compute a model's f32 operators in f32.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.lab.bench.contender import Array, ModelContender, Shapes, UnfitError, time_calls

_CONVERSION_S = 300
# Not the mnnconvert program: on first use it installs packages, and it sends telemetry.
_MNN_CONVERT = "import sys, _tools; _tools.mnnconvert(['mnnconvert', *sys.argv[1:]])"
_MNN_KINDS = {".onnx": "ONNX", ".tflite": "TFLITE"}


def mnn_conversion(python: str, model: Path, made: Path) -> list[str]:
    """The command that converts a .tflite or .onnx model to MNN; mostly-zero weights become sparse
    layers where its converter finds that faster."""
    files = ["--modelFile", str(model.resolve()), "--MNNModel", str(made)]
    kind = ["-f", _MNN_KINDS[model.suffix], "--bizCode", "edgekit", "--detectSparseSpeedUp"]
    return [python, "-c", _MNN_CONVERT, *kind, *files]


class OnnxRuntimeContender:
    """ONNX Runtime's CPU provider, in its default f32."""

    stateful = False

    def __init__(self, model: Path, threads: int, shapes: Shapes) -> None:
        ort: Any = importlib.import_module("onnxruntime")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self._session = ort.InferenceSession(str(model), options, ["CPUExecutionProvider"])
        self.version = str(ort.__version__)
        inputs = self._session.get_inputs()
        self._names = [i.name for i in inputs]
        self.inputs = [
            (tuple(shapes.get(i.name, i.shape)), _onnx_dtype(i.type.partition("(")[2][:-1]))
            for i in inputs
        ]

    def reset(self) -> None:
        """No-op: ONNX models have no state."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        self._feed = dict(zip(self._names, inputs, strict=True))
        return list(self._session.run(None, self._feed))

    def time(self, count: int) -> list[int]:
        return time_calls(lambda: self._session.run(None, self._feed), count)


class OpenvinoContender:
    """OpenVINO's CPU plugin, forced to f32: by default it uses bfloat16 where the CPU has it,
    which no other contender does and which is too inaccurate for f32 models."""

    stateful = False

    def __init__(self, model: Path, threads: int, shapes: Shapes) -> None:
        ov: Any = importlib.import_module("openvino")
        core = ov.Core()
        network = core.read_model(str(model))
        if shapes:
            network.reshape({name: list(shape) for name, shape in shapes.items()})
        elif any(port.partial_shape.is_dynamic for port in network.inputs):
            # TensorFlow Lite files have a concrete shape even if the converter left the batch open.
            network.reshape({port: _static_shape(port.partial_shape) for port in network.inputs})
        options = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        }
        compiled = core.compile_model(network, "CPU", options)
        self.version = str(ov.__version__).partition("-")[0]
        self._tensor = ov.Tensor
        self._request = compiled.create_infer_request()
        self._outputs = len(compiled.outputs)
        self.inputs = [
            (tuple(port.shape), np.dtype(port.element_type.to_dtype()).name)
            for port in compiled.inputs
        ]

    def reset(self) -> None:
        """No-op: stateful models are not compared on OpenVINO."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        for index, array in enumerate(inputs):
            self._request.set_input_tensor(index, self._tensor(np.ascontiguousarray(array)))
        self._request.infer()
        return [np.array(self._request.get_output_tensor(i).data) for i in range(self._outputs)]

    def time(self, count: int) -> list[int]:
        return time_calls(self._request.infer, count)


class MnnContender:
    """MNN, on a model from its own converter; f32 stays f32."""

    stateful = False

    def __init__(self, model: Path, threads: int, shapes: Shapes) -> None:
        mnn: Any = importlib.import_module("MNN")
        self.version = str(mnn.version())
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "model.mnn"
            run_converter("MNN's converter", mnn_conversion(sys.executable, model, made), made)
            self._interpreter = mnn.Interpreter(str(made))
        options = {"numThread": threads, "precision": "high", "backend": "CPU"}
        self._session = self._interpreter.createSession(options)
        self._tensors = self._interpreter.getSessionInputAll(self._session)
        for name, shape in shapes.items():
            self._interpreter.resizeTensor(self._tensors[name], tuple(shape))
        if shapes:
            self._interpreter.resizeSession(self._session)
        self._module = mnn
        if any(t.getDataType() is None for t in self._tensors.values()):
            raise UnfitError("its Python package cannot feed 8-bit models")
        self.inputs = [
            (tuple(t.getShape()), np.asarray(t.getNumpyData()).dtype.name)
            for t in self._tensors.values()
        ]

    def reset(self) -> None:
        """No-op: stateful models are not compared on MNN."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        for tensor, array in zip(self._tensors.values(), inputs, strict=True):
            kind = tensor.getDataType()
            given = self._module.Tensor(array.shape, kind, array, tensor.getDimensionType())
            tensor.copyFrom(given)
        self._interpreter.runSession(self._session)
        outputs = self._interpreter.getSessionOutputAll(self._session)
        return [np.array(t.getNumpyData()) for t in outputs.values()]

    def time(self, count: int) -> list[int]:
        return time_calls(lambda: self._interpreter.runSession(self._session), count)


class NcnnContender:
    """ncnn, on a model that pnnx converted from ONNX; f32 stays f32."""

    stateful = False

    def __init__(self, model: Path, threads: int, shapes: Shapes) -> None:
        ncnn: Any = importlib.import_module("ncnn")
        self.version = str(ncnn.__version__)
        self._net, self._mat = ncnn.Net(), ncnn.Mat
        self._net.opt.num_threads = threads
        self._net.opt.use_vulkan_compute = False
        for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
            setattr(self._net.opt, f"use_{option}", False)
        self.inputs = onnx_inputs(model, shapes)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "model.onnx"
            copy.write_bytes(model.read_bytes())
            sizes = ",".join(str(list(shape)).replace(" ", "") for shape, _ in self.inputs)
            weights = copy.with_name("model.ncnn.bin")
            run_converter("pnnx", [_find_pnnx(), copy, f"inputshape={sizes}", "fp16=0"], weights)
            self._net.load_param(str(weights.with_suffix(".param")))
            self._net.load_model(str(weights))
        self._outputs = list(self._net.output_names())

    def reset(self) -> None:
        """No-op: ncnn models have no state."""

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        # ncnn has no batch dimension.
        self._given = [np.ascontiguousarray(array[0]) for array in inputs]
        return [np.array(mat)[np.newaxis] for mat in self._infer()]

    def _infer(self) -> list[Any]:
        with self._net.create_extractor() as extractor:
            for name, array in zip(self._net.input_names(), self._given, strict=True):
                extractor.input(name, self._mat(array))
            return [extractor.extract(name)[1] for name in self._outputs]

    def time(self, count: int) -> list[int]:
        return time_calls(self._infer, count)


def _find_pnnx() -> Path:
    """The program inside pnnx's wheel; importing the package would require PyTorch."""
    found = importlib.util.find_spec("pnnx")
    for folder in (found and found.submodule_search_locations) or ():
        if (program := Path(folder) / "pnnx").is_file():
            return program
    raise ModuleNotFoundError("No module named 'pnnx'")


def run_converter(name: str, command: Sequence[object], made: Path) -> None:
    """Runs an engine's converter and checks that it wrote `made`: some fail with exit code 0.

    Raises UnfitError if it did not, or takes too long.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=made.parent,
            timeout=_CONVERSION_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnfitError(f"{name} was still running after {_CONVERSION_S} s") from None
    if not made.is_file():
        raise UnfitError(f"{name} wrote no model (exit code {done.returncode})")


def _static_shape(shape: Any) -> list[int]:
    return [size.get_length() if size.is_static else 1 for size in shape]


def _onnx_dtype(name: str) -> str:
    return {"float": "float32", "double": "float64"}.get(name, name)


def onnx_inputs(model: Path, shapes: Shapes) -> list[tuple[tuple[int, ...], str]]:
    """Shapes and NumPy dtype names of a model's inputs."""
    onnx: Any = importlib.import_module("onnx")
    graph = onnx.load(str(model), load_external_data=False).graph
    constants = {i.name for i in graph.initializer}
    found = []
    for item in graph.input:
        if item.name not in constants:
            kind = item.type.tensor_type
            sizes = shapes.get(item.name) or [d.dim_value for d in kind.shape.dim]
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)).name
            found.append((tuple(sizes), dtype))
    return found


ENGINES: dict[str, Callable[[Path, int, Shapes], ModelContender]] = {
    "onnxruntime": OnnxRuntimeContender,
    "openvino": OpenvinoContender,
    "mnn": MnnContender,
    "ncnn": NcnnContender,
}
