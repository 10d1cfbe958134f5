"""scripts/smollm.py, with a GGUF file of our own in the shape of a small Llama's."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate

pytest.importorskip("onnx")

_SCRIPT = Path(__file__).parents[2] / "scripts" / "smollm.py"
_HEADS, _SHARED, _SIZE, _WIDE, _CONTEXT = 4, 2, 16, 96, 8
_WIDTH, _KEPT = _HEADS * _SIZE, _SHARED * _SIZE
_BASE, _EPSILON = 10000.0, 1e-5
_WORDS = ["a", "b", "c", "Ġ", "1", "ab", "Ġab", "abc", "Ġabc", ".", "Ã", "©", "Ċ"]
_MERGES = ["a b", "Ġ ab", "ab c", "Ġab c"]
Array = np.ndarray[Any, Any]


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    """An unsigned number, a real one, a text or a list of texts, behind its type."""
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    return (
        struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
    )


def _packed(kind: int, rng: np.random.Generator, shape: tuple[int, int]) -> tuple[bytes, Array]:
    """Random blocks of 32 values in the file's form, and the values [rows, columns] they mean."""
    blocks = shape[0] * shape[1] // 32
    scale = rng.uniform(0.01, 0.03, (blocks, 1)).astype(np.float16)
    if kind == 8:
        quantized = rng.integers(-127, 128, (blocks, 32)).astype(np.int8)
        stored = [
            scale.tobytes() + row.tobytes() for scale, row in zip(scale, quantized, strict=True)
        ]
        values = quantized * scale.astype(np.float32)
        return b"".join(stored), values.reshape(shape)
    least = rng.uniform(-0.2, -0.1, (blocks, 1)).astype(np.float16)
    quantized = rng.integers(0, 16, (blocks, 32)).astype(np.uint8)
    halves = quantized[:, :16] | quantized[:, 16:] << 4
    stored = [
        a.tobytes() + b.tobytes() + row.tobytes()
        for a, b, row in zip(scale, least, halves, strict=True)
    ]
    values = quantized * scale.astype(np.float32) + least.astype(np.float32)
    return b"".join(stored), values.reshape(shape)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Array]]:
    """The file, and what its tensors hold."""
    rng = np.random.default_rng(0)
    shapes = {
        "attn_q": (_WIDTH, _WIDTH), "attn_k": (_KEPT, _WIDTH), "attn_v": (_KEPT, _WIDTH),
        "attn_output": (_WIDTH, _WIDTH), "ffn_gate": (_WIDE, _WIDTH), "ffn_up": (_WIDE, _WIDTH),
        "ffn_down": (_WIDTH, _WIDE),
    }  # fmt: skip
    stored: dict[str, tuple[int, bytes]] = {}
    values: dict[str, Array] = {}
    for name, kind, shape in (
        ("token_embd", 8, (len(_WORDS), _WIDTH)),
        *((f"blk.{i}.{n}", 3, s) for i in range(2) for n, s in shapes.items()),
    ):
        data, values[name] = _packed(kind, rng, shape)
        stored[name] = (kind, data)
    norms = ["output_norm", *(f"blk.{i}.{n}_norm" for i in range(2) for n in ("attn", "ffn"))]
    for name in norms:
        values[name] = rng.uniform(0.5, 1.5, _WIDTH).astype(np.float32)
        stored[name] = (0, values[name].tobytes())
    about: dict[str, Any] = {"general.architecture": "llama"}
    about |= {f"llama.{n}": v for n, v in {
        "block_count": 2, "embedding_length": _WIDTH, "attention.head_count": _HEADS,
        "attention.head_count_kv": _SHARED, "attention.layer_norm_rms_epsilon": _EPSILON,
        "rope.freq_base": _BASE,
    }.items()}  # fmt: skip
    about |= {"tokenizer.ggml.tokens": _WORDS, "tokenizer.ggml.merges": _MERGES}
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(stored), len(about))
    head += b"".join(_text(name) + _value(value) for name, value in about.items())
    body = b""
    for name, (kind, data) in stored.items():
        sizes = values[name].shape[::-1]
        head += _text(f"{name}.weight") + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", kind, len(body))
        body += data + bytes(-len(data) % 32)
    file = tmp_path_factory.mktemp("smollm") / "small.gguf"
    file.write_bytes(head + bytes(-len(head) % 32) + body)
    return file, values


def _normalized(x: Array, scale: Array) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + _EPSILON) * scale


def _rotated(x: Array) -> Array:
    """[tokens, heads, size]: values 2i and 2i + 1 as a complex number, turned by the position."""
    turns = np.arange(len(x))[:, None] * _BASE ** (-np.arange(0, _SIZE, 2) / _SIZE)
    made = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * turns)[:, None]
    return np.stack([made.real, made.imag], -1).reshape(x.shape)


def _logits(w: dict[str, Array], tokens: list[int]) -> Array:
    """All tokens at once: each sees those before it."""
    x, count = w["token_embd"][tokens].astype(np.float64), len(tokens)
    for i in range(2):
        h = _normalized(x, w[f"blk.{i}.attn_norm"])
        q, k, v = (h @ w[f"blk.{i}.attn_{n}"].T for n in "qkv")
        q = _rotated(q.reshape(count, _HEADS, _SIZE))
        k, v = _rotated(k.reshape(count, _SHARED, _SIZE)), v.reshape(count, _SHARED, _SIZE)
        k, v = (np.repeat(t, _HEADS // _SHARED, axis=1) for t in (k, v))
        scores = np.einsum("qhs,khs->hqk", q, k) / np.sqrt(_SIZE)
        scores[:, np.triu(np.ones((count, count), bool), 1)] = -np.inf
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khs->qhs", shares, v).reshape(count, _WIDTH)
        x = x + mixed @ w[f"blk.{i}.attn_output"].T
        h = _normalized(x, w[f"blk.{i}.ffn_norm"])
        gate = h @ w[f"blk.{i}.ffn_gate"].T
        wide = gate / (1 + np.exp(-gate)) * (h @ w[f"blk.{i}.ffn_up"].T)
        x = x + wide @ w[f"blk.{i}.ffn_down"].T
    return _normalized(x, w["output_norm"]) @ w["token_embd"].T


def _script(*args: object) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, str(_SCRIPT), *map(str, args)]
    return subprocess.run(run, capture_output=True, text=True, check=False)


def test_tokens_one_by_one_are_those_of_all_at_once(weights: Any, tmp_path: Path) -> None:
    file, values = weights
    model = tmp_path / "m.onnx"
    done = _script("export", file, "-o", model, "--context", _CONTEXT)
    assert done.returncode == 0, done.stderr
    graph = import_model(model)
    tokens = [6, 2, 2, 9, 0, 6]
    expected = _logits(values, tokens)
    kept = {n: np.zeros((_SHARED, _CONTEXT, _SIZE), np.float32) for n in graph.inputs[2:]}
    place = np.zeros(1, np.int64)
    for token, wanted in zip(tokens, expected, strict=True):
        given = {"token": np.array([token]), "position": place, **kept}
        made = evaluate(graph, given).outputs
        np.testing.assert_allclose(made["logits"][0], wanted, atol=1e-4 * np.abs(wanted).max())
        kept = {name: made[name.replace("past", "present")] for name in kept}
        place = made["next"]


def test_words_are_the_earliest_merges(weights: Any, tmp_path: Path) -> None:
    text = "abc ab11.\u00e9 bca\n"
    done = _script("tokens", weights[0], "-o", tmp_path / "tokens", "--text", text)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "tokens").iterdir(), key=lambda path: int(path.stem))
    found = []
    for path in files:
        with np.load(path) as made:
            assert made["token"].dtype == np.int64 and made["token"].shape == (1,)
            found.append(_WORDS[made["token"][0]])
    expected = ["abc", "Ġab", "1", "1", ".", "Ã", "©", "Ġ", "b", "c", "a", "Ċ"]
    assert found == expected


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.gguf"
    file.write_bytes(b"TFL3" + bytes(40))
    done = _script("export", file, "-o", tmp_path / "m.onnx")
    assert done.returncode != 0 and "expected a GGUF file, found b'TFL3'" in done.stderr
