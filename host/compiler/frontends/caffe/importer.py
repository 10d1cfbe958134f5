"""Imports Caffe networks.

    .prototxt, .caffemodel ─ file.py ─► records ─ importer.py ─► handlers (operators.py)
                                                                    ─ builder ─► Graph

Only the TEST phase without losses is imported. A layer may work in place (`top` equals `bottom`):
later layers see the new value. Tensors keep Caffe's layout (NCHW).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from edgekit.host.compiler.frontends.caffe.call import CaffeCall
from edgekit.host.compiler.frontends.caffe.file import FileLayer, FileNet, read_caffe
from edgekit.host.compiler.frontends.caffe.operators import DATA, DROPPED, ROWS, SWALLOWED
from edgekit.host.compiler.frontends.common.builder import GraphBuilder
from edgekit.host.compiler.frontends.common.names import duplicates, shown_name
from edgekit.host.compiler.frontends.common.open_shapes import (
    OpenInput,
    OpenShapesError,
    fix_shapes,
)
from edgekit.host.compiler.frontends.common.refusal import at_operator, refuse, unsupported
from edgekit.host.compiler.ir.names import fresh_name
from edgekit.host.compiler.ir.types import DType, Graph, ShapeError, Tensor
from edgekit.host.compiler.options import Shapes
from edgekit.host.errors import InputError

_RANK_LIMIT = 8


def import_caffe(path: Path, shapes: Shapes | None = None) -> Graph:
    """Reads a .prototxt and its .caffemodel; `path` is either of them. `shapes` override input
    shapes by name.

    Raises `InputError` with one line that names the file and the layer.
    """
    try:
        net = read_caffe(path)
        try:
            return graph_from_caffe(net, str(path), shapes or {})
        except OpenShapesError as error:
            raise error.answered(str(path), partial(graph_from_caffe, net, str(path))) from error
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def graph_from_caffe(net: FileNet, file: str, shapes: Shapes) -> Graph:
    """`import_caffe` on the records of `file`; messages do not start with its name."""
    kept = [layer for layer in net.layers if layer.kind not in DROPPED]
    _reject_training_layers(kept)
    dropped = {b for layer in net.layers if layer.kind in DROPPED for b in layer.bottoms}
    read = {b for layer in kept for b in layer.bottoms}
    inputs = [i for i in net.inputs if i.name in read or i.name not in dropped]
    names = [i.name for i in inputs]
    if again := duplicates(names):
        raise InputError(f"expected distinct inputs, found {shown_name(again[0])} twice")
    if unnamed := [n for n in names if not n or not n.isprintable()]:
        raise InputError(f"expected printable input names, found {unnamed[0]!r:.40}")
    if not inputs:
        raise InputError("expected an input with a shape (a layer of type Input), found none")
    # Caffe's input shapes are only defaults: the same network runs with others.
    stated = [OpenInput(n, DType.F32, None if n in shapes else i.shape)
              for n, i in zip(names, inputs, strict=True)]  # fmt: skip
    fixed = fix_shapes(stated, shapes)
    stem = Path(file).name.removesuffix(".txt").rpartition(".")[0]
    return replace(_Import(net, kept, fixed.shapes).run(stem), notes=fixed.notes)


def _reject_training_layers(layers: Sequence[FileLayer]) -> None:
    for layer in layers:
        if layer.kind in DATA:
            raise InputError(
                f"layer {layer.shown}: expected a network for deployment, found one that reads its "
                "training set; replace this layer by one of type Input with a shape"
            )
    known = {*ROWS, *SWALLOWED}
    refuse(unsupported(((shown_name(layer.name), layer.kind) for layer in layers), known))


class _Import:
    """Walks the layers once, in order."""

    def __init__(self, net: FileNet, layers: Sequence[FileLayer], inputs: Shapes) -> None:
        self._net, self._layers, self._inputs = net, layers, inputs
        self._builder = GraphBuilder()
        self._values: dict[str, Tensor] = {}

    def run(self, name: str) -> Graph:
        builder, outputs = self._builder, self._unread_tops()
        builder.reserve([*self._inputs, *outputs])
        for item, shape in self._inputs.items():
            try:
                if len(shape) > _RANK_LIMIT:
                    raise ShapeError(
                        f"expected at most {_RANK_LIMIT} dimensions, found {len(shape)}"
                    )
                self._values[item] = builder.input(item, shape, DType.F32)
            except ShapeError as error:
                raise InputError(f"input {shown_name(item)}: {error}") from error
        made = list(self._values.values())
        for layer in self._layers:
            if layer.kind in SWALLOWED:
                continue
            try:
                self._add_layer(layer)
            except ShapeError as error:
                raise InputError(at_operator(layer.shown, error, "layer")) from error
        return builder.finish(name, made, {n: self._values[top] for n, top in outputs.items()})

    def _unread_tops(self) -> dict[str, str]:
        """Tops that no layer reads: the top by output name."""
        left: dict[str, str] = {}
        for layer in self._layers:
            for bottom in layer.bottoms:
                left.pop(bottom, None)
            if layer.kind not in SWALLOWED:
                left |= dict.fromkeys(layer.tops, layer.name)
        if not left:
            raise InputError("expected a network with outputs, found none")
        taken = set(self._inputs)
        outputs = {}
        for top, writer in left.items():
            # An output that overwrites an input is named after the last layer that wrote it.
            name = fresh_name(writer or "output", taken) if top in taken else top
            if not name or not name.isprintable():
                raise InputError(f"expected printable output names, found {name!r:.40}")
            taken.add(name)
            outputs[name] = top
        return outputs

    def _add_layer(self, layer: FileLayer) -> None:
        for name in layer.bottoms:
            if name not in self._values:
                raise ShapeError(
                    f"expected bottom {shown_name(name)} to be an input or the top of an earlier "
                    "layer, found neither"
                )
        self._builder.begin(_node_prefix(layer))
        tensors = [self._values[name] for name in layer.bottoms]
        blobs = self._net.weights.get(layer.name, ())
        made = ROWS[layer.kind](
            CaffeCall(layer, tensors, blobs, self._net.weights_file, self._builder)
        )
        made = made if isinstance(made, list) else [made]
        if len(made) != len(layer.tops):
            raise ShapeError(f"expected {len(made)} tops, found {len(layer.tops)}")
        for name, tensor in zip(layer.tops, made, strict=True):
            if name in self._values and name not in layer.bottoms:
                raise ShapeError(
                    f"expected each top to be written once, found {shown_name(name)} again"
                )
            self._values[name] = self._builder.rename(tensor, name)


def _node_prefix(layer: FileLayer) -> str:
    """A prefix for the names of a layer's nodes."""
    short = 0 < len(layer.name) <= 40 and layer.name.isascii() and layer.name.isprintable()
    return layer.name if short else layer.kind.lower()[:40]
