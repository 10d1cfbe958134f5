"""What a GGUF file says of its network: sizes and the ways in which families of decoders differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edgekit.host.compiler.frontends.gguf.blocks import floats_of
from edgekit.host.compiler.frontends.gguf.file import GgufFile
from edgekit.host.compiler.ir.types import Array
from edgekit.host.errors import InputError

_MOST_LAYERS, _MOST_WIDTH, _MOST_HEADS = 512, 1 << 16, 1 << 10
_USUAL_CONTEXT, _MOST_CONTEXT = 512, 1 << 17
_LOCAL_BASE = 10000.0  # of the angles in Gemma 3's local layers
POSITIONS, _SHORT = "position_embd.weight", "rope_factors_short.weight"

Act = Literal["silu", "gelu", "gelu_tanh", "relu2"]


@dataclass(frozen=True)
class Family:
    """`adjacent`: the two values that are rotated together are neighbors, else half a head apart.
    `act`: of feed-forward layers, which a second product gates if the file has one. `centered`:
    norms subtract the mean. `parallel`: the feed-forward layer reads what attention reads; files
    may say so as well. `bare`: only what a part gives is normalized.

    `scaled`: embeddings are multiplied by the root of their size. One in `every` layers attends to
    all tokens, the `first` of them being that number; the others to a window. One in `unturned`
    layers rotates nothing, 0: none.
    """

    adjacent: bool = False
    act: Act = "silu"
    scaled: bool = False
    every: int = 1
    first: int = 0
    unturned: int = 0
    centered: bool = False
    parallel: bool = False
    bare: bool = False


FAMILIES = {
    "bitnet": Family(),
    "bitnet-b1.58": Family(act="relu2"),
    "command-r": Family(adjacent=True, centered=True, parallel=True),
    "ernie4_5": Family(adjacent=True),
    "exaone": Family(),
    "falcon": Family(act="gelu", centered=True, parallel=True),
    "gemma": Family(act="gelu_tanh", scaled=True),
    "gemma2": Family(act="gelu_tanh", scaled=True, every=2, first=1),
    "gemma3": Family(act="gelu_tanh", scaled=True, every=6, first=5),
    "gpt2": Family(act="gelu_tanh", centered=True),
    "gptneox": Family(act="gelu", centered=True),
    "granite": Family(adjacent=True),
    "internlm2": Family(adjacent=True),
    "llama": Family(adjacent=True),
    "minicpm": Family(adjacent=True),
    "olmo2": Family(bare=True),
    "phi2": Family(act="gelu_tanh", centered=True, parallel=True),
    "phi3": Family(),
    "qwen2": Family(),
    "qwen3": Family(),
    "smollm3": Family(adjacent=True, unturned=4),
    "stablelm": Family(centered=True),
    "starcoder2": Family(act="gelu_tanh", centered=True),
}
_PLACED = ("gpt2",)  # families that add a vector for the position instead of rotating pairs


@dataclass(frozen=True)
class Scales:
    """What embeddings, scores, the results of a layer's two parts, and logits are multiplied by."""

    embeddings: float
    scores: float
    parts: float
    logits: float


@dataclass(frozen=True, eq=False)
class Network:
    """A decoder. `shared` heads have keys and values, of `size` values each, of which the first
    `turned` are rotated; `angles` and `local_angles` are the rotations of a pair per token, f64
    [turned / 2]. `caps` limit scores and logits, 0: not at all; `window`: tokens that local layers
    attend to, 0: none is local. `gain` multiplies the cosines and sines of angles."""

    family: Family
    layers: int
    width: int
    heads: int
    shared: int
    size: int
    turned: int
    epsilon: float
    angles: Array
    local_angles: Array
    trained: int
    parallel: bool
    scales: Scales
    caps: tuple[float, float] = (0.0, 0.0)
    window: int = 0
    gain: float = 1.0

    def is_local(self, layer: int) -> bool:
        return self.window > 0 and layer % self.family.every != self.family.first

    def turns(self, layer: int) -> bool:
        """Whether a layer rotates queries and keys."""
        every = self.family.unturned
        return self.turned > 0 and (every == 0 or (layer + 1) % every != 0)


def network_of(file: GgufFile) -> Network:
    """Raises InputError for an architecture that is not known, or values that do not fit."""
    name = file.architecture
    if name not in FAMILIES:
        raise InputError(
            f"general.architecture: expected one of {', '.join(sorted(FAMILIES))}, found "
            f"{name!r:.40}; choose a model of one of these"
        )
    experts = file.about.get(f"{name}.expert_count", 0)
    if experts not in (0, 1):
        raise InputError(
            f"{name}.expert_count: expected a network without experts, found {experts!r:.40}; "
            "choose another model"
        )
    family = FAMILIES[name]
    width = file.integer("embedding_length", most=_MOST_WIDTH)
    heads = file.integer("attention.head_count", most=_MOST_HEADS)
    shared = file.integer("attention.head_count_kv", heads, _MOST_HEADS)
    size = file.integer("attention.key_length", width // heads or None, _MOST_WIDTH)
    values = file.integer("attention.value_length", size, _MOST_WIDTH)
    turned = 0 if name in _PLACED else file.integer("rope.dimension_count", size, _MOST_WIDTH)
    partly = turned != size and name not in _PLACED
    if (
        heads % shared
        or turned % 2
        or values != size
        or turned > size
        or (partly and family.adjacent)
    ):
        raise InputError(
            f"{name}: expected groups of heads with as many keys as values, of which an even "
            f"number{', all of them,' if family.adjacent else ''} is rotated, found {heads} heads "
            f"in {shared} groups, {size} keys, {values} values, {turned} of them rotated"
        )
    base = file.real("rope.freq_base", 10000.0)
    if not base > 1:
        raise InputError(f"{name}.rope.freq_base: expected a number above 1, found {base:g}")
    epsilon = file.real(f"attention.layer_norm_{'' if family.centered else 'rms_'}epsilon")
    if not 0 <= epsilon < 1:
        raise InputError(f"{name}: expected an epsilon from 0 to 1, found {epsilon:g}")
    angles, gain = _angles(file, turned, base)
    return Network(
        family,
        file.integer("block_count", most=_MOST_LAYERS),
        width,
        heads,
        shared,
        size,
        turned,
        epsilon,
        angles,
        _unscaled(turned, _LOCAL_BASE) if name == "gemma3" else angles,
        _trained(file, family),
        _is_parallel(file, family),
        _scales(file, family, width, size),
        (file.real("attn_logit_softcapping", 0.0), file.real("final_logit_softcapping", 0.0)),
        file.integer("attention.sliding_window") if family.every > 1 else 0,
        gain,
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


def _trained(file: GgufFile, family: Family) -> int:
    """The most tokens that the network knows places for. Phi 3's long form is for more than it was
    first trained on, which needs other angles. Beyond a window of all layers, all would forget."""
    most = _trained_first(file)
    if family.every == 1 and file.about.get(f"{file.architecture}.attention.sliding_window"):
        most = min(most, file.integer("attention.sliding_window", most=1 << 30))
    if _SHORT in file.tensors:
        most = min(most, file.integer("rope.scaling.original_context_length", most, 1 << 30))
    places = file.tensors.get(POSITIONS)
    return most if places is None else min(most, places.shape[0])


def _is_parallel(file: GgufFile, family: Family) -> bool:
    """What files of StableLM say of it is not about their network: parts that compute side by side
    share a norm."""
    if file.architecture == "stablelm":
        return "blk.0.ffn_norm.weight" not in file.tensors
    return file.truth("use_parallel_residual", family.parallel)


def _scales(file: GgufFile, family: Family, width: int, size: int) -> Scales:
    """Granite divides logits by its scale, as MiniCPM does, whose first files leave out what all
    its models have; Command R multiplies them."""
    first = file.architecture == "minicpm"
    logits = file.real("logit_scale", width / 256 if first else 1.0)
    if not logits:
        raise InputError(f"{file.architecture}.logit_scale: expected a number besides 0, found 0")
    return Scales(
        file.real("embedding_scale", 12.0 if first else math.sqrt(width) if family.scaled else 1.0),
        file.real("attention.scale", 0.0) or 1 / math.sqrt(size),
        file.real("residual_scale", 1.4 / math.sqrt(file.integer("block_count")) if first else 1.0),
        1 / logits if file.architecture in ("granite", "minicpm") else logits,
    )


def _unscaled(turned: int, base: float) -> Array:
    return base ** -(np.arange(turned // 2) / max(turned // 2, 1))


def _angles(file: GgufFile, turned: int, base: float) -> tuple[Array, float]:
    """The angles of pairs, which files divide for long contexts, and the gain of their cosines and
    sines."""
    plain, gain = _unscaled(turned, base), file.real("rope.scaling.attn_factor", 1.0)
    for name in ("rope_freqs.weight", _SHORT):
        if info := file.tensors.get(name):
            if info.shape != (turned // 2,):
                raise InputError(
                    f"tensor {name}: expected shape [{turned // 2}], found {list(info.shape)}"
                )
            factors = floats_of(file.data(name), info.shape, info.kind)
            if not (np.isfinite(factors) & (factors > 0)).all():
                raise InputError(f"tensor {name}: expected finite values above 0, found others")
            return plain / factors, gain
    factor = file.real("rope.scaling.factor", 0.0) or file.real("rope.scale_linear", 0.0) or 1.0
    key = f"{file.architecture}.rope.scaling.type"
    kind = file.about.get(key, "linear")
    if kind not in ("none", "linear", "yarn") or not factor > 0:
        raise InputError(
            f"{key}: expected none, linear or yarn, by a factor above 0, found {kind!r:.40} by "
            f"{factor:g}"
        )
    if kind == "none" or factor == 1:
        return plain, gain
    if kind == "linear":
        return plain / factor, gain
    if file.architecture in ("gemma3", "olmo2") and (
        f"{file.architecture}.attention.sliding_window" in file.about
    ):
        raise InputError(
            f"{key}: expected none or linear for a network with a window, such as Gemma 3 and "
            "OLMo 3, found yarn; choose another model"
        )
    share = _short_waves(file, turned, base)
    more = 1 + 0.1 * math.log(max(factor, 1))
    return plain * share + plain / factor * (1 - share), gain * more


def _short_waves(file: GgufFile, turned: int, base: float) -> Array:
    """YaRN (Peng et al., 2023): 1 for pairs that turn often within the first length, whose angles
    stay as they are, 0 for those that turn less than once."""
    first = file.integer("rope.scaling.original_context_length", _trained_first(file), 1 << 30)
    ends = (file.real("rope.scaling.yarn_beta_fast", 32.0),
            file.real("rope.scaling.yarn_beta_slow", 1.0))  # fmt: skip
    if not min(ends) > 0:
        raise InputError(f"{file.architecture}.rope.scaling: expected turns above 0, found others")
    pairs = [
        turned * math.log(first / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in ends
    ]
    low, high = max(math.floor(pairs[0]), 0), min(math.ceil(pairs[1]), turned - 1)
    places = (np.arange(turned // 2) - low) / max(high - low, 0.001)
    return np.asarray(1 - np.clip(places, 0, 1))


def _trained_first(file: GgufFile) -> int:
    return file.integer("context_length", 1 << 20, 1 << 30)
