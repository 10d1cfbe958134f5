"""Runs a model in another engine, between simulation marks.

    python3 peer.py ENGINE MODEL THREADS SHAPES PRECISION

Runs in a system root under qemu-user, with the engine's wheel and NumPy on PYTHONPATH. MODEL is in
the engine's own format; SHAPES is JSON with the shapes of dynamic inputs by name; PRECISION is
f32, or default for the engine's default float precision. Prints the engine's version. Inputs are
random, as in the comparison on this machine, except ncnn's.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shapes = Mapping[str, Sequence[int]]
Engine = tuple[str, Callable[[], object]]  # its version, and one inference
_BEGIN, _END, _WARM, _WARMED = 777001, 777002, 777004, 777005


def _mark(number: int) -> None:
    with contextlib.suppress(OSError):  # no such descriptor exists: the call itself is the mark
        os.close(number)


def _random(shape: Sequence[int], dtype: Any) -> Any:
    numpy: Any = importlib.import_module("numpy")
    return numpy.random.default_rng(0).random(tuple(shape)).astype(dtype)


def litert(model: str, threads: int, shapes: Shapes, f32: bool) -> Engine:
    """LiteRT with XNNPACK; f32 stays f32."""
    del f32
    module: Any = importlib.import_module("ai_edge_litert.interpreter")
    interpreter = module.Interpreter(model_path=model, num_threads=threads)
    for detail in interpreter.get_input_details():
        if detail["name"] in shapes:
            interpreter.resize_tensor_input(detail["index"], list(shapes[detail["name"]]))
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], _random(detail["shape"], detail["dtype"]))
    package: Any = importlib.import_module("ai_edge_litert")
    return str(getattr(package, "__version__", "")), interpreter.invoke


def onnxruntime(model: str, threads: int, shapes: Shapes, f32: bool) -> Engine:
    """ONNX Runtime's CPU provider; f32 stays f32."""
    del f32
    ort: Any = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model, options, ["CPUExecutionProvider"])
    types = {"float": "float32", "double": "float64"}
    feed = {}
    for item in session.get_inputs():
        kind = item.type.partition("(")[2][:-1]
        feed[item.name] = _random(shapes.get(item.name, item.shape), types.get(kind, kind))
    return str(ort.__version__), lambda: session.run(None, feed)


def mnn(model: str, threads: int, shapes: Shapes, f32: bool) -> Engine:
    """MNN; its default precision is "normal"."""
    module: Any = importlib.import_module("MNN")
    interpreter = module.Interpreter(model)
    options = {"numThread": threads, "precision": "high" if f32 else "normal", "backend": "CPU"}
    session = interpreter.createSession(options)
    tensors = interpreter.getSessionInputAll(session)
    for name, shape in shapes.items():
        interpreter.resizeTensor(tensors[name], tuple(shape))
    if shapes:
        interpreter.resizeSession(session)
    for tensor in tensors.values():
        array = _random(tensor.getShape(), "float32")
        given = module.Tensor(array.shape, tensor.getDataType(), array, tensor.getDimensionType())
        tensor.copyFrom(given)
    return str(module.version()), lambda: interpreter.runSession(session)


def ncnn(model: str, threads: int, shapes: Shapes, f32: bool) -> Engine:
    """ncnn; half precision by default if the core has it; `shapes` has all inputs, in order."""
    # Its RISC-V wheel references missing functions, which are never called.
    sys.setdlopenflags(os.RTLD_LAZY)
    module: Any = importlib.import_module("ncnn")
    net = module.Net()
    net.opt.num_threads = threads
    net.opt.use_vulkan_compute = False
    options = ("fp16_packed", "fp16_storage", "fp16_arithmetic", "bf16_storage")
    for option in options if f32 else ():
        setattr(net.opt, f"use_{option}", False)
    net.load_param(model)
    net.load_model(f"{model.removesuffix('.param')}.bin")
    given = [module.Mat(*reversed(shape[1:])) for shape in shapes.values()]
    for mat in given:
        mat.fill(0.5)  # there is no NumPy wheel for RISC-V
    names, outputs = list(net.input_names()), list(net.output_names())

    def infer() -> object:
        with net.create_extractor() as extractor:
            for name, mat in zip(names, given, strict=True):
                extractor.input(name, mat)
            return [extractor.extract(name)[1] for name in outputs]

    return str(module.__version__), infer


def main(engine: str, model: str, threads: int, shapes: Shapes, precision: str) -> None:
    engines = {"litert": litert, "onnxruntime": onnxruntime, "mnn": mnn, "ncnn": ncnn}
    version, run = engines[engine](model, threads, shapes, precision == "f32")
    run()
    for begin, end in ((_WARM, _WARMED), (_BEGIN, _END)):
        _mark(begin)
        run()
        _mark(end)
    print(f"version {version}", flush=True)
    os._exit(0)  # some engines fail to shut down under the emulator


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), json.loads(sys.argv[4]), sys.argv[5])
