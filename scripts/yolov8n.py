"""Writes the graph of YOLOv8n with random weights as an ONNX model, for estimates of time.

    python scripts/yolov8n.py -o yolov8n_160.onnx [--size 160]

Times do not depend on the weights. These are scaled so that the values of all layers have a
variance near 1, as after batch normalization, which is why the loss of half precision is that of a
trained network. Written from the published description of the architecture (backbone of C2f blocks,
pyramid with two directions, decoupled heads whose boxes are expectations over 16 bins); it has
3,151,904 weights, as published. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPSET, _IR = 17, 8
_CLASSES, _BINS, _SIDES = 80, 16, 4
_BOX_CHANNELS = 64  # of the head's hidden layers for boxes; those for classes have _CLASSES
_STRIDES = (8, 16, 32)
_GAIN = 1.68  # keeps the variance behind SiLU
_DTYPE = np.float32


@dataclass
class Network:
    """The graph under construction; methods return the names of tensors."""

    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def node(self, kind: str, *inputs: str, outputs: int = 0, **attributes: Any) -> Any:
        """One output's name, or with `outputs` a list of names."""
        name = f"{kind.lower()}{len(self.nodes)}"
        names = [f"{name}.{i}" for i in range(outputs)] or [name]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names if outputs else name

    def constant(self, values: Any) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def product(self, x: str, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> str:
        """A convolution with bias and without activation."""
        scale = _GAIN / np.sqrt(inputs * size * size)
        weights = self.random.normal(0, scale, (outputs, inputs, size, size)).astype(_DTYPE)
        bias = self.random.normal(0, 0.1, outputs).astype(_DTYPE)
        place = {"kernel_shape": [size, size], "strides": [stride] * 2, "pads": [size // 2] * 4}
        return self.node("Conv", x, self.constant(weights), self.constant(bias), **place)

    def conv(self, x: str, inputs: int, outputs: int, size: int = 1, stride: int = 1) -> str:
        """A convolution and SiLU."""
        y = self.product(x, inputs, outputs, size, stride)
        return self.node("Mul", y, self.node("Sigmoid", y))

    def join(self, *parts: str, axis: int = 1) -> str:
        return self.node("Concat", *parts, axis=axis)

    def split(self, x: str, sizes: Sequence[int]) -> list[str]:
        sizes_name = self.constant(np.array(sizes, np.int64))
        return self.node("Split", x, sizes_name, outputs=len(sizes), axis=1)

    def reshape(self, x: str, *shape: int) -> str:
        return self.node("Reshape", x, self.constant(np.array(shape, np.int64)))

    def c2f(self, x: str, inputs: int, outputs: int, blocks: int, shortcut: bool) -> str:
        """Two branches, one through `blocks` pairs of convolutions, and all that lies between."""
        half = outputs // 2
        parts = self.split(self.conv(x, inputs, outputs), (half, half))
        for _ in range(blocks):
            y = self.conv(self.conv(parts[-1], half, half, 3), half, half, 3)
            parts.append(self.node("Add", parts[-1], y) if shortcut else y)
        return self.conv(self.join(*parts), half * len(parts), outputs)

    def pool(self, x: str, channels: int) -> str:
        """Maxima over 5, 9 and 13 pixels next to the values themselves."""
        parts = [self.conv(x, channels, channels // 2)]
        for _ in range(3):
            same = {"kernel_shape": [5, 5], "strides": [1, 1], "pads": [2] * 4}
            parts.append(self.node("MaxPool", parts[-1], **same))
        return self.conv(self.join(*parts), channels * 2, channels)

    def double(self, x: str) -> str:
        scales = self.constant(np.array([1, 1, 2, 2], _DTYPE))
        rounding = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.node("Resize", x, "", scales, mode="nearest", **rounding)


def _pyramid(net: Network, image: str) -> list[tuple[str, int]]:
    """The features of three strides, with their channels."""
    x = net.conv(net.conv(image, 3, 16, 3, 2), 16, 32, 3, 2)
    x = net.conv(net.c2f(x, 32, 32, 1, True), 32, 64, 3, 2)
    fine = net.c2f(x, 64, 64, 2, True)
    middle = net.c2f(net.conv(fine, 64, 128, 3, 2), 128, 128, 2, True)
    x = net.c2f(net.conv(middle, 128, 256, 3, 2), 256, 256, 1, True)
    coarse = net.pool(x, 256)
    up = net.c2f(net.join(net.double(coarse), middle), 384, 128, 1, False)
    first = net.c2f(net.join(net.double(up), fine), 192, 64, 1, False)
    second = net.c2f(net.join(net.conv(first, 64, 64, 3, 2), up), 192, 128, 1, False)
    third = net.c2f(net.join(net.conv(second, 128, 128, 3, 2), coarse), 384, 256, 1, False)
    return [(first, 64), (second, 128), (third, 256)]


def _head(net: Network, x: str, channels: int) -> str:
    """Logits of the bins of four sides and of the classes."""

    def branch(hidden: int, outputs: int) -> str:
        y = net.conv(net.conv(x, channels, hidden, 3), hidden, hidden, 3)
        return net.product(y, hidden, outputs)

    logits = net.join(branch(_BOX_CHANNELS, _SIDES * _BINS), branch(_CLASSES, _CLASSES))
    return net.reshape(logits, 1, _SIDES * _BINS + _CLASSES, -1)


def _decode(net: Network, logits: str, size: int) -> str:
    """Boxes (center, width, height in pixels) and probabilities of the classes."""
    cells = [size // stride for stride in _STRIDES]
    grids = [np.stack(np.meshgrid(np.arange(n), np.arange(n))).reshape(2, -1) for n in cells]
    centers = net.constant(np.concatenate(grids, 1)[None].astype(_DTYPE) + _DTYPE(0.5))
    strides = np.repeat(_STRIDES, [n * n for n in cells]).astype(_DTYPE)
    boxes, classes = net.split(logits, (_SIDES * _BINS, _CLASSES))
    bins = net.node("Transpose", net.reshape(boxes, 1, _SIDES, _BINS, -1), perm=[0, 2, 1, 3])
    shares = net.node("Softmax", bins, axis=1)
    weights = net.constant(np.arange(_BINS, dtype=_DTYPE).reshape(1, _BINS, 1, 1))
    sides = net.reshape(net.node("Conv", shares, weights), 1, _SIDES, -1)
    before, after = net.split(sides, (2, 2))
    low, high = net.node("Sub", centers, before), net.node("Add", after, centers)
    middle = net.node("Div", net.node("Add", low, high), net.constant(_DTYPE(2)))
    box = net.join(middle, net.node("Sub", high, low))
    return net.join(net.node("Mul", box, net.constant(strides)), net.node("Sigmoid", classes))


def build(size: int) -> onnx.ModelProto:
    """The model for images of size x size pixels."""
    net = Network()
    logits = net.join(*(_head(net, x, channels) for x, channels in _pyramid(net, "images")), axis=2)
    found = _decode(net, logits, size)
    net.nodes[-1].output[0] = found = "boxes"
    image = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, size, size])
    cells = sum((size // stride) ** 2 for stride in _STRIDES)
    shape = [1, _SIDES + _CLASSES, cells]
    output = helper.make_tensor_value_info(found, TensorProto.FLOAT, shape)
    graph = helper.make_graph(net.nodes, "yolov8n", [image], [output], net.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=160, help="pixels; a multiple of 32")
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    if options.size < 32 or options.size % 32:
        parser.error(f"--size: expected a multiple of 32, found {options.size}")
    onnx.save(build(options.size), options.output)


if __name__ == "__main__":
    main()
