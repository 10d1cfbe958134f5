"""The outline of a Caffe network: its files declare only the input shapes."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.compiler.frontends.caffe.file import read_caffe
from edgekit.host.compiler.frontends.caffe.operators import DROPPED, SWALLOWED, caffe_operators
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.common.outline import Outline, Slot
from edgekit.host.compiler.options import Shapes


def outline_caffe(path: Path, shapes: Shapes) -> Outline:
    """`shapes` override input shapes. Raises `InputError` for unreadable files."""
    net = read_caffe(path)
    left: dict[str, None] = {}
    for layer in net.layers:
        if layer.kind not in DROPPED:
            for bottom in layer.bottoms:
                left.pop(bottom, None)
            left |= dict.fromkeys(layer.tops if layer.kind not in SWALLOWED else ())
    blobs = [blob for made in net.weights.values() for blob in made]
    return Outline(
        "Caffe",
        tuple(Slot(i.name, "f32", shapes.get(i.name, i.shape)) for i in net.inputs),
        tuple(Slot(name, "f32", None) for name in left),
        (),
        tuple((shown_name(layer.name), layer.kind) for layer in net.layers),
        caffe_operators() | DROPPED | SWALLOWED,
        sum(blob.size for blob in blobs),
        sum(blob.nbytes for blob in blobs),
        None,
        None,
    )
