"""The health check in this process: golden input, a library, and the error of its outputs."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from onnx import ModelProto

from edgekit.device.runtime.agent.golden import worst_difference
from edgekit.device.runtime.agent.manifest import TensorSpec
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.artifact import Golden
from edgekit.host.compiler.driver import prepare_graph, units_of
from edgekit.host.compiler.fit import plan_of
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir.types import Array, DType, Graph, Node
from edgekit.host.compiler.lowering.plan import Plan
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.host.compiler.transforms.passes.quantized import integer_form
from edgekit.kb.targets.board import BoardProfile
from tests.support import op_graphs
from tests.support.kernel_faults import Fault
from tests.support.kernel_runs import run_here
from tests.support.onnx_models import model, node, save, value
from tests.support.toolchains import toolchain_for

ROOT = Path(__file__).parents[2]
_CASES = 16  # operators per family
_FEWER_CASES = {"poses": 4}  # whose reference takes a second each
_OPEN_SHAPES = {"ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)}}


def real_models() -> list[Path]:
    """The models in models/ and in EDGEKIT_EXTRA_DATA."""
    folders = [ROOT / "models"]
    if "EDGEKIT_EXTRA_DATA" in os.environ:
        folders.append(Path(os.environ["EDGEKIT_EXTRA_DATA"]) / "models")
    found = [p for f in folders for p in f.rglob("*") if p.suffix in (".tflite", ".onnx")]
    return sorted({p.name: p for p in reversed(found)}.values())


def _values(*shape: int) -> Array:
    return np.random.default_rng(math.prod(shape)).normal(0, 0.4, shape).astype(np.float32)


def _lstm() -> ModelProto:
    steps, inputs, cells = 6, 20, 24
    return model(
        [node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=cells)],
        [value("x", (steps, 1, inputs))],
        ["y"],
        {
            "w": _values(1, 4 * cells, inputs),
            "r": _values(1, 4 * cells, cells),
            "b": _values(1, 8 * cells),
        },
    )


def _attention() -> ModelProto:
    """One attention head over 33 tokens of 24 features."""
    nodes = [
        *(node("MatMul", ["x", f"w{v}"], [v]) for v in "qkv"),
        node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["s"]),
        node("Softmax", ["s"], ["p"]),
        node("MatMul", ["p", "v"], ["y"]),
    ]
    constants = {f"w{v}": _values(24, 24 + i)[:, :24] for i, v in enumerate("qkv")}
    return model(nodes, [value("x", (1, 33, 24))], ["y"], constants)


def _curves() -> ModelProto:
    """Approximated functions, evaluated at up to 3 times the input."""
    kinds = ("Tanh", "Erf", "Sigmoid", "Elu", "Softplus")
    nodes = [node("Mul", ["x", "three"], ["t"]), *(node(k, ["t"], [k]) for k in kinds)]
    return model(nodes, [value("x", (1, 500))], kinds, {"three": np.full(1, 3, np.float32)})


_NETWORKS = {"lstm": _lstm, "attention": _attention, "curves": _curves}


def _without_epilogues(graph: Graph) -> Graph:
    """Undo epilogue fusion, as in a freshly imported graph: functions become separate nodes."""
    tensors, nodes = dict(graph.tensors), []
    for each in graph.nodes:
        function = getattr(each.op, "epilogue", None)
        if function is None:
            nodes.append(each)
            continue
        made = each.outputs[0]
        between = f"{made}.product"
        tensors[between] = dataclasses.replace(tensors[made], name=between)
        plain = dataclasses.replace(each.op, epilogue=None)
        nodes.append(Node(each.name, plain, each.inputs[:4], (between,)))
        operands = (between, *each.inputs[4:5])
        nodes.append(Node(f"{each.name}.function", function, operands, (made,)))
    return dataclasses.replace(graph, tensors=tensors, nodes=tuple(nodes))


@functools.cache
def with_golden(run: str) -> tuple[Graph, Golden]:
    """Load a model file, build a small network, or draw random operators of a family; return it
    with its golden vectors."""
    if run in _NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            graph = import_model(save(_NETWORKS[run](), Path(folder)))
    elif "." in run:
        path = Path(run) if "/" in run else ROOT / "models" / run
        graph = integer_form(import_model(path, _OPEN_SHAPES.get(path.stem)))
    else:
        graph = _without_epilogues(op_graphs.random_graph(run, _FEWER_CASES.get(run, _CASES), 1))
    return graph, golden_of(graph, cache_folder() / "golden")


def planned(graph: Graph, board: BoardProfile) -> Plan:
    """The compiler's plan."""
    return plan_of(prepare_graph(graph, board).graph, board, DEFAULT_OPTIONS)[1]


def built_with(plan: Plan, board: BoardProfile, folder: Path, kernels: Path) -> Path:
    """Build the library of a plan with kernels from another folder."""
    units = [
        u
        if isinstance(u.source, str)
        else dataclasses.replace(u, source=kernels / Path(u.source).relative_to(kernels_folder()))
        for u in units_of(plan, board)
    ]
    library = toolchain_for(board).build(units)
    folder.mkdir(exist_ok=True)
    (folder / "model.so").write_bytes(library)
    (folder / "weights.bin").write_bytes(plan.lowered.weights)
    return folder


def with_fault(fault: Fault, kernels: Path) -> Path:
    """Copy all kernels, with a fault, to `kernels`."""
    shutil.copytree(kernels_folder(), kernels)
    text = (kernels / fault.file).read_text()
    assert fault.old in text, f"{fault.file} has changed: adapt the fault"
    (kernels / fault.file).write_text(text.replace(fault.old, fault.new))
    return kernels


def error_by_tolerance(folder: Path, graph: Graph, golden: Golden) -> float:
    """The largest error over all outputs, in tolerances; above 1 a release is rolled back."""
    made = run_here(folder, dict(zip(graph.inputs, golden.inputs, strict=True)))
    return worst_by_tolerance(made, graph, golden)


def worst_by_tolerance(made: Mapping[str, Array], graph: Graph, golden: Golden) -> float:
    """The same for outputs computed on a board."""
    return worst_of_golden([made[name] for name in graph.outputs], golden)


def worst_of_golden(made: Sequence[Array], golden: Golden) -> float:
    """The same for outputs in the model's order."""
    worst = 0.0
    for i, (found, want) in enumerate(zip(made, golden.outputs, strict=True)):
        shares = golden.margins[i] if golden.margins else None
        dtype = next(d for d in DType if d.numpy == want.dtype).value
        off = worst_difference(
            TensorSpec("", dtype, want.shape, None, None),
            want.tobytes(),
            np.ascontiguousarray(found).tobytes(),
            None if shares is None else shares.tobytes(),
        )
        allowed = float(np.ldexp(golden.tolerances[i], -off.share))
        if off.largest:
            worst = max(worst, off.largest / allowed if allowed else np.inf)
    return worst
