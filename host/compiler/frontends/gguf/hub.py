"""Converts a folder of Hugging Face with a decoder to a GGUF file: names, the order of rotary
pairs, and values that the two formats define differently."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.frontends.gguf.blocks import floats_of
from edgekit.host.compiler.frontends.gguf.hub_config import (
    base_of,
    heads_of,
    real,
    scaling_of,
    values_of,
    whole,
)
from edgekit.host.compiler.frontends.gguf.hub_names import ARCHITECTURES, own_name
from edgekit.host.compiler.frontends.gguf.hub_ternary import (
    BLOCK,
    BLOCK_BYTES,
    METHOD,
    SCALE,
    as_blocks,
    factor_of,
    unpacked,
)
from edgekit.host.compiler.frontends.gguf.hub_tokenizer import tokenizer_values
from edgekit.host.compiler.frontends.gguf.safetensors import Stored, read_tensors, unknown_type
from edgekit.host.compiler.frontends.gguf.write import write_gguf
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.sidecars import CONFIG
from edgekit.host.errors import InputError

_KINDS = {"F32": 0, "F16": 1, "BF16": 30}
_F32, _TQ2_0 = _KINDS["F32"], 35
_APART = ("llama", "mistral", "granite", "smollm3")  # with rotary pairs half a head apart


@dataclass(frozen=True, eq=False)
class _Tensor:
    kind: int
    shape: tuple[int, ...]
    bytes: int
    make: Callable[[], Array]


def is_decoder_folder(folder: Path, generates: bool | None = None) -> bool:
    """Whether a folder has the weights of a language model that `convert` knows. Raises InputError
    for one that is to make texts and is of another architecture. `generates`: None if it is if the
    folder says so."""
    config = _config(folder)
    kind, classes = config.get("model_type"), config.get("architectures")
    if kind is None or not any(folder.glob("*.safetensors")):
        return False
    if generates is None and isinstance(classes, list):
        generates = any(str(name).endswith("ForCausalLM") for name in classes)
    if generates and kind not in ARCHITECTURES:
        raise InputError(
            f"{folder / CONFIG}: model_type: expected one of {', '.join(ARCHITECTURES)}, found "
            f"{kind!r:.40}; choose a model of one of these, or compile the network as it is, "
            "which keeps no tokens: --task none"
        )
    return kind in ARCHITECTURES


def convert(folder: Path, to: Path) -> None:
    """Writes the model in `folder` to the GGUF file `to`. Raises InputError with one line."""
    config, stored = _config(folder), read_tensors(folder)
    about = values_of(config)
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


def _tensors(config: Mapping[str, Any], stored: Mapping[str, Stored]) -> dict[str, _Tensor]:
    name = ARCHITECTURES[config["model_type"]]
    made: dict[str, _Tensor] = {}
    for key, each in stored.items():
        scale = stored.get(key.removesuffix(".weight") + SCALE)
        own = None if key.endswith(SCALE) else own_name(key, name)
        if own is None or (own == "output.weight" and config.get("tie_word_embeddings")):
            continue
        if each.dtype == "U8":
            made[own] = _ternary(own, key, each, scale, config)
        else:
            made[own] = _tensor(own, each, config)
    scaling = scaling_of(config)
    if scaling["rope_type"] == "llama3":
        made["rope_freqs.weight"] = _floats(_llama3_factors(config, scaling))
    if scaling["rope_type"] == "longrope":
        made["rope_factors_short.weight"] = _floats(_short_factors(scaling))
    return made


def _floats(value: Array) -> _Tensor:
    data = value.view(np.uint8)
    return _Tensor(_F32, value.shape, data.nbytes, lambda: data)


def _tensor(own: str, each: Stored, config: Mapping[str, Any]) -> _Tensor:
    """Vectors become f32. Gemma's norms are stored less 1."""
    kind, kept, data = _KINDS[each.dtype], config["model_type"], each.data
    order = _order(own, each.shape, config)
    if len(each.shape) == 1:
        more = 1 if kept.startswith("gemma") and own.endswith("norm.weight") else 0

        def vector() -> Array:
            value = floats_of(data(), each.shape, kind) + np.float32(more)
            return (value if order is None else value[order]).view(np.uint8)

        return _Tensor(_F32, each.shape, 4 * math.prod(each.shape), vector)
    turned = kept == "gpt2" and own.startswith("blk.")
    if order is None and not turned:
        return _Tensor(kind, each.shape, data().nbytes, data)

    def ordered() -> Array:
        rows = data().reshape(*each.shape, -1)
        rows = rows.transpose(1, 0, 2) if turned else rows[order]
        return np.ascontiguousarray(rows).reshape(-1)

    return _Tensor(kind, each.shape[::-1] if turned else each.shape, data().nbytes, ordered)


def _ternary(
    own: str, key: str, each: Stored, scale: Stored | None, config: Mapping[str, Any]
) -> _Tensor:
    """TQ2_0, or f32 if its blocks do not fit."""
    about = config.get("quantization_config") or {}
    if about.get("quant_method") != METHOD or scale is None or len(each.shape) != 2:
        raise unknown_type(each.file, key, each.dtype)
    rows, columns = each.shape
    shape, factor = (4 * rows, columns), factor_of(scale, about)
    order = _order(own, shape, config)
    if columns % BLOCK:
        return _Tensor(_F32, shape, 4 * math.prod(shape), lambda: (
            unpacked(each.data(), rows, order) * np.float32(factor)).view(np.uint8).reshape(-1)
        )  # fmt: skip
    size = math.prod(shape) // BLOCK * BLOCK_BYTES
    return _Tensor(
        _TQ2_0, shape, size, lambda: as_blocks(unpacked(each.data(), rows, order), factor)
    )


def _order(own: str, shape: tuple[int, ...], config: Mapping[str, Any]) -> Array | None:
    """The rows of a tensor in the order that GGUF files have; None: as they are. Llama's rotary
    pairs, half a head apart, become adjacent; GPT-NeoX's queries, keys and values of all heads
    follow each other."""
    model, (heads, shared) = config["model_type"], heads_of(config)
    found = re.fullmatch(r"blk\.\d+\.attn_(q|k|qkv)\.(weight|bias)", own)
    if not found or model not in (*_APART, "gpt_neox"):
        return None
    heads = shared if found[1] == "k" else heads
    parts = 3 if found[1] == "qkv" else 2
    if shape[0] % (parts * heads):
        raise InputError(f"{own}: expected rows for {heads} heads, found {shape[0]}")
    places = np.arange(shape[0]).reshape(heads, parts, -1)
    return places.transpose((1, 0, 2) if parts == 3 else (0, 2, 1)).reshape(-1)


def _short_factors(scaling: Mapping[str, Any]) -> Array:
    found = scaling.get("short_factor")
    if not isinstance(found, list) or not all(type(each) in (int, float) for each in found):
        raise InputError(f"{CONFIG}: short_factor: expected a list of numbers, found {found!r:.40}")
    return np.array(found, np.float32)


def _llama3_factors(config: Mapping[str, Any], scaling: Mapping[str, Any]) -> Array:
    """By how much Llama 3.1 divides the angles: long waves by the factor, short ones not."""
    size = config.get("head_dim") or whole(config, "hidden_size") // heads_of(config)[0]
    waves = 2 * math.pi * base_of(config) ** (np.arange(size // 2) / (size // 2))
    factor, low, high = (real(scaling, key) for key in (
        "factor", "low_freq_factor", "high_freq_factor"
    ))  # fmt: skip
    trained = whole(scaling, "original_max_position_embeddings")
    smooth = np.clip((trained / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)
