"""Hostile ONNX files: valid files whose messages were changed, and files built to cost time or
memory."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.hostile_files import EDGES
from tests.support.onnx_models import model, node, value

_FLOATS = (0.0, -1.0, 1e-38, 1e38, float("inf"), float("nan"))
_TEXTS = ("", "x", "SAME_UPPER", "\x00\n", "a" * 100_000, "../../etc/passwd", "é", "1e999")
_SCALARS = ("int", "float", "str", "bytes")


def changed_messages(rng: random.Random, content: bytes) -> bytes:
    """A copy of a valid file with one to three hostile changes to its messages."""
    proto = onnx.load_model_from_string(content)
    for _ in range(rng.randint(1, 3)):
        _change(rng, proto)
    return bytes(proto.SerializeToString())


def _change(rng: random.Random, message: Any) -> None:
    """Walks down from `message` at random, then changes one field."""
    while True:
        fields = [(f, v) for f, v in message.ListFields() if f.name not in ("raw_data", "doc")]
        if not fields:
            return
        field, found = rng.choice(fields)
        if field.message_type is None:
            _set(rng, message, field.name, found)
            return
        many = not hasattr(found, "ListFields")
        if many and rng.random() < 0.25:
            _rearrange(rng, found)
            return
        if not many and rng.random() < 0.03:
            message.ClearField(field.name)
            return
        message = rng.choice(list(found)) if many else found


def _rearrange(rng: random.Random, items: Any) -> None:
    at = rng.randrange(len(items))
    change = rng.randrange(4)
    if change == 0:
        del items[at]
    elif change == 1:
        items.add().CopyFrom(items[at])
    elif change == 2:
        items[at].CopyFrom(rng.choice(list(items)))
    else:
        items[at].Clear()


def _set(rng: random.Random, message: Any, name: str, found: Any) -> None:
    try:
        if isinstance(found, int | float | str | bytes):
            setattr(message, name, _hostile(rng, found))
            return
        if rng.random() < 0.3:
            found.append(_hostile(rng, found[0]))
        elif rng.random() < 0.3:
            del found[rng.randrange(len(found))]
        else:
            at = rng.randrange(len(found))
            found[at] = found[rng.randrange(len(found))] if rng.random() < 0.3 else _hostile(
                rng, found[at]
            )  # fmt: skip
    except (ValueError, TypeError):
        message.ClearField(name)  # a value that this field cannot hold


def _hostile(rng: random.Random, like: Any) -> Any:
    if isinstance(like, float):
        return rng.choice(_FLOATS)
    if isinstance(like, bool | int):
        value = rng.choice(EDGES) if rng.random() < 0.6 else rng.randrange(24)
        value = -value if rng.random() < 0.3 else value
        return max(-(2**63), min(2**63 - 1, value))
    text = rng.choice(_TEXTS)
    return text.encode() if isinstance(like, bytes) else text


def built(rng: random.Random) -> bytes:
    """A file built to cost time, memory or stack."""
    return bytes(rng.choice(_BOMBS)(rng).SerializeToString())


def _size(rng: random.Random) -> int:
    return rng.choice((1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26, 1 << 28, 2**31 - 1, 2**40))


def _line(*values: float, dtype: Any = np.int64) -> Any:
    return np.array(values, dtype)


def _folded(rng: random.Random) -> onnx.ModelProto:
    """A constant result that is far larger than its operands, and operators of it."""
    n, w = _size(rng), rng.choice((1, 1, 4))
    cases: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "ConstantOfShape": ([_line(n, w)], {}),
        "Range": ([np.int64(0), np.int64(n), np.int64(w)], {}),
        "Tile": ([np.ones((1, 1), np.float32), _line(n, w)], {}),
        "Expand": ([np.ones((1, 1), np.float32), _line(n, w)], {}),
        "Pad": ([np.ones((1, 1), np.float32), _line(0, n, 0, w)], {}),
        "OneHot": ([_line(0, 1), np.int64(n), _line(0, 1, dtype=np.float32)], {}),
        "Resize": (
            [np.ones((1, 1, 1, 1), np.float32), None, _line(1, 1, n, w, dtype=np.float32)],
            {"mode": rng.choice(("nearest", "linear", "cubic"))},
        ),
        "EyeLike": ([np.ones((1 << 12, min(n, 1 << 14)), np.bool_)], {}),
        "CumSum": ([np.ones(1 << 16, np.float32), np.int64(0)], {}),
        "MatMul": ([np.ones((1 << 12, 1), np.float32), np.ones((1, 1 << 12), np.float32)], {}),
        "Add": ([np.ones((1 << 13, 1), np.float32), np.ones((1, 1 << 13), np.float32)], {}),
        "Gather": ([np.ones((1, 1 << 10), np.float32), np.zeros(1 << 15, np.int64)], {}),
        "HannWindow": ([np.int64(n)], {}),
    }
    kind = rng.choice(sorted(cases))
    operands, attributes = cases[kind]
    constants = {f"c{i}": np.asarray(v) for i, v in enumerate(operands) if v is not None}
    names = ["" if v is None else f"c{i}" for i, v in enumerate(operands)]
    nodes = [node(kind, names, ["t0"], **attributes)]
    some = rng.choice((0, 1, 8, 30))
    more = rng.choice(("Add", "Concat", "Transpose", "ReduceSum", "Cast"))
    for i in range(some):
        extra = {"axis": 0} if more == "Concat" else {"to": 11} if more == "Cast" else {}
        pair = more in ("Add", "Concat")
        nodes.append(node(more, [f"t{i}"] * (2 if pair else 1), [f"t{i + 1}"], **extra))
    return model(nodes, [value("x", [1])], [f"t{some}"], constants)


def _long(rng: random.Random) -> onnx.ModelProto:
    n = rng.choice((1000, 10_000, 100_000))
    kind, far = rng.choice(("Tanh", "Add", "Relu", "Identity", "Mul", "Cast")), rng.random() < 0.5
    nodes = []
    for i in range(n):
        pair = kind in ("Add", "Mul")
        ins = [f"t{i}", f"t{rng.randrange(i + 1) if far else i}"] if pair else [f"t{i}"]
        nodes.append(node(kind, ins, [f"t{i + 1}"], **({"to": 1} if kind == "Cast" else {})))
    if rng.random() < 0.3:
        nodes.reverse()
    if rng.random() < 0.2:
        nodes[0].input[0] = f"t{n}"
    return model(nodes, [value("t0", [1, 4])], [f"t{n}"])


def _wide(rng: random.Random) -> onnx.ModelProto:
    n, kind = rng.choice((1000, 10_000, 100_000)), rng.choice(("Concat", "Sum", "Max", "Split"))
    if kind == "Split":
        made = node("Split", ["x"], [f"y{i}" for i in range(n)], axis=0)
        return model([made], [value("x", [n])], ["y0", f"y{n - 1}"], opset=13)
    own = rng.random() < 0.3
    ins = [f"x{i}" if own else "x0" for i in range(n)]
    inputs = [value(name, [1, 4]) for name in dict.fromkeys(ins)]
    extra = {"axis": 1} if kind == "Concat" else {}
    return model([node(kind, ins, ["y"], **extra)], inputs, ["y"])


def _graph(nodes: list[Any], outs: list[str], ins: tuple[Any, ...] = ()) -> Any:
    ends = [helper.make_tensor_value_info(n, 1, None) for n in outs]
    return helper.make_graph(nodes, "body", list(ins), ends)


def _branches(rng: random.Random) -> onnx.ModelProto:
    """If inside If: deep, or doubling at each level."""
    depth, doubling = rng.choice((3, 12, 28)), rng.random() < 0.4
    depth = min(depth, 12) if doubling else depth  # protobuf itself decodes 100 messages deep
    inner = [node("Tanh", ["x"], ["y0"])]
    for i in range(depth):
        body = _graph(inner, [f"y{i}"])
        other = body if doubling else _graph([node("Relu", ["x"], [f"z{i}"])], [f"z{i}"])
        inner = [node("If", ["c"], [f"y{i + 1}"], then_branch=body, else_branch=other)]
    return model(inner, [value("x", [1, 4]), value("c", [], np.dtype(np.bool_))], [f"y{depth}"])


def _loops(rng: random.Random) -> onnx.ModelProto:
    """Loops of very many steps, inside each other or with growing results."""
    steps = rng.choice((10, 1000, 10**5, 10**9, 10**12, 2**63 - 1, -1, 0))
    scan = rng.random() < 0.5
    ends = [("i", [], 7), ("ok", [], 9), ("a", [1, 4], 1)]
    kinds = [helper.make_tensor_value_info(n, t, s) for n, s, t in ends]
    constants = {"n": np.int64(steps), "t": np.asarray(True)}
    inner = rng.choice((
        [node("Tanh", ["a"], ["b"])], [node("Concat", ["a", "a"], ["b"], axis=0)],
        [node("Tile", ["a", "two"], ["b"])],
    ))  # fmt: skip
    constants["two"] = _line(2, 1)
    for level in range(rng.choice((0, 0, 1, 4))):
        own = [helper.make_tensor_value_info(f"{n}{level}", t, s) for n, s, t in ends]
        keep = [node("Identity", [f"ok{level}"], [f"k{level}"])]
        step = [node("Tanh", [f"a{level}"], [f"b{level}"])]
        body = _graph([*keep, *step], [f"k{level}", f"b{level}"], tuple(own))
        loop = node("Loop", ["n", "t", "b"], [f"b_{level}"], body=body)
        inner = [*inner, loop, node("Tanh", [f"b_{level}"], [f"d{level}"])]
    outs = ["kept", "b", *(["b2"] if scan else [])]
    nodes = [node("Identity", ["ok"], ["kept"]), *inner, node("Identity", ["b"], ["b2"])]
    body = _graph(nodes, outs, tuple(kinds))
    count = "" if rng.random() < 0.1 else "n"
    loop = node("Loop", [count, "t", "x"], ["y", *(["all"] if scan else [])], body=body)
    return model([loop], [value("x", [1, 4])], ["y"], constants)


def _functions(rng: random.Random) -> onnx.ModelProto:
    """Functions that call themselves, each other in a circle, or 2^n times."""
    n, kind = rng.choice((2, 20, 200)), rng.choice(("self", "circle", "doubling"))
    made = model([node("F0", ["x"], ["y"], domain="own")], [value("x", [1, 4])], ["y"])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for i in range(n):
        to = {"self": i, "circle": (i + 1) % n, "doubling": i + 1}[kind]
        last = to == n
        calls = [
            node("Tanh", [a], [b]) if last else node(f"F{to}", [a], [b], domain="own")
            for a, b in (("a", "b"), ("b", "c"))
        ]
        made.functions.append(helper.make_function("own", f"F{i}", ["a"], ["c"], calls, opsets))
    made.opset_import.append(helper.make_opsetid("own", 1))
    return made


def _window(rng: random.Random) -> onnx.ModelProto:
    edges = (0, 1, 2, -1, 3, 64, 65535, 2**20, 2**31 - 1, 2**40, 2**63 - 1)
    rank, side = rng.choice((1, 2, 2, 3)), rng.choice((1, 7, 64, 1024, 2**14))
    kinds = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "ConvInteger")
    kind = rng.choice(kinds)

    def sizes(count: int) -> list[int]:
        return [rng.choice(edges) if rng.random() < 0.5 else 1 for _ in range(count)]

    attributes: dict[str, Any] = {"strides": sizes(rank), "pads": sizes(2 * rank)}
    channels = rng.choice((1, 3, 64))
    x = value("x", [1, channels, *[side] * rank])
    if "Pool" in kind:
        made = node(kind, ["x"], ["y"], kernel_shape=sizes(rank), **attributes)
        return model([made], [x], ["y"])
    attributes |= {"dilations": sizes(rank), "group": rng.choice((1, channels, 2**31))}
    if kind == "ConvTranspose":
        attributes |= {"output_padding": sizes(rank)}
    w = np.ones([channels, channels, *[rng.choice((1, 3, 7))] * rank], np.float32)
    return model([node(kind, ["x", "w"], ["y"], **attributes)], [x], ["y"], {"w": w})


def _lies(rng: random.Random) -> onnx.ModelProto:
    """Constants that claim other sizes, types or places than they have."""
    made = model([node("Add", ["x", "w"], ["y"])], [value("x", [1, 4])], ["y"])
    w = made.graph.initializer.add(name="w", data_type=rng.choice((1, 1, 6, 8, 9, 16, 22, 99)))
    w.dims.extend(rng.choice(([4], [2**31], [2**40, 2**40], [-4], [2**20, 2**9], [0], [4] * 99)))
    kind = rng.randrange(4)
    if kind == 0:
        w.raw_data = bytes(rng.choice((0, 3, 16, 1 << 20)))
    elif kind == 1:
        w.float_data.extend([1.0] * rng.choice((0, 3, 4, 5)))
    elif kind == 2:
        w.string_data.append(b"x" * 1_000_000)
    else:
        w.data_location = TensorProto.EXTERNAL
        place = rng.choice(
            ("/dev/zero", "../../../etc/passwd", "", ".", "m.onnx", "\0", "a" * 9999)
        )
        for key, text in (("location", place), ("offset", rng.choice(("-1", "0", "9" * 5000))),
                          ("length", rng.choice(("-1", "16", "9" * 5000)))):  # fmt: skip
            entry = w.external_data.add()
            entry.key, entry.value = key, text
    return made


def _quantized(rng: random.Random) -> onnx.ModelProto:
    """Scales and zero points of wrong values, lengths and axes."""
    count = rng.choice((0, 1, 2, 4, 5))
    scale = np.array([rng.choice((*_FLOATS, 0.5, 0.5)) for _ in range(count)], np.float32)
    zero = np.zeros(rng.choice((count, 1, 3)), rng.choice((np.uint8, np.int8, np.int32)))
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=rng.choice((0, 1, -1, 9, -(2**31)))),
        node("DequantizeLinear", ["q", "s", "z"], ["f"], axis=rng.choice((0, 1, -9))),
        node("MatMul", ["f", "w"], ["y"]),
    ]
    w = np.ones((4, 4), np.float32)
    return model(nodes, [value("x", [1, 4])], ["y"], {"s": scale, "z": zero, "w": w})


def _named(rng: random.Random) -> onnx.ModelProto:
    names = ("x" * 2_000_000, "\x00\n\r\x1b[31m", 'a"; int main(){}//', "../../x", "é" * 9999)
    a, b = rng.choice(names), rng.choice(names) + "y"
    kind, inner = rng.choice(("Tanh", a)), rng.choice((a + "_", "t"))
    nodes = [node("Tanh", [a], [inner], name=b), node(kind, [inner], [b])]
    return model(nodes, [value(rng.choice((a, "x")), [1, 4])], [b])


def _large(rng: random.Random) -> onnx.ModelProto:
    """Large activations from small files."""
    n = rng.choice((1 << 14, 1 << 16, 1 << 20, 1 << 28))
    kind = rng.choice((
        "MatMul", "Transpose", "Add", "Softmax", "CumSum", "TopK", "NonZero", "Einsum", "Unique",
        "Det", "GridSample", "NonMaxSuppression", "LSTM", "STFT", "Compress", "Where", "Trilu",
        "EyeLike", "Hardmax", "Dropout",
    ))  # fmt: skip
    shape = [rng.choice((1, n)), rng.choice((n, 46340, 1))]
    lead = [1] * rng.randrange(3)
    constants = {"k": _line(rng.choice((0, 1, n)))}
    ins = {"MatMul": ["x", "x"], "Add": ["x", "x"], "CumSum": ["x", "k"], "TopK": ["x", "k"],
           "Einsum": ["x", "x"], "GridSample": ["x", "x"], "NonMaxSuppression": ["x", "x"],
           "LSTM": ["x", "x", "x"], "STFT": ["x", "k"], "Compress": ["x", "x"],
           "Where": ["x", "x", "x"]}.get(kind, ["x"])  # fmt: skip
    extra = {"Einsum": {"equation": "ij,kl->ijkl"}, "LSTM": {"hidden_size": n}}.get(kind, {})
    outs = ["y", "i"] if kind in ("TopK", "Dropout") else ["y"]
    return model([node(kind, ins, outs, **extra)], [value("x", [*lead, *shape])], outs, constants)


def _sequences(rng: random.Random) -> onnx.ModelProto:
    """Splits and lists of very many parts, or of none."""
    n = rng.choice((0, 1, 1000, 1 << 16, 1 << 24))
    nodes = [
        node("SplitToSequence", ["x", "k"], ["s"], axis=0),
        node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=rng.choice((0, 1))),
    ]
    parts = numpy_helper.to_array(numpy_helper.from_array(_line(rng.choice((0, 1, -1, n)))))
    return model(nodes, [value("x", [n, 2])], ["y"], {"k": parts.reshape(rng.choice(((), (1,))))})


_BOMBS: tuple[Callable[[random.Random], onnx.ModelProto], ...] = (
    _folded, _folded, _folded, _long, _wide, _branches, _loops, _loops, _functions, _window,
    _window, _lies, _quantized, _named, _large, _large, _sequences,
)  # fmt: skip
