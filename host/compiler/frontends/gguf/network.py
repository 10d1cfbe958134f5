"""What a GGUF file says of its network: sizes and the ways in which families of decoders differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.frontends.gguf.blocks import floats_of
from edgekit.host.compiler.frontends.gguf.file import GgufFile
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError

_MOST_LAYERS, _MOST_WIDTH, _MOST_HEADS = 512, 1 << 16, 1 << 10
_USUAL_CONTEXT, _MOST_CONTEXT = 512, 1 << 17
_LOCAL_BASE = 10000.0  # of the angles in Gemma 3's local layers


@dataclass(frozen=True)
class Family:
    """`adjacent`: the two values that are rotated together are neighbors, else half a head apart.
    `gelu`: its feed-forward layers gate by GELU, not SiLU. `scaled`: embeddings are multiplied by
    the root of their size. One in `every` layers attends to all tokens, the `first` of them being
    that number; the others to a window."""

    adjacent: bool = False
    gelu: bool = False
    scaled: bool = False
    every: int = 1
    first: int = 0


FAMILIES = {
    "llama": Family(adjacent=True),
    "qwen2": Family(),
    "qwen3": Family(),
    "gemma": Family(gelu=True, scaled=True),
    "gemma2": Family(gelu=True, scaled=True, every=2, first=1),
    "gemma3": Family(gelu=True, scaled=True, every=6, first=5),
}


@dataclass(frozen=True, eq=False)
class Network:
    """A decoder. `shared` heads have keys and values, of `size` values each; `angles` and
    `local_angles` are the rotations of a pair per token, f64 [size / 2]; `caps` limit scores and
    logits, 0: not at all; `window`: tokens that local layers attend to, 0: none is local."""

    family: Family
    layers: int
    width: int
    heads: int
    shared: int
    size: int
    epsilon: float
    angles: Array
    local_angles: Array
    trained: int
    caps: tuple[float, float] = (0.0, 0.0)
    window: int = 0

    def is_local(self, layer: int) -> bool:
        return self.window > 0 and layer % self.family.every != self.family.first


def network_of(file: GgufFile) -> Network:
    """Raises InputError for an architecture that is not known, or values that do not fit."""
    name = file.architecture
    if name not in FAMILIES:
        raise InputError(
            f"general.architecture: expected one of {', '.join(sorted(FAMILIES))}, found "
            f"{name!r:.40}; choose a model of one of these"
        )
    width = file.integer("embedding_length", most=_MOST_WIDTH)
    heads = file.integer("attention.head_count", most=_MOST_HEADS)
    shared = file.integer("attention.head_count_kv", heads, _MOST_HEADS)
    size = file.integer("attention.key_length", width // heads or None, _MOST_WIDTH)
    values = file.integer("attention.value_length", size, _MOST_WIDTH)
    turned = file.integer("rope.dimension_count", size, _MOST_WIDTH)
    if heads % shared or size % 2 or turned != size or values != size:
        raise InputError(
            f"{name}: expected groups of heads with even numbers of values, all of which are "
            f"rotated, found {heads} heads in {shared} groups, {size} keys, {values} values, "
            f"{turned} of them rotated"
        )
    family = FAMILIES[name]
    base = file.real("rope.freq_base", 10000.0)
    if not base > 1:
        raise InputError(f"{name}.rope.freq_base: expected a number above 1, found {base:g}")
    epsilon = file.real("attention.layer_norm_rms_epsilon")
    if not 0 <= epsilon < 1:
        raise InputError(f"{name}: expected an epsilon from 0 to 1, found {epsilon:g}")
    return Network(
        family,
        file.integer("block_count", most=_MOST_LAYERS),
        width,
        heads,
        shared,
        size,
        epsilon,
        _angles(size, base) / _stretch(file),
        _angles(size, _LOCAL_BASE if name == "gemma3" else base),
        file.integer("context_length", 1 << 20, 1 << 30),
        (file.real("attn_logit_softcapping", 0.0), file.real("final_logit_softcapping", 0.0)),
        file.integer("attention.sliding_window") if family.every > 1 else 0,
    )


def context_of(network: Network, asked: int | None) -> int:
    """The tokens that a cache holds. Raises InputError for more than the model was trained on."""
    most = min(network.trained, _MOST_CONTEXT)
    length = min(_USUAL_CONTEXT, most) if asked is None else asked
    if not 1 <= length <= most:
        raise InputError(
            f"--context: expected 1 to {most} tokens, the most that the model was trained on, "
            f"found {asked}"
        )
    return length


def _angles(size: int, base: float) -> Array:
    return base ** -(np.arange(size // 2) / (size // 2))


def _stretch(file: GgufFile) -> Array:
    """By how much the angles are divided for long contexts."""
    name = "rope_freqs.weight"
    if info := file.tensors.get(name):
        return floats_of(file.data(name), info.shape, info.kind).astype(np.float64)
    kind = file.about.get(f"{file.architecture}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise InputError(
            f"{file.architecture}.rope.scaling.type: expected none or linear, found {kind!r:.40}"
        )
    return np.asarray(file.real("rope.scaling.factor", 1.0) if kind == "linear" else 1.0)
