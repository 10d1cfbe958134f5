"""Exports a PyTorch network to ONNX. Runs under a Python that has PyTorch, as a program:

    python worker.py REQUEST.json ANSWER.json

The request names the source and where to write model.onnx and values.npz, with the inputs that were
computed, in0, in1, …, and PyTorch's outputs, out0, out1, …. The answer is {"error": TEXT}, or the
version of PyTorch. What the network prints goes to stderr. A second process does the work; the
first one waits for it, or for SIGTERM, and ends what the network left running.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import inspect
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_OPSET = 18
_LARGEST_FILE = 8 << 30
_WORDS = ("ids", "mask", "positions")  # ends of names of integer inputs
_TEXT_LENGTH = 128
_COLORS = re.compile("\x1b\\[[0-9;]*m")
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ON_TORCHVISION = ("timm", "torchvision", "transformers")


def _limit(cpu_seconds: int, memory: int | None) -> None:
    """Limits what this process may use; `memory`: bytes that it may write to, None for any."""
    for what, value in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_DATA, memory or resource.RLIM_INFINITY),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (value, value))


def _load(request: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The program or module, and its example inputs by place and by name."""
    import torch

    source, shapes = request["source"], request["shapes"]
    if request["kind"] == "program":
        program = torch.export.load(source)
        if program.example_inputs is None:
            raise ValueError("expected a program with example inputs, found none; export it again")
        return program, *program.example_inputs
    if request["kind"] == "script":
        script = torch.jit.load(source, map_location="cpu").eval()
        return script, (), _inputs_of(script, shapes)
    if request["kind"] == "folder":
        module, inputs = despite_torchvision(lambda: _from_folder(Path(source), shapes))
        return module.eval(), (), inputs
    made = despite_torchvision(lambda: _from_module(Path(source), request["factory"]))
    given: Any = None
    if isinstance(made, tuple):
        made, given = made
    if not isinstance(made, torch.nn.Module):
        raise TypeError(f"expected a torch.nn.Module, or one and its inputs, found {type(made)}")
    module = made.eval()
    if given is None:
        return module, (), _inputs_of(module, shapes)
    if shapes:
        raise ValueError(
            f"--input-shape: expected none, since {request['factory']} returns the inputs, found "
            f"{', '.join(shapes)}; return the network alone"
        )
    return module, (tuple(given) if isinstance(given, (tuple, list)) else (given,)), {}


def despite_torchvision(load: Callable[[], Any]) -> Any:
    """Calls `load`, again if torchvision was built for another PyTorch: its operators, which few
    networks call, are then declared without a kernel so that the import succeeds."""
    import torch

    try:
        return load()
    except (RuntimeError, ImportError) as error:
        if not any("operator torchvision::" in str(each) for each in _causes(error)):
            raise
    for name in ("nms", "qnms"):
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{name}", schema)
    for name in [name for name in sys.modules if name.partition(".")[0] in _ON_TORCHVISION]:
        del sys.modules[name]
    return load()


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from; transformers raises one of its own."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _from_module(file: Path, factory: str) -> Any:
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    found = getattr(module, factory, None)
    if not callable(found):
        raise ValueError(f"expected a function or class {factory} in {file.name}, found none")
    return found()


def _from_folder(folder: Path, shapes: dict[str, list[int]]) -> tuple[Any, dict[str, Any]]:
    """A network of transformers or timm with its weights, as Hugging Face's folders have them."""
    import torch

    config = json.loads((folder / "config.json").read_text())
    if "architecture" in config:
        import timm
        from safetensors.torch import load_file

        network = timm.create_model(
            config["architecture"], pretrained=False, num_classes=config.get("num_classes", 1000)
        )
        network.load_state_dict(load_file(folder / "model.safetensors"))
        size = config.get("pretrained_cfg", {}).get("input_size", [3, 224, 224])
        return network, _inputs_of(network, shapes or {"x": [1, *size]})
    import transformers

    names = config.get("architectures") or ["none"]
    kind = getattr(transformers, str(names[0]), None)
    if kind is None:
        raise ValueError(f"expected an architecture of transformers, found {names[0]}")
    network = kind.from_pretrained(
        folder, local_files_only=True, use_safetensors=True, trust_remote_code=False
    )
    network.config.return_dict = True
    for name in ("use_cache", "output_attentions", "output_hidden_states"):
        setattr(network.config, name, False)
    if shapes:
        return network, _inputs_of(network, shapes)
    size = getattr(network.config, "image_size", None)
    if size is not None and network.main_input_name == "pixel_values":
        sides = list(size) if isinstance(size, (list, tuple)) else [size, size]
        channels = getattr(network.config, "num_channels", 3)
        return network, _inputs_of(network, {"pixel_values": [1, channels, *sides]})
    if network.main_input_name == "input_ids":
        most = getattr(network.config, "vocab_size", 100)
        ids = torch.randint(0, most, (1, _TEXT_LENGTH))
        return network, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    raise ValueError(f"expected --input-shape {network.main_input_name}=1,…, found none")


def _inputs_of(module: Any, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """Random inputs of these shapes, by the names of the module's parameters."""
    import torch

    needed = _parameters(module)
    known = list(needed)
    if not shapes:
        raise ValueError(f"expected --input-shape {known[0] if known else 'x'}=1,…, found none")
    wrong = next((name for name in shapes if name not in known), None)
    if wrong is not None and len(shapes) == 1 and known:
        shapes = {known[0]: shapes[wrong]}
    elif wrong is not None:
        raise ValueError(f"--input-shape: expected one of {', '.join(known)}, found {wrong}")
    lacking = next((name for name in known if needed[name] and name not in shapes), None)
    if lacking is not None:
        raise ValueError(f"expected --input-shape {lacking}=…, too, found none")
    return {
        name: torch.randint(0, 2, shape) if name.endswith(_WORDS) else torch.randn(shape)
        for name, shape in shapes.items()
    }


def _parameters(module: Any) -> dict[str, bool]:
    """The parameters of a module by name, and whether a call needs them."""
    if hasattr(module.forward, "schema"):  # TorchScript
        return {a.name: not a.has_default_value() for a in module.forward.schema.arguments[1:]}
    return {
        p.name: p.default is p.empty
        for p in inspect.signature(module.forward).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def _tensors(value: Any) -> list[Any]:
    """All tensors in an output, in the order in which the exporter names them."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):  # also the outputs of transformers
        value = list(value.values())
    return [t for each in value for t in _tensors(each)] if isinstance(value, (list, tuple)) else []


def _export(request: dict[str, Any]) -> str:
    import numpy as np
    import torch

    torch.manual_seed(0)
    network, places, names = _load(request)
    folder = Path(request["folder"])
    is_program = request["kind"] == "program"
    with torch.no_grad():
        run = network.module() if is_program else network
        outputs = _tensors(run(*places, **names))
        given = {} if is_program else {"args": places, "kwargs": names}
        is_script = isinstance(network, torch.jit.ScriptModule)  # the new exporter takes none
        torch.onnx.export(
            network, **given, f=str(folder / "model.onnx"), dynamo=not is_script,
            opset_version=_OPSET, external_data=False, verbose=False,
        )  # fmt: skip
    inputs = _tensors([*places, *names.values()])
    arrays = {f"in{i}": t.detach().cpu().numpy() for i, t in enumerate(inputs)}
    arrays |= {f"out{i}": t.detach().cpu().float().numpy() for i, t in enumerate(outputs)}
    np.savez(folder / "values.npz", **arrays)
    return str(torch.__version__)


def main(request_file: str, answer_file: str) -> None:
    """Answers one request, and ends as the process that did so."""
    request = json.loads(Path(request_file).read_text())
    _limit(request["cpu_seconds"], request["memory_bytes"])
    _set_for_process(_PR_SET_CHILD_SUBREAPER, 1)  # orphans become children of this process
    _set_for_process(_PR_SET_PDEATHSIG, signal.SIGTERM)  # edgekit may be killed
    child = os.fork()
    if child == 0:
        _set_for_process(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _answer(request, answer_file)
        os._exit(0)
    signal.signal(signal.SIGTERM, lambda *_: _kill(child))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    _end_children()
    if code < 0:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _set_for_process(option: int, value: int) -> None:
    """Sets an attribute of this process, where the system is Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _answer(request: dict[str, Any], answer_file: str) -> None:
    answer = os.open(answer_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(2, 1)
    try:
        found = {"torch": _export(request)}
    except BaseException as error:  # whatever the network raises, also SystemExit
        found = {"error": _said(error)}
    os.write(answer, json.dumps(found).encode())


def _said(error: BaseException) -> str:
    """The error, or what made the exporter fail, whose own text is advice on PyTorch."""
    if type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
    return _COLORS.sub("", f"{type(error).__name__}: {error}")


def _end_children() -> None:
    """Kills the children of this process, which are all processes whose parents have ended."""
    while True:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has ended
                if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                    _kill(int(stat.parent.name))
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
