"""Runs a model in another engine, between simulation marks.

    python3 peer.py ENGINE MODEL THREADS FOLDER PRECISION

Runs in a system root under qemu-user, with the engine's wheel and NumPy on PYTHONPATH. MODEL is in
the engine's own format. FOLDER has inputs.json, a list of {name, shape, dtype}, and the inputs' raw
values in in0, in1, ...; the outputs of the first inference are written likewise: outputs.json, a
list of {shape, dtype}, and out0, out1, ... PRECISION is f32, or f16 for the engine's own half
precision; ONNX Runtime's is in the model. Prints the engine's version.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BEGIN, _END, _WARM, _WARMED = 777001, 777002, 777004, 777005
_FORMATS = {"float32": "f", "int32": "i", "int64": "q", "int8": "b", "uint8": "B", "bool": "?"}


@dataclass(frozen=True)
class GuestTensor:
    """An input or output: `shape`, NumPy name of its type, and raw values."""

    name: str
    shape: Sequence[int]
    dtype: str
    content: bytes

    @property
    def array(self) -> Any:
        numpy: Any = importlib.import_module("numpy")
        return numpy.frombuffer(self.content, self.dtype).reshape(tuple(self.shape))


@dataclass(frozen=True)
class Engine:
    """An engine's version, a function that infers, and one that gets the outputs of its result."""

    version: str
    run: Callable[[], Any]
    outputs: Callable[[Any], Sequence[GuestTensor]]


def _values(arrays: Sequence[Any]) -> list[GuestTensor]:
    return [GuestTensor("", each.shape, each.dtype.name, each.tobytes()) for each in arrays]


def _named(values: Sequence[GuestTensor], name: str, place: int) -> GuestTensor:
    """The value of an engine's input: by name, or by place if the engine has names of its own."""
    return next((each for each in values if each.name == name), values[place])


def _mark(number: int) -> None:
    with contextlib.suppress(OSError):  # no such descriptor exists: the call itself is the mark
        os.close(number)


def litert(model: str, threads: int, inputs: Sequence[GuestTensor], half: bool) -> Engine:
    """LiteRT with XNNPACK; its wheel has no switch for half precision."""
    del half
    module: Any = importlib.import_module("ai_edge_litert.interpreter")
    interpreter = module.Interpreter(model_path=model, num_threads=threads)
    details = interpreter.get_input_details()
    given = [_named(inputs, detail["name"], place) for place, detail in enumerate(details)]
    for detail, value in zip(details, given, strict=True):
        if list(detail["shape"]) != list(value.shape):
            interpreter.resize_tensor_input(detail["index"], list(value.shape))
    interpreter.allocate_tensors()
    for detail, value in zip(details, given, strict=True):
        interpreter.set_tensor(detail["index"], value.array)

    def outputs(_: Any) -> list[GuestTensor]:
        places = [detail["index"] for detail in interpreter.get_output_details()]
        return _values([interpreter.get_tensor(place) for place in places])

    package: Any = importlib.import_module("ai_edge_litert")
    return Engine(str(getattr(package, "__version__", "")), interpreter.invoke, outputs)


def onnxruntime(model: str, threads: int, inputs: Sequence[GuestTensor], half: bool) -> Engine:
    """ONNX Runtime's CPU provider."""
    del half
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    feed = {name: _named(inputs, name, place).array for place, name in enumerate(names)}
    return Engine(str(ort.__version__), lambda: session.run(None, feed), _values)


def mnn(model: str, threads: int, inputs: Sequence[GuestTensor], half: bool) -> Engine:
    """MNN, in precision "low", its half precision, or "high"."""
    module: Any = importlib.import_module("MNN")
    numpy: Any = importlib.import_module("numpy")
    interpreter = module.Interpreter(model)
    options = {"numThread": threads, "precision": "low" if half else "high", "backend": "CPU"}
    session = interpreter.createSession(options)
    tensors = interpreter.getSessionInputAll(session)
    given = {name: _named(inputs, name, place) for place, name in enumerate(tensors)}
    for name, tensor in tensors.items():
        if list(tensor.getShape()) != list(given[name].shape):
            interpreter.resizeTensor(tensor, tuple(given[name].shape))
    interpreter.resizeSession(session)
    for name, tensor in tensors.items():
        kind = tensor.getDataType()
        if kind is None:
            sys.exit("its Python package cannot feed 8-bit models")
        number = "float32" if kind == module.Halide_Type_Float else "int32"
        values = given[name].array.astype(number)
        tensor.copyFrom(module.Tensor(values.shape, kind, values, tensor.getDimensionType()))

    def infer() -> None:
        if code := interpreter.runSession(session):
            sys.exit(f"its session ended with error {code}")

    def outputs(_: Any) -> list[GuestTensor]:
        found = []
        for tensor in interpreter.getSessionOutputAll(session).values():
            kind, layout = tensor.getDataType(), tensor.getDimensionType()
            packed = layout == module.Tensor_DimensionType_Caffe_C4
            layout = module.Tensor_DimensionType_Caffe if packed else layout
            number = "float32" if kind == module.Halide_Type_Float else "int32"
            blank = numpy.zeros(tuple(tensor.getShape()), number)
            copy = module.Tensor(blank.shape, kind, blank, layout)
            tensor.copyToHostTensor(copy)
            found.append(numpy.array(copy.getNumpyData()))
        return _values(found)

    return Engine(str(module.version()), infer, outputs)


def ncnn(model: str, threads: int, inputs: Sequence[GuestTensor], half: bool) -> Engine:
    """ncnn, which computes in half precision by default; `inputs` in the model's order."""
    # Its RISC-V wheel references missing functions, which are never called.
    sys.setdlopenflags(os.RTLD_LAZY)
    module: Any = importlib.import_module("ncnn")
    net = module.Net()
    net.opt.num_threads = threads
    net.opt.use_vulkan_compute = False
    for option in ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage"):
        if not half:
            setattr(net.opt, f"use_{option}", False)
    if net.load_param(model) or net.load_model(f"{model.removesuffix('.param')}.bin"):
        sys.exit("ncnn cannot load the converted model")
    given = [_mat(module, value) for value in inputs]
    names, results = list(net.input_names()), list(net.output_names())

    def infer() -> list[Any]:
        with net.create_extractor() as extractor:
            for name, mat in zip(names, given, strict=True):
                extractor.input(name, mat)
            found = [extractor.extract(name) for name in results]
        if any(code for code, _ in found):
            sys.exit("ncnn cannot compute an output")
        return [mat for _, mat in found]

    def outputs(mats: Any) -> list[GuestTensor]:
        views = [memoryview(mat) for mat in mats]
        names = {letter: name for name, letter in _FORMATS.items()}
        return [
            GuestTensor("", v.shape or (), names[v.format.strip("<=@")], v.tobytes()) for v in views
        ]

    return Engine(str(module.__version__), infer, outputs)


def _mat(module: Any, value: GuestTensor) -> Any:
    """An input of ncnn, without a batch of 1; without NumPy, which has no wheel for RISC-V."""
    elements: Any = array.array(_FORMATS[value.dtype], value.content)
    if elements.typecode == "q":
        elements = array.array("i", elements)
    shape = tuple(value.shape)
    if len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    view = memoryview(elements).cast("B").cast(elements.typecode, shape)
    return module.Mat(view).clone()


def _read_inputs(folder: Path) -> list[GuestTensor]:
    described = json.loads((folder / "inputs.json").read_text())
    return [
        GuestTensor(**each, content=(folder / f"in{i}").read_bytes())
        for i, each in enumerate(described)
    ]


def _write_outputs(folder: Path, values: Sequence[GuestTensor]) -> None:
    described = [{"shape": list(value.shape), "dtype": value.dtype} for value in values]
    for place, value in enumerate(values):
        (folder / f"out{place}").write_bytes(value.content)
    (folder / "outputs.json").write_text(json.dumps(described))


def main(name: str, model: str, threads: int, folder: Path, precision: str) -> None:
    engines = {"litert": litert, "onnxruntime": onnxruntime, "mnn": mnn, "ncnn": ncnn}
    engine = engines[name](model, threads, _read_inputs(folder), precision == "f16")
    _write_outputs(folder, engine.outputs(engine.run()))
    for begin, end in ((_WARM, _WARMED), (_BEGIN, _END)):
        _mark(begin)
        engine.run()
        _mark(end)
    print(f"version {engine.version}", flush=True)
    os._exit(0)  # some engines fail to shut down under the emulator


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), sys.argv[5])
