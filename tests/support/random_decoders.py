"""GGUF files of random language models of all architectures and block forms, which the package gguf
decodes; without it, models have floats only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.gguf.blocks import FORMS
from tests.support.architectures import ARCHS
from tests.support.decoder_networks import Decoder
from tests.support.gguf_files import BF16, F16, F32, Array, Model, Stored, stored_as

# The f16 scales in a block, by their first bytes.
_SCALES = {
    2: (0,), 3: (0, 2), 6: (0,), 7: (0, 2), 8: (0,), 10: (80, 82), 11: (108,), 12: (0, 2),
    13: (0, 2), 14: (208,), 20: (0,), 23: (0,), 34: (52,), 35: (64,),
}  # fmt: skip
FLOATS = (F32, F16, BF16)
# Families whose heads need not fill the width.
_OWN_SIZE = ("llama", "qwen3", "gemma", "gemma2", "gemma3", "internlm2", "granite")
KINDS = (*FLOATS, *_SCALES)


def random_decoder(name: str, kinds: Sequence[int], scaling: str, seed: int) -> Decoder:
    """Of the family `name`, each matrix in one of `kinds` that its rows allow."""
    rng, arch = np.random.default_rng(seed), ARCHS[name]
    family = name.partition(",")[0]
    blocks = max(FORMS[kind].values for kind in kinds)
    size = int(rng.choice([8, 16, 24, 32, 40, 64]))
    shared = 1 if arch.multi_query else int(rng.integers(1, 4))
    heads = shared * (int(rng.integers(1, 5)) if arch.grouped else 1)
    if arch.multi_query:
        heads = int(rng.integers(2, 6))
    width = blocks * int(rng.integers(1, 3)) if blocks > 1 else 8 * int(rng.integers(2, 12))
    if family not in _OWN_SIZE:  # heads fill the width
        heads, shared = {2: (4, 2), 1: (8, 1), 3: (4, 4)}[shared if arch.grouped else 3]
        shared = 1 if arch.multi_query else shared
        width = max(width // 64, 1) * 64 if width >= 64 else 64
        size = width // heads
    wide = blocks * int(rng.integers(1, 4)) if blocks > 1 else 8 * int(rng.integers(3, 20))
    layers = {"gemma3": 6, "smollm3": 4}.get(family, 2)
    turned = size if not arch.partial else max(2 * (size // 4 // 2), 2)
    about = _about(name, rng, width, wide, heads, shared, size, layers, turned)
    about |= {"linear": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
              "linear, untyped": {"rope.scaling.factor": 4.0},
              "linear, old": {"rope.scale_linear": 4.0},
              "yarn": {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
                       "rope.scaling.original_context_length": 12}}.get(scaling, {})  # fmt: skip
    model = Model(family, {"general.architecture": family})
    model.about |= {f"{family}.{key}": value for key, value in about.items()}
    made = Decoder(arch, model, about, f"{name} {width}x{wide} {heads}/{shared}x{size} {scaling}")
    _Maker(made, rng, kinds).fill(width, wide, heads, shared, size, layers)
    if scaling == "factors":
        factors = np.sort(rng.uniform(1, 8, turned // 2)).astype(np.float32)
        model.tensors["rope_freqs.weight"] = Stored(F32, factors.tobytes(), factors.shape)
        model.values["rope_freqs.weight"] = factors
    return made


def _about(
    name: str,
    rng: np.random.Generator,
    width: int,
    wide: int,
    heads: int,
    shared: int,
    size: int,
    layers: int,
    turned: int,
) -> dict[str, Any]:
    """The metadata, but for how angles are scaled."""
    arch, family = ARCHS[name], name.partition(",")[0]
    about: dict[str, Any] = {
        "context_length": 48, "embedding_length": width, "feed_forward_length": wide,
        "block_count": layers, "attention.head_count": heads, "attention.head_count_kv": shared,
        "attention.layer_norm_epsilon" if arch.centered else "attention.layer_norm_rms_epsilon":
            float(rng.choice([1e-5, 1e-6])),
    }  # fmt: skip
    if arch.rope:
        about["rope.freq_base"] = float(rng.choice([10000.0, 500000.0]))
    if family in _OWN_SIZE:
        about |= {"attention.key_length": size, "attention.value_length": size}
    if arch.rope and (arch.partial or rng.random() < 0.5):
        about["rope.dimension_count"] = turned
    if arch.window[0]:
        about["attention.sliding_window"] = 5
    if arch.caps:
        about |= {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
    if arch.scales:
        about |= {"embedding_scale": 6.0, "residual_scale": 0.4, "logit_scale": 4.0}
        if family == "granite":
            about["attention.scale"] = 0.11
    if family == "minicpm" and rng.random() < 0.5:
        for key in ("embedding_scale", "residual_scale", "logit_scale"):
            del about[key]
    if family == "gptneox":
        about["use_parallel_residual"] = True
    if family == "stablelm":
        about["use_parallel_residual"] = True  # which files have, whatever their network is
    about |= arch.defaults
    return about


@dataclass(frozen=True)
class _Maker:
    made: Decoder
    rng: np.random.Generator
    kinds: Sequence[int]

    def fill(self, width: int, wide: int, heads: int, shared: int, size: int, layers: int) -> None:
        arch, rng = self.made.arch, self.rng
        words, tied = int(rng.integers(33, 120)), arch.tied
        self.matrix("token_embd", words, width)
        if not (rng.random() < 0.5 if tied is None else tied):
            self.matrix("output", words, width)
        if not arch.rope:
            self.matrix("position_embd", 48, width)
        self.norm("output_norm", width)
        rows = {"attn_q": heads * size, "attn_k": shared * size, "attn_v": shared * size}
        for i in range(layers):
            at = f"blk.{i}."
            if arch.before:
                self.norm(f"{at}attn_norm", width)
                if arch.two_norms:
                    self.norm(f"{at}ffn_norm", width)
            if arch.after:
                self.norm(f"{at}post_attention_norm", width)
                self.norm(f"{at}post_ffw_norm", width)
            if arch.fused:
                self.matrix(f"{at}attn_qkv", sum(rows.values()), width, "attn_q" in arch.biases)
            else:
                for part, count in rows.items():
                    self.matrix(f"{at}{part}", count, width, part in arch.biases)
            if arch.heads_normed:
                for part in ("q", "k"):
                    whole = rows[f"attn_{part}"] if arch.heads_normed == "whole" else size
                    self.norm(f"{at}attn_{part}_norm", whole)
            if arch.sub_norms:
                self.norm(f"{at}attn_sub_norm", heads * size)
                self.norm(f"{at}ffn_sub_norm", wide)
            self.matrix(f"{at}attn_output", width, heads * size, "attn_output" in arch.biases)
            if arch.gated and not arch.fused_gate:
                self.matrix(f"{at}ffn_gate", wide, width, "ffn_gate" in arch.biases)
            more = 2 if arch.fused_gate else 1
            self.matrix(f"{at}ffn_up", more * wide, width, "ffn_up" in arch.biases)
            self.matrix(f"{at}ffn_down", width, wide, "ffn_down" in arch.biases)

    def matrix(self, name: str, rows: int, columns: int, bias: bool = False) -> None:
        fitting = [kind for kind in self.kinds if columns % FORMS[kind].values == 0] or [F16]
        kind = int(self.rng.choice(fitting))
        stored, value = stored_in(kind, rows, columns, self.rng)
        self.made.model.tensors[f"{name}.weight"] = stored
        self.made.model.values[f"{name}.weight"] = value
        if bias or (name == "output" and "output" in self.made.arch.biases):
            self.vector(f"{name}.bias", rows, -0.4, 0.4)

    def norm(self, name: str, size: int) -> None:
        self.vector(f"{name}.weight", size, 0.5, 1.5)
        if self.made.arch.norm_bias and "_q_" not in name and "_k_" not in name:
            self.vector(f"{name}.bias", size, -0.3, 0.3)

    def vector(self, name: str, size: int, low: float, high: float) -> None:
        value = self.rng.uniform(low, high, size).astype(np.float32)
        self.made.model.tensors[name] = Stored(F32, value.tobytes(), value.shape)
        self.made.model.values[name] = value


def stored_in(kind: int, rows: int, columns: int, rng: np.random.Generator) -> tuple[Stored, Array]:
    """Random blocks of a form whose values vary by about 1 / sqrt(columns)."""
    target = 1.2 / math.sqrt(columns)
    if kind in FLOATS:
        return stored_as(kind, (rng.standard_normal((rows, columns)) * target).astype(np.float32))
    from gguf import quants
    from gguf.constants import GGMLQuantizationType

    form, known = FORMS[kind], GGMLQuantizationType(kind)
    blocks = rng.integers(0, 256, (rows * columns // form.values, form.bytes), np.uint8)
    if kind == 35:  # codes of 3 are none
        blocks[:, :64] &= ~(blocks[:, :64] & (blocks[:, :64] << 1) & 0xAA)
    scale = 1.0
    for _ in range(2):  # first to know how far the values vary
        for place, at in enumerate(_SCALES[kind]):
            factors = scale * rng.uniform(0.7, 1.3, (len(blocks), 1))
            if place and kind in (3, 7):  # minimums that make the mean about 0
                factors *= -8 if kind == 3 else -16
            blocks[:, at : at + 2] = factors.astype("<f2").view(np.uint8)
        found = quants.dequantize(blocks.reshape(rows, -1), known)
        scale = target / max(float(found.std()), 1e-6)
    return Stored(kind, blocks.tobytes(), (rows, columns)), found
