"""Random networks in ONNX: branches, joins, residuals, odd strides and dilations, in several number
types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgekit.host.compiler.ir.types import Array

Rng = np.random.Generator
Shape = tuple[int, ...]
TYPES = ("f32", "f16", "u8", "s8", "u8s8", "s16", "dynamic")
_OPSET = 21  # the first whose Q/DQ operators take 16-bit integers
_CODES: dict[str, tuple[Any, Any]] = {  # types of activations and weights
    "u8": (np.uint8, np.uint8),
    "s8": (np.int8, np.int8),
    "u8s8": (np.uint8, np.int8),
    "s16": (np.int16, np.int8),
}
_UNARY = (
    "Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu", "Softplus", "Erf",
    "Abs", "Neg", "Exp", "Sqrt", "Clip", "Gelu", "Mish", "Softsign", "Selu", "Celu",
)  # fmt: skip
_POSITIVE = ("Sqrt",)


@dataclass(frozen=True)
class Value:
    """An activation, [1, channels, height, width] or [1, features]."""

    name: str
    shape: Shape


@dataclass
class _Net:
    rng: Rng
    kind: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    made: int = 0

    @property
    def real(self) -> Any:
        return np.float16 if self.kind == "f16" else np.float32

    def draw(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def name(self) -> str:
        self.made += 1
        return f"t{self.made}"

    def constant(self, data: Array) -> str:
        name = self.name()
        self.constants[name] = data
        return name

    def add(self, operator: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def value(self, shape: Shape, operator: str, *inputs: str, **attributes: Any) -> Value:
        return self.quantized(Value(self.add(operator, inputs, **attributes), shape))

    def weights(self, *shape: int) -> str:
        """Normal weights, such that a product keeps the variance of its input."""
        fan = int(np.prod(shape[1:])) or 1
        data = self.rng.normal(0, fan**-0.5, shape).astype(self.real)
        if self.kind not in _CODES:
            return self.constant(data)
        dtype = np.dtype(_CODES[self.kind][1])
        signed = dtype.kind == "i"
        per_channel = signed and self.chance(0.6)
        axes = tuple(range(1, data.ndim)) if per_channel else None
        largest = np.abs(data).max(axis=axes, initial=1e-3)
        scale = (largest / 127).astype(np.float32)
        zero = np.full(scale.shape, 0 if signed else 128, dtype)
        wide = scale.reshape(-1, *[1] * (data.ndim - 1)) if per_channel else scale
        stored = np.clip(np.rint(data / wide) + (0 if signed else 128), *_ends(dtype))
        operands = [self.constant(a) for a in (stored.astype(dtype), scale, zero)]
        return self.add("DequantizeLinear", operands, axis=0)

    def bias(self, count: int) -> str:
        return self.constant(self.rng.normal(0, 0.3, count).astype(self.real))

    def quantized(self, value: Value, largest: float | None = None) -> Value:
        """Put a Q/DQ pair behind `value` in quantized networks."""
        if self.kind not in _CODES:
            return value
        dtype = np.dtype(_CODES[self.kind][0])
        low, high = _ends(dtype)
        largest = largest or float(self.rng.uniform(1.5, 5))
        scale = np.array(2 * largest / (high - low), np.float32)
        middle = (low + high + 1) // 2
        shift = 0 if self.kind == "s16" else int(self.rng.integers(-20, 20))
        operands = [self.constant(scale), self.constant(np.array(middle + shift, dtype))]
        stored = self.add("QuantizeLinear", [value.name, *operands])
        return Value(self.add("DequantizeLinear", [stored, *operands]), value.shape)


def _ends(dtype: np.dtype[Any]) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _conv(net: _Net, x: Value) -> Value:
    _, inputs, *spatial = x.shape
    window = [net.draw(1, 1, 2, 3, 3, 3, 4, 5, 7) for _ in spatial]
    dilations = [net.draw(1, 1, 1, 2, 3) if k > 1 else 1 for k in window]
    strides = [net.draw(1, 1, 1, 2, 2, 3) for _ in spatial]
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    pads = [int(net.rng.integers(0, r)) for r in (*reach, *reach)]
    sizes = [
        (n + pads[i] + pads[i + 2] - reach[i]) // strides[i] + 1 for i, n in enumerate(spatial)
    ]
    if min(sizes) < 1 or any(n + pads[i] + pads[i + 2] < reach[i] for i, n in enumerate(spatial)):
        return _unary(net, x)
    group = net.draw(1, 1, 1, inputs, inputs, 2 if inputs % 2 == 0 else 1)
    outputs = group * net.draw(1, 1, 2, 3) if group == inputs else net.draw(4, 6, 8, 16, 17, 24)
    outputs += -outputs % group
    weights = net.weights(outputs, inputs // group, *window)
    operands = [weights, *([net.bias(outputs)] if net.chance(0.7) else [])]
    attributes = {"group": group, "strides": strides, "dilations": dilations, "pads": pads}
    y = Value(net.add("Conv", [x.name, *operands], **attributes), (1, outputs, *sizes))
    if net.chance(0.4):
        y = Value(net.add(net.draw("Relu", "Relu", "Clip6", "Sigmoid"), [y.name]), y.shape)
        if net.nodes[-1].op_type == "Clip6":
            net.nodes[-1].op_type = "Clip"
            ends = [net.constant(np.array(v, net.real)) for v in (0, 6)]
            net.nodes[-1].input.extend(ends)
    return net.quantized(y)


def _conv_transpose(net: _Net, x: Value) -> Value:
    _, inputs, *spatial = x.shape
    if max(spatial) > 12:
        return _pool(net, x)
    window, stride = net.draw(2, 3, 4), net.draw(1, 2, 2)
    pad = int(net.rng.integers(0, min(window, 2)))
    sizes = [(n - 1) * stride + window - 2 * pad for n in spatial]
    if min(sizes) < 1:
        return _unary(net, x)
    outputs = net.draw(4, 5, 8)
    # Quantized along its outputs, which are the second axis, so one scale for all.
    data = net.rng.normal(0, inputs**-0.5, (inputs, outputs, window, window)).astype(net.real)
    operands = [x.name, net.constant(data), net.bias(outputs)]
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4}
    return net.value((1, outputs, *sizes), "ConvTranspose", *operands, **attributes)


def _pool(net: _Net, x: Value) -> Value:
    window = [min(net.draw(2, 2, 3, 5), n) for n in x.shape[2:]]
    strides = [net.draw(1, 2, 2, 3) for _ in window]
    pads = [int(net.rng.integers(0, k // 2 + 1)) for k in (*window, *window)]
    sizes = [
        (n + pads[i] + pads[i + 2] - window[i]) // strides[i] + 1 for i, n in enumerate(x.shape[2:])
    ]
    attributes: dict[str, Any] = {"kernel_shape": window, "strides": strides, "pads": pads}
    operator = net.draw("MaxPool", "AveragePool")
    if operator == "AveragePool":
        attributes["count_include_pad"] = net.draw(0, 1)
    return net.value((*x.shape[:2], *sizes), operator, x.name, **attributes)


def _unary(net: _Net, x: Value) -> Value:
    operator = net.draw(*_UNARY)
    if operator == "Celu" and net.kind == "f16":
        operator = "Elu"  # ONNX defines no Celu of f16
    name = x.name
    if operator in _POSITIVE:
        name = net.add("Abs", [name])
    operands = [net.constant(np.array(v, net.real)) for v in (-1, 1.5)]
    extra = operands if operator == "Clip" else []
    return net.value(x.shape, operator, name, *extra)


def _scaled(net: _Net, x: Value) -> Value:
    """An operation with a constant: a scalar, one value per channel, or a full tensor."""
    shape = net.draw((), (1, x.shape[1], *[1] * (len(x.shape) - 2)), x.shape)
    data = net.rng.uniform(0.4, 1.6, shape) * net.draw(1, 1, -1)
    operator = net.draw("Mul", "Add", "Sub", "Div", "Max", "Min")
    operands = [x.name, net.constant(np.asarray(data, net.real))]
    if net.chance(0.3):
        operands.reverse() if operator != "Div" else None
    return net.value(x.shape, operator, *operands)


def _normalized(net: _Net, x: Value) -> Value:
    channels = x.shape[1]
    four = [net.rng.uniform(0.5, 1.5, channels) for _ in range(4)]
    four[1] -= 1
    four[2] -= 1
    operands = [net.constant(v.astype(net.real)) for v in four]
    return net.value(x.shape, "BatchNormalization", x.name, *operands)


def _gated(net: _Net, x: Value) -> Value:
    """A gate per channel, as in squeeze-and-excitation."""
    channels = x.shape[1]
    mean = net.value((1, channels, 1, 1), "GlobalAveragePool", x.name)
    less = net.value((1, 4, 1, 1), "Conv", mean.name, net.weights(4, channels, 1, 1))
    less = net.value(less.shape, "Relu", less.name)
    more = net.value(mean.shape, "Conv", less.name, net.weights(channels, 4, 1, 1))
    gate = net.value(more.shape, net.draw("Sigmoid", "HardSigmoid"), more.name)
    return net.value(x.shape, "Mul", *net.draw((x.name, gate.name), (gate.name, x.name)))


def _resized(net: _Net, x: Value) -> Value:
    if max(x.shape[2:]) > 14:
        return _pool(net, x)
    scales = [net.draw(1, 2, 2, 1.5, 3) for _ in x.shape[2:]]
    sizes = [int(np.floor(n * s)) for n, s in zip(x.shape[2:], scales, strict=True)]
    mode = net.draw("nearest", "linear")
    aligned = net.draw("half_pixel", "asymmetric", "align_corners")
    attributes = {"mode": mode, "coordinate_transformation_mode": aligned}
    if mode == "nearest":
        attributes["nearest_mode"] = net.draw("floor", "round_prefer_floor")
    factors = net.constant(np.array([1, 1, *scales], np.float32))
    return net.value((*x.shape[:2], *sizes), "Resize", x.name, "", factors, **attributes)


def _padded(net: _Net, x: Value) -> Value:
    pads = [int(net.rng.integers(0, 3)) for _ in range(4)]
    mode = net.draw("constant", "edge", "reflect")
    if mode == "reflect" and min(x.shape[2:]) < 4:
        mode = "edge"
    shape = (*x.shape[:2], x.shape[2] + pads[0] + pads[2], x.shape[3] + pads[1] + pads[3])
    ends = net.constant(np.array([0, 0, *pads[:2], 0, 0, *pads[2:]], np.int64))
    return net.value(shape, "Pad", x.name, ends, mode=mode)


def _sliced(net: _Net, x: Value) -> Value:
    axis = net.draw(1, 2, 3)
    size = x.shape[axis]
    if size < 3:
        return _unary(net, x)
    begin, step = int(net.rng.integers(0, size // 2)), net.draw(1, 1, 2)
    end = int(net.rng.integers(begin + 1, size + 1))
    shape = list(x.shape)
    shape[axis] = -(-(end - begin) // step)
    operands = [net.constant(np.array([v], np.int64)) for v in (begin, end, axis, step)]
    return net.value(tuple(shape), "Slice", x.name, *operands)


def _shuffled(net: _Net, x: Value) -> Value:
    """Channels in another order, as in ShuffleNet, or blocks of pixels as channels."""
    _, channels, height, width = x.shape
    if net.chance(0.4) and height % 2 == 0 and width % 2 == 0 and channels <= 16:
        shape = (1, 4 * channels, height // 2, width // 2)
        return net.value(shape, "SpaceToDepth", x.name, blocksize=2)
    group = 2 if channels % 2 == 0 else 1
    split = net.constant(np.array([1, group, channels // group, height, width], np.int64))
    joined = net.constant(np.array(x.shape, np.int64))
    wide = net.add("Reshape", [x.name, split])
    turned = net.add("Transpose", [wide], perm=[0, 2, 1, 3, 4])
    return Value(net.add("Reshape", [turned, joined]), x.shape)


def _attended(net: _Net, x: Value) -> Value:
    """Attention over the pixels, then the same shape again."""
    _, channels, height, width = x.shape
    if height * width > 100:
        return _pool(net, x)
    flat = net.constant(np.array([1, channels, height * width], np.int64))
    tokens = net.add("Transpose", [net.add("Reshape", [x.name, flat])], perm=[0, 2, 1])
    q, k, v = (net.add("MatMul", [tokens, net.weights(channels, channels)]) for _ in range(3))
    scores = net.add("MatMul", [q, net.add("Transpose", [k], perm=[0, 2, 1])])
    factor = net.constant(np.array(channels**-0.5, net.real))
    shares = net.add("Softmax", [net.add("Mul", [scores, factor])], axis=-1)
    mixed = net.add("Transpose", [net.add("MatMul", [shares, v])], perm=[0, 2, 1])
    again = net.constant(np.array(x.shape, np.int64))
    return net.quantized(Value(net.add("Reshape", [mixed, again]), x.shape))


_STEPS: tuple[Callable[[_Net, Value], Value], ...] = (
    _conv, _conv, _conv, _conv, _conv, _conv_transpose, _pool, _unary, _unary, _scaled, _normalized,
    _gated, _resized, _padded, _sliced, _shuffled, _attended,
)  # fmt: skip


def _joined(net: _Net, live: Sequence[Value]) -> Value | None:
    """A residual sum or product of two values of one shape, or a concatenation along channels."""
    a = net.draw(*live)
    same = [b for b in live if b.shape == a.shape]
    b = net.draw(*same)
    if net.chance(0.6):
        return net.value(a.shape, net.draw("Add", "Add", "Mul", "Sub", "Max"), a.name, b.name)
    pixels = [b for b in live if b.shape[2:] == a.shape[2:]]
    parts = [a, *(net.draw(*pixels) for _ in range(net.draw(1, 1, 2)))]
    channels = sum(p.shape[1] for p in parts)
    if channels > 64:
        return None
    return net.value((1, channels, *a.shape[2:]), "Concat", *(p.name for p in parts), axis=1)


def _head(net: _Net, x: Value) -> Value:
    """A classifier, in half of the networks."""
    if net.chance(0.5):
        return x
    if net.chance(0.5):
        x = net.value((*x.shape[:2], 1, 1), "GlobalAveragePool", x.name)
    count, classes = int(np.prod(x.shape)), net.draw(3, 10, 17)
    flat = net.add("Flatten", [x.name])
    weights = net.weights(classes, count)
    logits = net.value((1, classes), "Gemm", flat, weights, net.bias(classes), transB=1)
    if net.chance(0.6):
        return logits
    return Value(net.add("Softmax", [logits.name], axis=-1), logits.shape)


def random_networks(seeds: Sequence[int], kind: str) -> onnx.ModelProto:
    """A model of independent networks, one per seed, each of 5 to 20 layers with one input and one
    to three outputs, whose names end in its seed. `kind`: one of `TYPES`; u8, s8, u8s8 and s16 name
    the types of Q/DQ networks, `dynamic` has products whose operands are quantized as they
    arrive."""
    whole = onnx.GraphProto(name="random")
    for seed in seeds:
        graph = _random_network(seed, kind)
        _rename(graph, lambda name, seed=seed: name and f"{name}_{seed}")
        whole.MergeFrom(graph)
    whole.name = "random"
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)


def _rename(graph: onnx.GraphProto, renamed: Callable[[str], str]) -> None:
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = renamed(value.name)
    for node in graph.node:
        node.input[:] = [renamed(name) for name in node.input]
        node.output[:] = [renamed(name) for name in node.output]


def _random_network(seed: int, kind: str) -> onnx.GraphProto:
    net = _Net(np.random.default_rng((seed, *kind.encode())), kind)
    size = (net.draw(7, 9, 12, 16, 19, 24), net.draw(7, 8, 13, 16, 21, 24))
    x = Value("x", (1, net.draw(1, 3, 4, 8), *size))
    live = [net.quantized(x, 3.0)]
    for _ in range(int(net.rng.integers(5, 21))):
        y = _joined(net, live) if net.chance(0.25) else None
        if y is None:
            recent = live[-1] if net.chance(0.7) else net.draw(*live)
            y = net.draw(*_STEPS)(net, recent)
        live.append(y)
    read = {name for node in net.nodes for name in node.input}
    ends = [v for v in live[1:] if v.name not in read][-3:]
    finals = [_head(net, v) for v in ends]
    if kind == "dynamic":
        _quantize_dynamically(net)
    return _graph(net, x, finals)


def _quantize_dynamically(net: _Net) -> None:
    """Replaces products by constants as quantizers for language models write them."""
    nodes = list(net.nodes)
    net.nodes.clear()
    for node in nodes:
        constant = node.input[1] if len(node.input) > 1 else ""
        if node.op_type != "MatMul" or constant not in net.constants:
            net.nodes.append(node)
            continue
        data = net.constants[constant]
        scale = np.array(np.abs(data).max() / 127, np.float32)
        stored = net.constant(np.rint(data / scale).astype(np.int8))
        names = [net.name() for _ in range(3)]
        net.nodes.append(helper.make_node("DynamicQuantizeLinear", [node.input[0]], names))
        zero = net.constant(np.array(0, np.int8))
        sums = net.add("MatMulInteger", [names[0], stored, names[2], zero])
        real = net.add("Cast", [sums], to=TensorProto.FLOAT)
        factor = net.add("Mul", [names[1], net.constant(scale)])
        net.nodes.append(helper.make_node("Mul", [real, factor], list(node.output)))


def _graph(net: _Net, x: Value, finals: Sequence[Value]) -> onnx.GraphProto:
    number = helper.np_dtype_to_tensor_dtype(np.dtype(net.real))
    ends = [helper.make_tensor_value_info(v.name, number, v.shape) for v in finals]
    made = [numpy_helper.from_array(v, n) for n, v in net.constants.items()]
    given = [helper.make_tensor_value_info("x", number, x.shape)]
    return helper.make_graph(net.nodes, "random", given, ends, made)
