"""Hostile TensorFlow Lite files: fields of valid files with hostile values, and files built to
cost time or memory."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import tflite
from flatbuffers.builder import OffsetArithmeticError

from tests.compiler.frontends.conftest import Files
from tests.support.hostile_files import EDGES
from tests.support.litert_pairs import TABLES, contents

_FILES = Files()
_OPS = sorted(n for n in vars(tflite.BuiltinOperator) if n[0] != "_")
_TYPES = [n for n in vars(tflite.TensorType) if n[0] != "_"]
_DIMS = (0, 1, 2, 3, 7, -1, 255, 65535, 65536, 2**20, 2**24, 2**31 - 1, -(2**31))
_SCALES = (0.0, -1.0, 1e-38, 1e38, float("inf"), float("nan"), 0.5)
_OPTIONS = sorted(n for n in vars(tflite.BuiltinOptions) if n[0] != "_" and n != "NONE")

Span = tuple[int, int]  # position and size of a number in the file


def changed_fields(rng: random.Random, content: bytes) -> bytes:
    """A copy of a valid file with hostile values in one to three of its fields."""
    data, fields = bytearray(content), sorted(_fields(content))
    for _ in range(rng.randint(1, 3)):
        at, size = rng.choice(fields)
        if rng.random() < 0.2:
            source = rng.choice(fields)[0]
            data[at : at + size] = data[source : source + size]
        elif size == 4 and rng.random() < 0.2:
            struct.pack_into("<f", data, at, rng.choice(_SCALES))
        else:
            value = rng.choice(EDGES) if rng.random() < 0.6 else rng.randrange(16)
            value = -value if rng.random() < 0.15 else value
            data[at : at + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _fields(content: bytes) -> set[Span]:
    """Every slot of the tables that a reader visits, and the numbers of their vectors."""
    model = tflite.Model.GetRootAs(content, 0)
    found = {*_slots(content, model._tab)}
    for i in range(model.OperatorCodesLength()):
        found |= {*_slots(content, model.OperatorCodes(i)._tab)}
    for i in range(model.BuffersLength()):
        found |= {*_slots(content, model.Buffers(i)._tab)}
    for i in range(model.SubgraphsLength()):
        graph = model.Subgraphs(i)
        found |= {*_slots(content, graph._tab)}
        for t in range(graph.TensorsLength()):
            found |= {*_slots(content, graph.Tensors(t)._tab)}
            if quant := graph.Tensors(t).Quantization():
                found |= {*_slots(content, quant._tab)}
            if sparse := graph.Tensors(t).Sparsity():
                found |= {*_slots(content, sparse._tab)}
        for o in range(graph.OperatorsLength()):
            found |= {*_slots(content, graph.Operators(o)._tab)}
            if options := graph.Operators(o).BuiltinOptions():
                found |= {*_slots(content, options)}
    return found


def _slots(content: bytes, table: Any) -> Iterator[Span]:
    """The slots of a table; a slot that may be an offset also gives what it points to."""
    start = table.Pos
    vtable = start - struct.unpack_from("<i", content, start)[0]
    size, width = struct.unpack_from("<HH", content, vtable)
    places = sorted({*struct.unpack_from(f"<{size // 2 - 2}H", content, vtable + 4)} - {0})
    for place, end in pairwise([*places, width]):
        at, bytes_ = start + place, min(end - place, 8)
        yield at, bytes_ if bytes_ in (1, 2, 4, 8) else 1
        if bytes_ < 4:
            continue
        to = at + struct.unpack_from("<I", content, at)[0]
        if to % 4 == 0 and at < to < len(content) - 4:
            count = struct.unpack_from("<I", content, to)[0]
            if count < 64 and to + 4 + 4 * count <= len(content):  # a vector: length, first values
                yield from ((to + 4 * i, 4) for i in range(min(count, 8) + 1))


def drawn(rng: random.Random) -> bytes:
    """One operator: what LiteRT runs with a few hostile fields, or operands of no sense."""
    if rng.random() < 0.3:
        return _nonsense(rng)
    content = rng.choice(_singles())
    return changed_fields(rng, content) if rng.random() < 0.9 else content


@cache
def _singles() -> list[bytes]:
    return [content for table in TABLES for content in contents(table, _FILES)]


def _nonsense(rng: random.Random) -> bytes:
    """One operator of any kind with operands, options and quantization that make no sense."""
    tensors = [_tensor(rng, f"t{i}") for i in range(rng.randint(1, 6))]
    outs = [_FILES.tensor(f"y{i}", [1], rng.choice(_TYPES)) for i in range(rng.randint(1, 2))]
    ins = [rng.randrange(-1, len(tensors)) for _ in range(rng.randint(0, 5))]
    places = [len(tensors) + i for i in range(len(outs))]
    kind = rng.choice(_OPS)
    compact = "".join(part.capitalize() for part in kind.split("_"))
    likely = [n for n in _OPTIONS if n.lower() == f"{compact}options".lower()]
    options = (likely or _OPTIONS)[0] if rng.random() < 0.6 else rng.choice(["", *_OPTIONS])
    names = [n[len(options) + 3 :] for n in vars(tflite) if n.startswith(f"{options}Add")]
    values = {n: rng.choice((0, 1, 1, 2, 3, -1, 100, 2**31 - 1)) for n in names}
    op = _FILES.op(kind, ins, places, options, values if rng.random() < 0.7 else {})
    inputs = [i for i, t in enumerate(tensors) if t.data is None]
    graph = _FILES.graph([*tensors, *outs], [op], inputs, places)
    try:
        return bytes(_FILES.model(*[graph] * rng.choice((1, 1, 1, 3))))
    except (TypeError, OffsetArithmeticError):
        plain = _FILES.op(kind, ins, places)  # a value that this option cannot hold
        return bytes(_FILES.model(_FILES.graph([*tensors, *outs], [plain], inputs, places)))


def _tensor(rng: random.Random, name: str) -> Any:
    kind, small = rng.choice(("FLOAT32", "INT32", "INT8", "UINT8", "INT64", rng.choice(_TYPES))), 4
    shape = [rng.choice((1, 2, 3, 4, 8)) for _ in range(rng.randint(0, small))]
    data = None
    if rng.random() < 0.5:
        values = [rng.choice(_DIMS) for _ in range(int(np.prod(shape)))]
        data = np.array(values, np.int64).astype({"FLOAT32": "f4", "INT64": "i8"}.get(kind, "i4"))
    elif rng.random() < 0.3:
        shape = [rng.choice(_DIMS) for _ in range(rng.randint(0, 6))]
    count = rng.choice((0, 0, 1, 1, 2, shape[-1] % 16 if shape else 1))
    scales = [rng.choice(_SCALES) if rng.random() < 0.3 else 0.5 for _ in range(count)]
    zeros = [rng.choice((0, 0, 3, -129, 2**31, -(2**63))) for _ in scales]
    return _FILES.tensor(name, shape, kind, data, scales, zeros, rng.randint(-1, 3))


def built(rng: random.Random) -> bytes:
    """A file built to cost time, memory or stack."""
    return bytes(rng.choice(_BOMBS)(rng))


def _ints(*values: int) -> Any:
    return np.array(values, np.int32)


def _size(rng: random.Random) -> int:
    return rng.choice((1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26, 1 << 28, 2**31 - 1))


def _folded(rng: random.Random) -> Any:
    """A constant result that is far larger than its operands."""
    n, f = _size(rng), _FILES
    one = f.tensor("one", [1, 1], data=np.ones((1, 1), np.float32))
    steps = {
        "FILL": (_ints(n), np.float32(1)),
        "TILE": ("one", _ints(n, rng.choice((1, 4)))),
        "BROADCAST_TO": ("one", _ints(n, rng.choice((1, 4)))),
        "RANGE": (_ints(0), _ints(n), _ints(1)),
        "ONE_HOT": (_ints(0, 1), _ints(n), np.float32(1), np.float32(0)),
        "PAD": ("one", _ints(0, n, 0, 3)),
    }
    kind = rng.choice(sorted(steps))
    tensors, ins = [one], []
    for i, value in enumerate(steps[kind]):
        if isinstance(value, str):
            ins.append(0)
            continue
        scalar = kind != "FILL" or i == 1
        shape = [] if scalar and value.size == 1 and kind in ("FILL", "RANGE", "ONE_HOT") else None
        stored = "FLOAT32" if value.dtype == np.float32 else "INT32"
        tensors.append(f.tensor(f"c{i}", value.shape if shape is None else shape, stored, value))
        ins.append(len(tensors) - 1)
    out = len(tensors)
    stored = "INT32" if kind == "RANGE" else "FLOAT32"
    ends = [f.tensor(f"y{i}", [1], stored) for i in range(9)]
    more = [f.op("ADD", [out + i, out + i], [out + i + 1], "AddOptions") for i in range(8)]
    some = rng.choice((0, 1, 8))
    ops = [f.op(kind, ins, [out]), *more[:some]]
    return f.model(f.graph([*tensors, *ends], ops, [], [out + some]))


def _long(rng: random.Random) -> Any:
    """Very many operators, with a chain or a fan of operands."""
    n, f = rng.choice((1000, 10_000, 60_000)), _FILES
    tensors = [f.tensor("x", [1, 4]), *(f.tensor(f"t{i}", [1, 4]) for i in range(n))]
    kind, far = rng.choice(("TANH", "ADD", "LOGISTIC", "MUL")), rng.random() < 0.5
    pair = kind in ("ADD", "MUL")
    ops = [
        f.op(kind, [i, rng.randrange(i + 1) if far else i] if pair else [i], [i + 1])
        for i in range(n)
    ]
    return f.model(f.graph(tensors, ops, [0], [n]))


def _wide(rng: random.Random) -> Any:
    """Very many operands of one operator, or results of it."""
    n, f = rng.choice((1000, 10_000, 60_000)), _FILES
    kind = rng.choice(("CONCATENATION", "PACK", "ADD_N", "SPLIT", "UNPACK"))
    if kind in ("SPLIT", "UNPACK"):
        ends = [f.tensor(f"y{i}", [1]) for i in range(n)]
        axis = f.tensor("axis", [], "INT32", _ints(0))
        name = {"SPLIT": "SplitOptions", "UNPACK": "UnpackOptions"}[kind]
        field = {"NumSplits" if kind == "SPLIT" else "Num": n}
        ins = [1, 0] if kind == "SPLIT" else [0]
        op = f.op(kind, ins, [*range(2, n + 2)], name, field)
        return f.model(f.graph([f.tensor("x", [n]), axis, *ends], [op], [0], [2, n + 1]))
    tensors = [f.tensor("x", [1, 4]), f.tensor("y", [1, 4])]
    options = {"CONCATENATION": "ConcatenationOptions", "PACK": "PackOptions"}.get(kind, "")
    fields = {"ValuesCount": n} if kind == "PACK" else {}
    return f.model(f.graph(tensors, [f.op(kind, [0] * n, [1], options, fields)], [0], [1]))


def _nested(rng: random.Random) -> Any:
    """Subgraphs that call each other: deep, in a circle, or 2^n times."""
    n, f = rng.choice((3, 30, 300, 3000)), _FILES
    shape = rng.choice(("chain", "circle", "doubling"))
    kind = rng.choice(("IF", "WHILE", "CALL"))
    graphs = []
    for i in range(n):
        to = i + 1 if i + 1 < n else (1 if shape == "circle" else i)
        tensors = [f.tensor("c", [], "BOOL"), *(f.tensor(f"x{j}", [1, 4]) for j in range(3))]
        if i + 1 == n and shape != "circle":
            ops = [f.op("TANH", [1], [2]), f.op("TANH", [2], [3])]
        else:
            ops = [_call(f, kind, to, 1, 2), _call(f, kind, to, 2, 3)]
            ops = ops if shape == "doubling" else [ops[0], f.op("TANH", [2], [3])]
        graphs.append(f.graph(tensors, ops, [0, 1], [0, 3] if kind == "WHILE" and i else [3]))
    return f.model(*graphs)


def _call(f: Files, kind: str, to: int, source: int, out: int) -> Any:
    if kind == "IF":
        both = {"ThenSubgraphIndex": to, "ElseSubgraphIndex": to}
        return f.op(kind, [0, 0, source], [out], "IfOptions", both)
    if kind == "WHILE":
        both = {"CondSubgraphIndex": to, "BodySubgraphIndex": to}
        return f.op(kind, [0, source], [0, out], "WhileOptions", both)
    return f.op(kind, [0, source], [out], "CallOptions", {"Subgraph": to})


def _window(rng: random.Random) -> Any:
    """Windows, strides and dilations at the limits."""
    f, kind = _FILES, rng.choice(("CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D", "AVERAGE_POOL_2D"))
    edges = (0, 1, 2, -1, 3, 64, 65535, 2**20, 2**31 - 1)
    side = rng.choice((1, 2, 7, 64, 1024, 16384))
    x = f.tensor("x", [1, side, side, rng.choice((1, 3, 4096))])
    at = {n: rng.choice(edges) for n in ("StrideW", "StrideH")}
    at["Padding"] = rng.choice((0, 1))
    if "POOL" in kind:
        at |= {n: rng.choice(edges) for n in ("FilterWidth", "FilterHeight")}
        op = f.op(kind, [0], [1], "Pool2DOptions", at)
        return f.model(f.graph([x, f.tensor("y", [1])], [op], [0], [1]))
    at |= {n: rng.choice(edges) for n in ("DilationWFactor", "DilationHFactor")}
    if kind == "DEPTHWISE_CONV_2D":
        at["DepthMultiplier"] = rng.choice(edges)
    shape = [rng.choice((1, 8, 2**20)), rng.choice((1, 3, 99)), 3, x.shape[-1]]
    count = int(np.prod(shape))
    data = np.zeros(count, np.float32) if count < 1 << 16 else np.zeros(4, np.float32)
    options = "Conv2DOptions" if kind == "CONV_2D" else "DepthwiseConv2DOptions"
    tensors = [x, f.tensor("w", shape, data=data), f.tensor("y", [1])]
    return f.model(f.graph(tensors, [f.op(kind, [0, 1, -1], [2], options, at)], [0], [2]))


def _named(rng: random.Random) -> Any:
    """Names of megabytes, of control characters or of C."""
    names = ("x" * 2_000_000, "\x00\n\r\x1b[31m", 'a"; int main(){}//', "../../x", "é" * 9999, "")
    a, b, f = rng.choice(names), rng.choice(names) + "y", _FILES
    tensors = [f.tensor(a, [1, 4]), f.tensor(b, [1, 4]), f.tensor(a, [1, 4])]
    code = rng.choice(("TANH", "CUSTOM:" + a))
    return f.model(f.graph(tensors, [f.op(code, [0], [1]), f.op("TANH", [1], [2])], [0], [2]))


def _large(rng: random.Random) -> Any:
    """Large activations: a product, a reshape or an elementwise operator of them."""
    f, n = _FILES, rng.choice((1 << 14, 1 << 16, 1 << 20, 1 << 28))
    kind = rng.choice(("BATCH_MATMUL", "TRANSPOSE", "ADD", "SOFTMAX", "CUMSUM", "TOPK_V2"))
    x, k = [rng.choice((1, n)), rng.choice((n, 46340))], f.tensor("k", [], "INT32", _ints(0))
    if kind == "TRANSPOSE":
        k = f.tensor("k", [2], "INT32", _ints(1, 0))
    ins = [0, 0] if kind in ("ADD", "BATCH_MATMUL") else [0] if kind == "SOFTMAX" else [0, 1]
    tensors = [f.tensor("x", x), k, f.tensor("y", x), f.tensor("i", x, "INT32")]
    outs = [2, 3] if kind == "TOPK_V2" else [2]
    options = {"BATCH_MATMUL": "BatchMatMulOptions", "SOFTMAX": "SoftmaxOptions"}.get(kind, "")
    fields = {"AdjY": True} if kind == "BATCH_MATMUL" else {"Beta": 1.0} if options else {}
    return f.model(f.graph(tensors, [f.op(kind, ins, outs, options, fields)], [0], outs))


_BOMBS: tuple[Callable[[random.Random], Any], ...] = (
    _folded, _folded, _long, _wide, _nested, _window, _window, _named, _large,
)  # fmt: skip
