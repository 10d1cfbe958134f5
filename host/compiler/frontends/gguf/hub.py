"""Converts a folder of Hugging Face with a decoder to a GGUF file: names, the order of rotary
pairs, and values that the two formats define differently."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.gguf.blocks import floats_of
from edgekit.host.compiler.frontends.gguf.hub_tokenizer import tokenizer_values
from edgekit.host.compiler.frontends.gguf.safetensors import BYTES, Stored, read_tensors
from edgekit.host.compiler.frontends.gguf.write import write_gguf
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.sidecars import CONFIG
from edgekit.host.errors import InputError

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "phi3": "llama",
}  # fmt: skip
_KINDS = {"F32": 0, "F16": 1, "BF16": 30}
_F32 = _KINDS["F32"]
_TOP = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    **{f"self_attn.{n}_proj": f"attn_{n}" for n in "qkv"},
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"mlp.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")},
}
_AROUND = {  # of families that also normalize what a part gives
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_FUSED = {"qkv_proj": ("q", "k", "v"), "gate_up_proj": ("gate", "up")}
_LAYER = re.compile(r"model\.layers\.([0-9]{1,4})\.(.+)\.(weight|bias)")
_IGNORED = re.compile(r".*rotary_emb\.inv_freq")


@dataclass(frozen=True, eq=False)
class _Tensor:
    kind: int
    shape: tuple[int, ...]
    bytes: int
    make: Callable[[], Array]


def is_decoder_folder(folder: Path) -> bool:
    """Whether a folder has the weights of a language model that `convert` knows."""
    return _config(folder).get("model_type") in ARCHITECTURES and any(folder.glob("*.safetensors"))


def convert(folder: Path, to: Path) -> None:
    """Writes the model in `folder` to the GGUF file `to`. Raises InputError with one line."""
    config, stored = _config(folder), read_tensors(folder)
    about = _values(config)
    about |= tokenizer_values(folder, config)
    tensors = _tensors(config, stored)
    table = {name: (t.kind, t.shape, t.bytes) for name, t in tensors.items()}
    write_gguf(to, about, table, (t.make() for t in tensors.values()))


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / CONFIG).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of the network."""
    name = ARCHITECTURES[config["model_type"]]
    rope = config.get("rope_parameters") or {}
    theta = config.get("rope_theta", rope.get("rope_theta", 10000.0))
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    trained, heads = (
        _whole(config, "max_position_embeddings"),
        _whole(config, "num_attention_heads"),
    )
    local = name in ("gemma2", "gemma3")
    if isinstance(window, int) and not local:
        trained = min(trained, window)  # beyond it all layers would forget
    width = _whole(config, "hidden_size")
    values: dict[str, Any] = {
        "context_length": trained,
        "embedding_length": width,
        "feed_forward_length": _whole(config, "intermediate_size"),
        "block_count": _whole(config, "num_hidden_layers"),
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads") or heads,
        "attention.key_length": config.get("head_dim") or width // heads,
        "attention.value_length": config.get("head_dim") or width // heads,
        "attention.layer_norm_rms_epsilon": _real(config, "rms_norm_eps"),
        "rope.freq_base": float(theta),
    }
    if local:
        values["attention.sliding_window"] = _whole(config, "sliding_window")
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config.get(key):
            values[key] = _real(config, key)
    scaling = _scaling(config)
    if scaling.get("rope_type") == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": _real(scaling, "factor")}
    return {"general.architecture": name, **{f"{name}.{k}": v for k, v in values.items()}}


def _scaling(config: Mapping[str, Any]) -> dict[str, Any]:
    found = config.get("rope_scaling") or config.get("rope_parameters") or {}
    kind = found.get("rope_type", found.get("type", "default"))
    if kind not in ("default", "linear", "llama3"):
        raise InputError(
            f"{CONFIG}: rope_scaling: expected linear or llama3, found {kind!r:.40}; choose "
            "another model"
        )
    return {**found, "rope_type": kind}


def _whole(config: Mapping[str, Any], key: str) -> int:
    found = config.get(key)
    if type(found) is not int or not 0 < found < 1 << 31:
        raise InputError(f"{CONFIG}: {key}: expected a whole number, found {found!r:.40}")
    return found


def _real(config: Mapping[str, Any], key: str) -> float:
    found: Any = config.get(key)
    if type(found) not in (int, float) or not math.isfinite(found):
        raise InputError(f"{CONFIG}: {key}: expected a number, found {found!r:.40}")
    return float(found)


def _tensors(config: Mapping[str, Any], stored: Mapping[str, Stored]) -> dict[str, _Tensor]:
    name = ARCHITECTURES[config["model_type"]]
    made: dict[str, _Tensor] = {}
    for key, each in _unfused(config, stored).items():
        own = _name(key, name)
        if own is None or (own == "output.weight" and config.get("tie_word_embeddings")):
            continue
        made[own] = _tensor(own, each, name, config)
    scaling = _scaling(config)
    if scaling["rope_type"] == "llama3":
        factors = _llama3_factors(config, scaling)
        data = factors.view(np.uint8)
        made["rope_freqs.weight"] = _Tensor(_F32, factors.shape, data.nbytes, lambda: data)
    return made


def _unfused(config: Mapping[str, Any], stored: Mapping[str, Stored]) -> dict[str, Stored]:
    """Tensors by name; Phi-3's are parts of wider ones, of which they have some rows."""
    if config.get("partial_rotary_factor", 1) != 1:
        found = config["partial_rotary_factor"]
        raise InputError(f"{CONFIG}: partial_rotary_factor: expected 1, found {found!r:.40}")
    made: dict[str, Stored] = {}
    for key, each in stored.items():
        layer, _, name = key.rpartition(".weight")[0].rpartition(".")
        if name not in _FUSED or len(each.shape) != 2:
            made[key] = each
            continue
        rows, at = [each.shape[0] // 2] * 2, 0
        if name == "qkv_proj":
            heads = _whole(config, "num_attention_heads")
            shared = config.get("num_key_value_heads") or heads
            size = config.get("head_dim") or _whole(config, "hidden_size") // heads
            rows = [heads * size, shared * size, shared * size]
        if sum(rows) != each.shape[0]:
            raise InputError(f"{key}: expected {sum(rows)} rows, found {each.shape[0]}")
        for part, count in zip(_FUSED[name], rows, strict=True):
            start = each.start + at * each.shape[1] * BYTES[each.dtype]
            shape = (count, each.shape[1])
            made[f"{layer}.{part}_proj.weight"] = replace(each, shape=shape, start=start)
            at += count
    return made


def _name(key: str, architecture: str) -> str | None:
    """The name of a tensor in GGUF files; None for those that are computed."""
    if own := _TOP.get(key):
        return own
    parts = {**_PARTS, **(_AROUND if architecture in ("gemma2", "gemma3") else {})}
    found = _LAYER.fullmatch(key)
    if found and found[2] in parts:
        return f"blk.{found[1]}.{parts[found[2]]}.{found[3]}"
    if _IGNORED.fullmatch(key):
        return None
    raise InputError(
        f"expected the tensors of a plain {architecture} network, found {key!r:.80} besides; "
        "choose a model without it"
    )


def _tensor(own: str, each: Stored, architecture: str, config: Mapping[str, Any]) -> _Tensor:
    """Vectors become f32. Gemma's norms are stored less 1; Llama's rotary pairs are half a head
    apart, in GGUF files adjacent."""
    kind, data = _KINDS[each.dtype], each.data
    if len(each.shape) == 1:
        more = 1 if architecture.startswith("gemma") and own.endswith("norm.weight") else 0

        def vector() -> Array:
            return (floats_of(data(), each.shape, kind) + np.float32(more)).view(np.uint8)

        return _Tensor(_F32, each.shape, 4 * math.prod(each.shape), vector)
    turned = re.fullmatch(r"blk\.\d+\.attn_([qk])\.weight", own)
    if architecture != "llama" or not turned:
        return _Tensor(kind, each.shape, data().nbytes, data)
    heads = _whole(config, "num_attention_heads")
    heads = heads if turned[1] == "q" else config.get("num_key_value_heads") or heads
    if each.shape[0] % (2 * heads):
        raise InputError(f"{own}: expected rows for {heads} heads, found {each.shape[0]}")

    def adjacent() -> Array:
        rows = data().reshape(heads, 2, each.shape[0] // heads // 2, -1)
        return np.ascontiguousarray(rows.transpose(0, 2, 1, 3)).reshape(-1)

    return _Tensor(kind, each.shape, data().nbytes, adjacent)


def _llama3_factors(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> Array:
    """By how much Llama 3.1 divides the angles: long waves by the factor, short ones not."""
    size = config.get("head_dim") or _whole(config, "hidden_size") // _whole(
        config, "num_attention_heads"
    )
    base = config.get("rope_theta", scaling.get("rope_theta", 10000.0))
    waves = 2 * math.pi * float(base) ** (np.arange(size // 2) / (size // 2))
    factor, low, high = (_real(scaling, key) for key in (
        "factor", "low_freq_factor", "high_freq_factor"
    ))  # fmt: skip
    trained = _whole(scaling, "original_max_position_embeddings")
    smooth = np.clip((trained / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
