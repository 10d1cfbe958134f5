"""Splits an ONNX model in which an input chooses one of two graphs, as Optimum merges decoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgekit.host.compiler.frontends.common.files import read_model_file
from edgekit.host.compiler.frontends.onnx.file import decode_model, external_files, import_onnx

_BRANCHES = ("else_branch", "then_branch")  # for a false and a true condition


def split_model(path: Path, flag: str) -> tuple[bytes, bytes] | None:
    """The model for a false and for a true input `flag`, with the inputs that each needs. None if
    that input does not choose between all outputs, or if tensors are in other files.

    Raises `InputError` if the file is not a readable ONNX model.
    """
    onnx = import_onnx()
    model = decode_model(onnx, read_model_file(path))
    chooses = [n for n in model.graph.node if n.op_type == "If" and [*n.input] == [flag]]
    if len(chooses) != 1 or len(model.graph.node) != 1 or external_files(path):
        return None
    branches = {entry.name: entry.g for entry in chooses[0].attribute}
    if {*branches} != {*_BRANCHES}:
        return None
    names = [*chooses[0].output]
    low, high = (_alone(onnx, model, branches[name], names) for name in _BRANCHES)
    return low, high


def _alone(onnx: Any, model: Any, branch: Any, names: list[str]) -> bytes:
    """The model that computes a branch always; its outputs are called `names`. Outputs that are
    constants of the branch are left out: they stand for what only the other one computes."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    constant = {t.name for t in branch.initializer}
    constant |= {n.output[0] for n in branch.node if n.op_type == "Constant"}
    given = [(own.name, name) for own, name in zip(branch.output, names, strict=True)]
    kept = [(own, name) for own, name in given if own not in constant]
    del graph.node[:]
    graph.node.extend(branch.node)
    for own, name in kept:
        if own != name:
            graph.node.append(onnx.helper.make_node("Identity", [own], [name]))
    graph.initializer.extend(branch.initializer)
    wanted = {name for node in graph.node for name in node.input}
    for values, used in ((graph.input, wanted), (graph.output, {name for _, name in kept})):
        left = [value for value in values if value.name in used]
        del values[:]
        values.extend(left)
    left = [tensor for tensor in graph.initializer if tensor.name in wanted]
    del graph.initializer[:]
    graph.initializer.extend(left)
    return bytes(made.SerializeToString())
