"""Reads the names of classes from ONNX files of scikit-learn's models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgekit.host.compiler.frontends.common.files import read_model_file
from edgekit.host.compiler.frontends.onnx.file import FileNode, OnnxFile, read_onnx
from edgekit.host.compiler.frontends.onnx.types import LEARNED

_ATTRIBUTES = (
    "classlabels_strings", "classlabels_int64s", "classlabels_ints", "values_strings",
    "classes_strings",
)  # fmt: skip


def onnx_labels(path: Path) -> tuple[tuple[str, ...], ...]:
    """The labels of each output's classes if the file has one list of labels, else nothing.

    Raises `InputError` like `read_onnx`.
    """
    if LEARNED[:-1].encode() not in read_model_file(path):  # saves reading most models twice
        return ()
    model = read_onnx(path)
    found = {labels for node in model.nodes for labels in _labels_of(model, node)}
    return tuple(found) * len(model.outputs) if len(found) == 1 else ()


def _labels_of(model: OnnxFile, node: FileNode) -> Iterator[tuple[str, ...]]:
    if not node.op.startswith(LEARNED):
        return
    for name in _ATTRIBUTES:
        values = node.attributes.get(name)
        if isinstance(values, tuple) and values and values != tuple(range(len(values))):
            yield tuple(str(v) for v in values)
    if node.op == f"{LEARNED}ArrayFeatureExtractor" and node.inputs[0] in model.constants:
        classes = model.constants[node.inputs[0]]
        if classes.dtype.kind == "O":
            yield tuple(str(v) for v in classes.reshape(-1))
