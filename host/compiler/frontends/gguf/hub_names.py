"""What Hugging Face and GGUF call decoders and their tensors."""

from __future__ import annotations

import re

from edgekit.host.errors import InputError

ARCHITECTURES = {
    "bitnet": "bitnet-b1.58", "cohere": "command-r", "falcon": "falcon", "gemma": "gemma",
    "gemma2": "gemma2", "gemma3_text": "gemma3", "gpt2": "gpt2", "gpt_neox": "gptneox",
    "granite": "granite", "llama": "llama", "mistral": "llama", "olmo2": "olmo2", "phi": "phi2",
    "phi3": "phi3", "qwen2": "qwen2", "qwen3": "qwen3", "smollm3": "smollm3",
    "stablelm": "stablelm", "starcoder2": "starcoder2",
}  # fmt: skip
_TOP = {
    **dict.fromkeys(("embed_tokens", "embed_in", "wte", "word_embeddings"), "token_embd"),
    **dict.fromkeys(("norm", "final_layer_norm", "ln_f", "final_layernorm"), "output_norm"),
    **dict.fromkeys(("lm_head", "embed_out"), "output"),
    "wpe": "position_embd",
}
_PARTS = {
    **dict.fromkeys(("input_layernorm", "ln_1"), "attn_norm"),
    **{f"self_attn.{n}_proj": f"attn_{n}" for n in "qkv"},
    **dict.fromkeys(
        ("self_attn.qkv_proj", "attention.query_key_value", "attn.c_attn",
         "self_attention.query_key_value"), "attn_qkv"),
    **dict.fromkeys(
        ("self_attn.o_proj", "self_attn.dense", "attention.dense", "attn.c_proj",
         "self_attention.dense"), "attn_output"),
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.attn_sub_norm": "attn_sub_norm",
    **dict.fromkeys(("post_attention_layernorm", "ln_2"), "ffn_norm"),
    "mlp.gate_proj": "ffn_gate",
    **dict.fromkeys(
        ("mlp.up_proj", "mlp.gate_up_proj", "mlp.dense_h_to_4h", "mlp.c_fc", "mlp.fc1"), "ffn_up"),
    **dict.fromkeys(
        ("mlp.down_proj", "mlp.dense_4h_to_h", "mlp.c_proj", "mlp.fc2"), "ffn_down"),
    "mlp.ffn_sub_norm": "ffn_sub_norm",
}  # fmt: skip
_AROUND = {  # of families that also normalize what a part gives
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_ROOT = r"(?:model\.|gpt_neox\.|transformer\.)?"
_LAYER = re.compile(rf"{_ROOT}(?:layers|h)\.([0-9]{{1,4}})\.(.+)\.(weight|bias)")
_ABOVE = re.compile(rf"{_ROOT}(\w+)\.(weight|bias)")
# Masks and angles, which are computed.
_IGNORED = re.compile(r".*rotary_emb\.inv_freq|.*\.(attn|attention)\.(masked_)?bias")


def own_name(key: str, architecture: str) -> str | None:
    """The name of a tensor in GGUF files; None for those that are computed. InputError for one that
    is no part of such a network."""
    if _IGNORED.fullmatch(key):
        return None
    parts = {**_PARTS, **(_AROUND if architecture in ("gemma2", "gemma3", "olmo2") else {})}
    found = _LAYER.fullmatch(key)
    if found and found[2] in parts:
        return f"blk.{found[1]}.{parts[found[2]]}.{found[3]}"
    found = _ABOVE.fullmatch(key)
    if found and found[1] in _TOP:
        return f"{_TOP[found[1]]}.{found[2]}"
    raise InputError(
        f"expected the tensors of a plain {architecture} network, found {key!r:.80} besides; "
        "choose a model without it"
    )
