"""Small Caffe networks, written layer by layer, with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit.host.compiler.frontends.caffe.schema import binary_net
from edgekit.host.compiler.ir.types import Array

Blobs = Mapping[str, Sequence[Array]]


def layer(name: str, kind: str, bottoms: str, tops: str = "", rest: str = "") -> str:
    """One layer's text; names are space-separated, and the top defaults to the layer's name."""
    ends = "".join(f' bottom: "{b}"' for b in bottoms.split())
    ends += "".join(f' top: "{t}"' for t in (tops or name).split())
    return f'layer {{ name: "{name}" type: "{kind}"{ends} {rest} }}\n'


def image(*shape: int, name: str = "data") -> str:
    dims = " ".join(f"dim: {d}" for d in shape)
    return layer(name, "Input", "", rest=f"input_param {{ shape {{ {dims} }} }}")


def weights(blobs: Blobs, legacy: bool = False) -> bytes:
    """Serialize a .caffemodel; `legacy`: V1 layers with four-dimensional blobs."""
    net = binary_net()()
    for name, values in blobs.items():
        made = (net.layers if legacy else net.layer).add(name=name)
        for value in values:
            blob = made.blobs.add(data=[np.asarray(value, "<f4").tobytes()])
            if legacy:
                full = (1,) * (4 - value.ndim) + value.shape
                blob.num, blob.channels, blob.height, blob.width = full
            else:
                blob.shape.dim.extend(value.shape)
    return bytes(net.SerializeToString())


def save(text: str, blobs: Blobs, folder: Path, legacy: bool = False, name: str = "net") -> Path:
    """Write the .prototxt, and the .caffemodel next to it if there are blobs."""
    path = folder / f"{name}.prototxt"
    path.write_text(text)
    if blobs:
        path.with_suffix(".caffemodel").write_bytes(weights(blobs, legacy))
    return path
