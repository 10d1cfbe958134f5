"""Small GGUF files of random language models, and what their networks compute, in NumPy."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

F32, F16, Q4_0, Q4_1, Q8_0, BF16 = 0, 1, 2, 3, 8, 30
WORDS, CONTEXT = 96, 24
_EPSILON, _BASE = 1e-5, 10000.0
_HEADS, _SHARED, _SIZE, _WIDE, _LAYERS = 4, 2, 16, 96, 2
_WIDTH = 64


def text_bytes(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value_bytes(value: Any) -> bytes:
    """A value behind its type: a truth, a whole number, a real one, a text, or a list of them."""
    if isinstance(value, list):
        if isinstance(value[0], str):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text_bytes, value))
        kind, form = (6, "f") if isinstance(value[0], float) else (5, "i")
        return struct.pack(f"<IIQ{len(value)}{form}", 9, kind, len(value), *value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text_bytes(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    return (
        struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
    )


@dataclass
class Stored:
    """A tensor as a file has it: the type of its blocks, their bytes, its shape, rows first."""

    kind: int
    data: bytes
    shape: Sequence[int]


def gguf_bytes(about: Mapping[str, Any], tensors: Mapping[str, Stored]) -> bytes:
    """A file of version 3."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(about))
    head += b"".join(text_bytes(name) + value_bytes(value) for name, value in about.items())
    body = b""
    for name, stored in tensors.items():
        sizes = stored.shape[::-1]
        head += text_bytes(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", stored.kind, len(body))
        body += stored.data + bytes(-len(stored.data) % 32)
    return head + bytes(-len(head) % 32) + body


def stored_as(kind: int, value: Array) -> tuple[Stored, Array]:
    """`value` f32 in the form `kind`, and the values that the file then has."""
    if kind == F32:
        return Stored(kind, value.astype("<f4").tobytes(), value.shape), value
    if kind == F16:
        half = value.astype("<f2")
        return Stored(kind, half.tobytes(), value.shape), half.astype(np.float32)
    if kind == BF16:
        upper = (value.astype("<f4").view("<u4") >> 16).astype("<u2")
        return (
            Stored(kind, upper.tobytes(), value.shape),
            (upper.astype("<u4") << 16).view("<f4"),
        )
    most = 127 if kind == Q8_0 else 7
    blocks = value.reshape(-1, 32)
    if kind == Q4_1:
        least = blocks.min(axis=1, keepdims=True).astype("<f2")
        scale = (np.ptp(blocks, axis=1, keepdims=True) / 15).astype("<f2")
        wide = scale.astype(np.float32), least.astype(np.float32)
        raised = np.clip(np.rint((blocks - wide[1]) / wide[0]), 0, 15).astype(np.uint8)
        packed = raised[:, :16] | raised[:, 16:] << 4
        heads = [each.view(np.uint8).reshape(-1, 2) for each in (scale, least)]
        data = np.concatenate([*heads, packed], axis=1)
        return (
            Stored(kind, data.tobytes(), value.shape),
            (raised * wide[0] + wide[1]).reshape(value.shape),
        )
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / most).astype("<f2")
    wide = scale.astype(np.float32)
    codes = np.clip(np.rint(blocks / wide), -most - (kind == Q4_0), most).astype(np.int8)
    packed = codes.view(np.uint8)
    if kind == Q4_0:
        raised = (codes + 8).astype(np.uint8)
        packed = raised[:, :16] | raised[:, 16:] << 4
    data = np.concatenate([scale.view(np.uint8).reshape(-1, 2), packed], axis=1)
    return Stored(kind, data.tobytes(), value.shape), (codes * wide).reshape(value.shape)


@dataclass
class Model:
    """A random model of a family: metadata, tensors as stored, and their values."""

    family: str
    about: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Stored] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        path.write_bytes(gguf_bytes(self.about, self.tensors))
        return path


def random_model(
    family: str = "llama", kind: int = F32, words: int = WORDS, tied: bool = True, seed: int = 0
) -> Model:
    """Two layers; six for Gemma 3, of which one attends to all tokens."""
    rng = np.random.default_rng(seed)
    made, layers = Model(family), 6 if family == "gemma3" else _LAYERS
    about: dict[str, Any] = {
        "context_length": CONTEXT, "embedding_length": _WIDTH, "feed_forward_length": _WIDE,
        "block_count": layers, "attention.head_count": _HEADS,
        "attention.head_count_kv": _SHARED, "attention.key_length": _SIZE,
        "attention.layer_norm_rms_epsilon": _EPSILON, "rope.freq_base": _BASE,
    }  # fmt: skip
    if family in ("gemma2", "gemma3"):
        about["attention.sliding_window"] = 5
    if family == "gemma2":
        about |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    made.about = {"general.architecture": family}
    made.about |= {f"{family}.{name}": value for name, value in about.items()}

    def add(name: str, value: Array, kind: int) -> None:
        made.tensors[name], made.values[name] = stored_as(kind, value.astype(np.float32))

    def matrix(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", rng.standard_normal((rows, columns)) * 1.5 / columns**0.5, kind)

    def vector(name: str, size: int, low: float = 0.5, high: float = 1.5) -> None:
        add(name, rng.uniform(low, high, size), F32)

    matrix("token_embd", words, _WIDTH)
    if not tied:
        matrix("output", words, _WIDTH)
    vector("output_norm.weight", _WIDTH)
    kept = _SHARED * _SIZE
    for i in range(layers):
        at = f"blk.{i}"
        for norm in ("attn_norm", "ffn_norm"):
            vector(f"{at}.{norm}.weight", _WIDTH)
        for part, rows in (("q", _HEADS * _SIZE), ("k", kept), ("v", kept)):
            matrix(f"{at}.attn_{part}", rows, _WIDTH)
            if family == "qwen2":
                vector(f"{at}.attn_{part}.bias", rows, -0.5, 0.5)
        if family in ("qwen3", "gemma3"):
            vector(f"{at}.attn_q_norm.weight", _SIZE)
            vector(f"{at}.attn_k_norm.weight", _SIZE)
        if family in ("gemma2", "gemma3"):
            vector(f"{at}.post_attention_norm.weight", _WIDTH)
            vector(f"{at}.post_ffw_norm.weight", _WIDTH)
        matrix(f"{at}.attn_output", _WIDTH, _HEADS * _SIZE)
        matrix(f"{at}.ffn_gate", _WIDE, _WIDTH)
        matrix(f"{at}.ffn_up", _WIDE, _WIDTH)
        matrix(f"{at}.ffn_down", _WIDTH, _WIDE)
    return made


CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def with_tokenizer(model: Model, chat: bool = True) -> Model:
    """The model with a tokenizer of bytes: its tokens are signs of ASCII, a few pairs, and what the
    chat template has."""
    pieces = [*map(chr, range(33, 33 + WORDS - 9)), "Ġ", "Ċ", "th", "the", "Ġthe"]
    pieces += ["<user>", "<assistant>", "<system>", "<end>"]
    kinds = [1] * (WORDS - 4) + [3] * 4
    model.about |= {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": pieces, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": ["t h", "th e", "Ġ the"],
        "tokenizer.ggml.eos_token_id": WORDS - 1,
    }  # fmt: skip
    if chat:
        model.about["tokenizer.chat_template"] = CHAT_TEMPLATE
    return model


def continued(model: Model, tokens: Sequence[int], count: int) -> list[int]:
    """The most likely `count` tokens behind others."""
    made = list(tokens)
    for _ in range(count):
        made.append(int(logits_of(model, made)[-1].argmax()))
    return made[len(tokens) :]


def logits_of(model: Model, tokens: Sequence[int]) -> Array:
    """All tokens at once, each of which sees those before it: f64 [tokens, words]."""
    w, family, count = model.values, model.family, len(tokens)
    gemma = family.startswith("gemma")
    x = w["token_embd.weight"][list(tokens)].astype(np.float64)
    x = x * np.sqrt(_WIDTH) if gemma else x
    layers = model.about[f"{family}.block_count"]
    for i in range(layers):
        at = f"blk.{i}"
        full = {"gemma2": i % 2 == 1, "gemma3": i % 6 == 5}.get(family, True)
        made = _attention(model, _norm(x, w[f"{at}.attn_norm.weight"]), at, full)
        if f"{at}.post_attention_norm.weight" in w:
            made = _norm(made, w[f"{at}.post_attention_norm.weight"])
        x = x + made
        h = _norm(x, w[f"{at}.ffn_norm.weight"])
        gate = h @ w[f"{at}.ffn_gate.weight"].T
        cubic = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
        gate = gate * (1 + np.tanh(cubic)) / 2 if gemma else gate / (1 + np.exp(-gate))
        made = (gate * (h @ w[f"{at}.ffn_up.weight"].T)) @ w[f"{at}.ffn_down.weight"].T
        if f"{at}.post_ffw_norm.weight" in w:
            made = _norm(made, w[f"{at}.post_ffw_norm.weight"])
        x = x + made
    last = w.get("output.weight", w["token_embd.weight"])
    logits = _norm(x, w["output_norm.weight"]) @ last.T
    assert len(logits) == count
    return 3.0 * np.tanh(logits / 3.0) if family == "gemma2" else logits


def _attention(model: Model, h: Array, at: str, full: bool) -> Array:
    w, count = model.values, len(h)
    parts = {}
    for part, heads in (("q", _HEADS), ("k", _SHARED), ("v", _SHARED)):
        made = h @ w[f"{at}.attn_{part}.weight"].T + w.get(f"{at}.attn_{part}.bias", 0)
        parts[part] = made.reshape(count, heads, _SIZE)
        if f"{at}.attn_{part}_norm.weight" in w:
            parts[part] = _norm(parts[part], w[f"{at}.attn_{part}_norm.weight"])
    q, k = (_turned(parts[part], model.family == "llama") for part in "qk")
    k, v = (np.repeat(t, _HEADS // _SHARED, axis=1) for t in (k, parts["v"]))
    scores = np.einsum("qhs,khs->hqk", q, k) / np.sqrt(_SIZE)
    scores = 5.0 * np.tanh(scores / 5.0) if model.family == "gemma2" else scores
    row, column = np.arange(count)[:, None], np.arange(count)
    scores[:, column > row] = -np.inf
    if not full:
        scores[:, column <= row - 5] = -np.inf
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    mixed = np.einsum("hqk,khs->qhs", shares, v).reshape(count, -1)
    return np.asarray(mixed @ w[f"{at}.attn_output.weight"].T)


def _norm(x: Array, scale: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + _EPSILON) * scale)


def _turned(x: Array, adjacent: bool) -> Array:
    """[tokens, heads, size]: pairs of values as complex numbers, turned by the position."""
    half = _SIZE // 2
    turns = np.exp(1j * np.arange(len(x))[:, None] * _BASE ** (-np.arange(half) / half))[:, None]
    if adjacent:
        made = (x[..., ::2] + 1j * x[..., 1::2]) * turns
        return np.stack([made.real, made.imag], -1).reshape(x.shape)
    made = (x[..., :half] + 1j * x[..., half:]) * turns
    return np.concatenate([made.real, made.imag], axis=-1)
