"""The `config.json` of a decoder on Hugging Face, as metadata of a GGUF file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgekit.host.compiler.frontends.gguf.hub_names import ARCHITECTURES
from edgekit.host.compiler.frontends.gguf.hub_ternary import METHOD, check_ternary
from edgekit.host.compiler.frontends.gguf.network import FAMILIES, Family
from edgekit.host.compiler.sidecars import CONFIG
from edgekit.host.errors import InputError

_SAME = {  # other names for a value, of older families
    "hidden_size": ("n_embd",), "num_hidden_layers": ("n_layer",),
    "num_attention_heads": ("n_head",), "max_position_embeddings": ("n_positions", "n_ctx"),
    "layer_norm_eps": ("layer_norm_epsilon", "norm_epsilon"),
    "rope_theta": ("rotary_emb_base",), "partial_rotary_factor": ("rotary_pct",),
    "hidden_act": ("hidden_activation", "activation_function", "activation"),
}  # fmt: skip
_ACTS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh", "relu2": "relu2",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
}  # fmt: skip
_TURNED = {"gpt_neox": 0.25, "phi": 0.5, "stablelm": 0.25}  # where files may leave it out
_SCALES = {  # of Granite and Command R
    "embedding_multiplier": "embedding_scale", "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale", "logits_scaling": "logit_scale",
    "logit_scale": "logit_scale", "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip
# What families may have that changes their networks in other ways, with what it must be.
_PLAIN = {
    "alibi": False, "new_decoder_architecture": False, "parallel_attn": True,
    "multi_query": True, "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True,
    "qk_layernorm": False, "use_qk_norm": False, "use_bidirectional_attention": False,
}  # fmt: skip


def heads_of(config: Mapping[str, Any]) -> tuple[int, int]:
    """The heads, and those with keys and values."""
    heads = whole(config, "num_attention_heads")
    if config["model_type"] == "falcon":
        return heads, 1
    own = config["model_type"] in ("gpt2", "gpt_neox")
    return heads, heads if own else config.get("num_key_value_heads") or heads


def values_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata of the network. Raises InputError with one line for one that GGUF cannot say."""
    name = ARCHITECTURES[config["model_type"]]
    family = FAMILIES[name]
    _check_plain(config, family)
    trained, (heads, shared) = whole(config, "max_position_embeddings"), heads_of(config)
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if isinstance(window, int) and family.every == 1:
        trained = min(trained, window)  # beyond it all layers would forget
    width = whole(config, "hidden_size")
    size = config.get("head_dim") or width // heads
    values: dict[str, Any] = {
        "context_length": trained,
        "embedding_length": width,
        "block_count": whole(config, "num_hidden_layers"),
        "attention.head_count": heads,
        "attention.head_count_kv": shared,
        "attention.key_length": size,
        "attention.value_length": size,
        **_epsilon(config, family),
        **_rotation(config, size),
    }
    if family.every > 1:
        values["attention.sliding_window"] = whole(config, "sliding_window")
        scalar = config.get("query_pre_attn_scalar")
        if scalar and scalar != size:
            values["attention.scale"] = real(config, "query_pre_attn_scalar") ** -0.5
    if type(config.get("use_parallel_residual")) is bool:
        values["use_parallel_residual"] = config["use_parallel_residual"]
    values |= {own: real(config, key) for key, own in _SCALES.items() if config.get(key)}
    return {"general.architecture": name, **{f"{name}.{k}": v for k, v in values.items()}}


def scaling_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """How angles are scaled for long contexts."""
    found = config.get("rope_scaling") or _rope(config)
    kind = found.get("rope_type", found.get("type", "default"))
    known = (
        "default",
        "linear",
        "llama3",
        "yarn",
        *(["longrope"] * (config["model_type"] == "phi3")),
    )
    if kind not in known:
        raise InputError(
            f"{CONFIG}: rope_scaling: expected {' or '.join(known[1:])}, found {kind!r:.40}; "
            "choose another model"
        )
    odd = [key for key in ("mscale", "mscale_all_dim", "truncate") if key in found]
    if kind == "yarn" and odd:
        raise InputError(f"{CONFIG}: rope_scaling: expected a plain yarn, found {odd[0]} in it")
    return {**found, "rope_type": kind}


def base_of(config: Mapping[str, Any]) -> float:
    """Of the angles."""
    for key in ("rope_theta", *_SAME["rope_theta"]):
        for about in (config, _rope(config)):
            if about.get(key):
                return real(about, key)
    return 10000.0


def turned_of(config: Mapping[str, Any], size: int) -> int:
    """The values of a head that are rotated."""
    usual = _TURNED.get(config["model_type"], 1)
    found = [
        about[key]
        for key in ("partial_rotary_factor", *_SAME["partial_rotary_factor"])
        for about in (config, _rope(config))
        if about.get(key)
    ]
    share = (found or [usual])[0]
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise InputError(
            f"{CONFIG}: partial_rotary_factor: expected a number up to 1, found {share!r:.40}"
        )
    return int(size * share)


def whole(config: Mapping[str, Any], key: str) -> int:
    """A whole number above 0, by this or an older name."""
    found = _stated(config, key)
    if type(found) is not int or not 0 < found < 1 << 31:
        raise InputError(f"{CONFIG}: {key}: expected a whole number, found {found!r:.40}")
    return found


def real(config: Mapping[str, Any], key: str) -> float:
    """A finite number, by this or an older name."""
    found: Any = _stated(config, key)
    if type(found) not in (int, float) or not math.isfinite(found):
        raise InputError(f"{CONFIG}: {key}: expected a number, found {found!r:.40}")
    return float(found)


def _stated(config: Mapping[str, Any], key: str) -> Any:
    names = (key, *_SAME.get(key, ()))
    return next((config[name] for name in names if config.get(name) is not None), None)


def _rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Of layers that attend to all tokens."""
    found = config.get("rope_parameters") or {}
    return found.get("full_attention") or found


def _epsilon(config: Mapping[str, Any], family: Family) -> dict[str, float]:
    if family.centered:
        return {"attention.layer_norm_epsilon": real(config, "layer_norm_eps")}
    return {"attention.layer_norm_rms_epsilon": real(config, "rms_norm_eps")}


def _rotation(config: Mapping[str, Any], size: int) -> dict[str, Any]:
    if config["model_type"] == "gpt2":
        return {}
    turned, scaling = turned_of(config, size), scaling_of(config)
    made: dict[str, Any] = {"rope.freq_base": base_of(config)}
    if turned != size:
        made["rope.dimension_count"] = turned
    if scaling["rope_type"] == "linear":
        made |= {"rope.scaling.type": "linear", "rope.scaling.factor": real(scaling, "factor")}
    if scaling["rope_type"] == "yarn":
        made |= _yarn(scaling, whole(config, "max_position_embeddings"))
    if scaling["rope_type"] == "longrope":
        first = whole({**scaling, **config}, "original_max_position_embeddings")
        longer = whole(config, "max_position_embeddings") / first
        made["rope.scaling.original_context_length"] = first
        if longer > 1:
            gain = math.sqrt(1 + math.log(longer) / math.log(first))
            made["rope.scaling.attn_factor"] = float(scaling.get("attention_factor") or gain)
    return made


def _yarn(scaling: Mapping[str, Any], trained: int) -> dict[str, Any]:
    factor = real(scaling, "factor")
    made: dict[str, Any] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": (
            scaling.get("original_max_position_embeddings") or trained
        ),
    }
    for turns in ("beta_fast", "beta_slow"):
        if scaling.get(turns):
            made[f"rope.scaling.yarn_{turns}"] = real(scaling, turns)
    if scaling.get("attention_factor"):  # in place of the usual one, which GGUF multiplies
        usual = 1 + 0.1 * math.log(factor) if factor > 1 else 1.0
        made["rope.scaling.attn_factor"] = real(scaling, "attention_factor") / usual
    return made


def _check_plain(config: Mapping[str, Any], family: Family) -> None:
    """InputError for what would change the network."""
    for key, wanted in _PLAIN.items():
        if config.get(key, wanted) not in (wanted, None):
            raise InputError(
                f"{CONFIG}: {key}: expected {json_of(wanted)}, found {json_of(config[key])}; "
                "choose a model without it"
            )
    about = config.get("quantization_config") or {}
    method = about.get("quant_method")
    if method == METHOD:
        check_ternary(about)
    elif method:
        raise InputError(
            f"{CONFIG}: quantization_config: expected weights as floats, found {method!r:.40}; "
            "choose the model before quantization, or a GGUF file of it"
        )
    act = _stated(config, "hidden_act")
    if config["model_type"].startswith("gemma") and act == "gelu":
        return  # Gemma 1's first files say so, and mean the approximation
    if act is not None and _ACTS.get(act) != family.act:
        raise InputError(f"{CONFIG}: hidden_act: expected {family.act}, found {act!r:.40}")
    kinds, layers = config.get("layer_types"), whole(config, "num_hidden_layers")
    full = [i % family.every == family.first for i in range(layers)]
    if family.every > 1 and kinds and [kind == "full_attention" for kind in kinds] != full:
        raise InputError(f"{CONFIG}: layer_types: expected one in {family.every} of all tokens")
    turned, every = config.get("no_rope_layers"), family.unturned
    if (
        every
        and turned
        and [not each for each in turned] != [(i + 1) % every == 0 for i in range(layers)]
    ):
        raise InputError(f"{CONFIG}: no_rope_layers: expected one in {every}, found others")


def json_of(value: object) -> str:
    """As the file has it."""
    return str(value).lower()[:40]
