"""How the networks of language models differ by the architecture that GGUF files name, as llama.cpp
has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Arch:
    """How an architecture differs from Llama's. `rope`: adjacent pairs ("norm"), halves ("neox") or
    none. `biases`: of which products. `heads_normed`: "head", "whole" or nothing."""

    rope: str = "norm"
    act: str = "silu"
    gated: bool = True
    centered: bool = False
    norm_bias: bool = False
    biases: Sequence[str] = ()
    parallel: bool = False
    two_norms: bool = True
    heads_normed: str = ""
    after: bool = False
    before: bool = True
    scaled: bool = False
    window: tuple[int, int] = (0, 0)  # one layer in so many is global, that one
    caps: bool = False
    partial: bool = False
    fused: bool = False
    fused_gate: bool = False
    multi_query: bool = False
    grouped: bool = True
    scales: bool = False
    tied: bool | None = None  # None: either
    unturned: int = 0
    sub_norms: bool = False
    defaults: Mapping[str, float] = field(default_factory=dict)


_QKV = ("attn_q", "attn_k", "attn_v")
_ALL = (*_QKV, "attn_output", "ffn_up", "ffn_down")
ARCHS = {
    "llama": Arch(),
    "llama, biases": Arch(biases=(*_ALL, "ffn_gate")),
    "internlm2": Arch(biases=_QKV),
    "ernie4_5": Arch(),
    "minicpm": Arch(scales=True),
    "granite": Arch(scales=True),
    "smollm3": Arch(unturned=4, tied=True),
    "qwen2": Arch(rope="neox", biases=_QKV),
    "qwen3": Arch(rope="neox", heads_normed="head"),
    "exaone": Arch(rope="neox"),
    "gemma": Arch(rope="neox", act="gelu", scaled=True, tied=True),
    "gemma2": Arch(rope="neox", act="gelu", scaled=True, after=True, window=(2, 1), caps=True,
                   tied=True),
    "gemma3": Arch(rope="neox", act="gelu", scaled=True, after=True, window=(6, 5),
                   heads_normed="head", tied=True),
    "olmo2": Arch(rope="neox", before=False, after=True, heads_normed="whole", tied=False),
    "phi2": Arch(rope="neox", act="gelu", gated=False, centered=True, norm_bias=True,
                 biases=(*_ALL, "output"), parallel=True, two_norms=False, partial=True,
                 tied=False),
    "phi2, fused": Arch(rope="neox", act="gelu", gated=False, centered=True, norm_bias=True,
                        biases=(*_ALL, "output"), parallel=True, two_norms=False, partial=True,
                        fused=True, grouped=False, tied=False),
    "phi3": Arch(rope="neox", fused=True, fused_gate=True, partial=True, tied=False),
    "stablelm": Arch(rope="neox", centered=True, norm_bias=True, biases=_QKV, partial=True,
                     tied=False),
    "stablelm, parallel": Arch(rope="neox", centered=True, norm_bias=True, partial=True,
                               parallel=True, two_norms=False, tied=False),
    "gpt2": Arch(rope="", act="gelu", gated=False, centered=True, norm_bias=True, biases=_ALL,
                 fused=True, grouped=False),
    "gptneox": Arch(rope="neox", act="erf", gated=False, centered=True, norm_bias=True,
                    biases=_ALL, parallel=True, partial=True, fused=True, grouped=False,
                    tied=False),
    "falcon": Arch(rope="neox", act="erf", gated=False, centered=True, norm_bias=True,
                   parallel=True, two_norms=False, fused=True, multi_query=True),
    "starcoder2": Arch(rope="neox", act="gelu", gated=False, centered=True, norm_bias=True,
                       biases=_ALL),
    "command-r": Arch(centered=True, parallel=True, two_norms=False, tied=True,
                      defaults={"logit_scale": 0.0625}),
    "bitnet": Arch(rope="neox", sub_norms=True, tied=True),
}  # fmt: skip
SCALINGS = ("", "linear", "linear, untyped", "linear, old", "yarn", "factors")
