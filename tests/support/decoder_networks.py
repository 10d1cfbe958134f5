"""What the networks of `random_decoders` compute, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.architectures import Arch
from tests.support.gguf_files import Array, Model


@dataclass
class Decoder:
    """A random model, and what its network needs to know."""

    arch: Arch
    model: Model
    about: dict[str, Any]
    said: str

    def of(self, name: str) -> Array | None:
        return self.model.values.get(name)


def logits_of(made: Decoder, tokens: Sequence[int]) -> Array:
    """All tokens at once, each of which sees those before it: f64 [tokens, words]."""
    return _Network(made, len(tokens)).logits(tokens)


class _Network:
    def __init__(self, made: Decoder, count: int) -> None:
        self._made, self._arch, about = made, made.arch, made.about
        self._heads, self._shared = about["attention.head_count"], about["attention.head_count_kv"]
        self._width, self._layers = about["embedding_length"], about["block_count"]
        self._size = about.get("attention.key_length", self._width // self._heads)
        self._turned = about.get("rope.dimension_count", self._size)
        self._epsilon = next(v for k, v in about.items() if k.endswith("epsilon"))
        self._count = count

    def logits(self, tokens: Sequence[int]) -> Array:
        arch, about, family = self._arch, self._made.about, self._made.model.family
        minicpm = family == "minicpm"
        x = self._w("token_embd.weight")[list(tokens)].astype(np.float64)
        x = x * math.sqrt(self._width) if arch.scaled else x
        x = x * about.get("embedding_scale", 12.0 if minicpm else 1.0)
        if not arch.rope:
            x = x + self._w("position_embd.weight")[: self._count]
        parts = about.get("residual_scale", 1.4 / math.sqrt(self._layers) if minicpm else 1.0)
        for layer in range(self._layers):
            x = self._layer(x, layer, parts)
        x = self._norm(x, "output_norm")
        name = "output" if self._has("output.weight") else "token_embd"
        made = self._product(x, name)
        if family == "granite" or (minicpm and "logit_scale" in about):
            made = made / about["logit_scale"]
        elif minicpm:
            made = made * 256 / self._width
        else:
            made = made * about.get("logit_scale", 1.0)
        cap = about.get("final_logit_softcapping")
        return cap * np.tanh(made / cap) if cap else made

    def _layer(self, x: Array, layer: int, parts: float) -> Array:
        arch, at = self._arch, f"blk.{layer}."
        read = self._norm(x, f"{at}attn_norm") if arch.before else x
        made = self._attention(read, layer)
        if arch.after:
            made = self._norm(made, f"{at}post_attention_norm")
        after = x + parts * made
        if arch.parallel:
            read = self._norm(x, f"{at}ffn_norm") if arch.two_norms else read
        else:
            read = self._norm(after, f"{at}ffn_norm") if arch.before else after
        made = self._fed(read, at)
        if arch.after:
            made = self._norm(made, f"{at}post_ffw_norm")
        return after + parts * made

    def _fed(self, x: Array, at: str) -> Array:
        arch = self._arch
        up = self._product(x, f"{at}ffn_up")
        if arch.fused_gate:
            gate, up = np.split(up, 2, axis=1)
        else:
            gate = self._product(x, f"{at}ffn_gate") if arch.gated else up
        made = _act(gate, arch.act) * (up if arch.gated else 1)
        if arch.sub_norms:
            made = self._norm(made, f"{at}ffn_sub_norm")
        return self._product(made, f"{at}ffn_down")

    def _attention(self, x: Array, layer: int) -> Array:
        arch, at, about = self._arch, f"blk.{layer}.", self._made.about
        heads, shared, size, count = self._heads, self._shared, self._size, self._count
        if arch.fused:
            whole = self._product(x, f"{at}attn_qkv")
            q, k, v = np.split(whole, (heads * size, (heads + shared) * size), axis=1)
        else:
            q, k, v = (self._product(x, f"{at}attn_{part}") for part in "qkv")
        if arch.heads_normed == "whole":
            q, k = self._norm(q, f"{at}attn_q_norm"), self._norm(k, f"{at}attn_k_norm")
        q, k, v = (each.reshape(count, -1, size) for each in (q, k, v))
        if arch.heads_normed == "head":
            q, k = self._norm(q, f"{at}attn_q_norm"), self._norm(k, f"{at}attn_k_norm")
        every, first = arch.window
        local = every > 0 and layer % every != first
        if arch.rope and not (arch.unturned and (layer + 1) % arch.unturned == 0):
            q, k = self._turn(q, local), self._turn(k, local)
        k, v = (np.repeat(each, heads // shared, axis=1) for each in (k, v))
        scale = about.get("attention.scale", 1 / math.sqrt(size))
        scores = np.einsum("qhs,khs->hqk", q, k) * scale
        cap = about.get("attn_logit_softcapping")
        scores = cap * np.tanh(scores / cap) if cap else scores
        row, column = np.arange(count)[:, None], np.arange(count)
        seen = column <= row
        if local:
            seen &= column > row - about["attention.sliding_window"]
        scores = np.where(seen, scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        mixed = np.einsum("hqk,khs->qhs", shares, v).reshape(count, -1)
        if arch.sub_norms:
            mixed = self._norm(mixed, f"{at}attn_sub_norm")
        return self._product(mixed, f"{at}attn_output")

    def _turn(self, x: Array, local: bool) -> Array:
        """One pair of values after the other."""
        about, n, made = self._made.about, self._turned, x.copy()
        gain = 1.0
        for i in range(n // 2):
            base = 10000.0 if local and self._made.model.family == "gemma3" else (
                about["rope.freq_base"])  # fmt: skip
            angle = base ** (-2 * i / n)
            factors = self._made.of("rope_freqs.weight")
            factor = about.get("rope.scaling.factor", about.get("rope.scale_linear", 1.0))
            if local and self._made.model.family == "gemma3":
                pass
            elif factors is not None:
                angle /= float(factors[i])
            elif about.get("rope.scaling.type") == "yarn":
                angle, gain = self._yarn(angle, factor, i, base)
            else:
                angle /= factor
            turns = np.arange(self._count) * angle
            cos, sin = gain * np.cos(turns)[:, None], gain * np.sin(turns)[:, None]
            a, b = (2 * i, 2 * i + 1) if self._arch.rope == "norm" else (i, i + n // 2)
            made[..., a] = x[..., a] * cos - x[..., b] * sin
            made[..., b] = x[..., a] * sin + x[..., b] * cos
        return made

    def _yarn(self, angle: float, factor: float, i: int, base: float) -> tuple[float, float]:
        n, first = self._turned, self._made.about["rope.scaling.original_context_length"]

        def place(turns: float) -> float:
            return n * math.log(first / (turns * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), n - 1)
        share = 1 - min(max((i - low) / max(high - low, 0.001), 0), 1)
        mixed = angle / factor * (1 - share) + angle * share
        return mixed, 1 + 0.1 * math.log(factor)

    def _product(self, x: Array, name: str) -> Array:
        made = x @ self._w(f"{name}.weight").T.astype(np.float64)
        bias = self._made.of(f"{name}.bias")
        return np.asarray(made if bias is None else made + bias)

    def _norm(self, x: Array, name: str) -> Array:
        x = x - x.mean(-1, keepdims=True) if self._arch.centered else x
        made = x / np.sqrt((x * x).mean(-1, keepdims=True) + self._epsilon)
        bias = self._made.of(f"{name}.bias")
        return np.asarray(made * self._w(f"{name}.weight") + (0 if bias is None else bias))

    def _has(self, name: str) -> bool:
        return self._made.of(name) is not None

    def _w(self, name: str) -> Array:
        found = self._made.of(name)
        assert found is not None, name
        return found


def _act(x: Array, act: str) -> Array:
    if act == "silu":
        return np.asarray(x / (1 + np.exp(-x)))
    if act == "erf":
        return np.asarray(x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2)
    return np.asarray(x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2)
