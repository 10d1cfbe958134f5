"""The tokenizer and chat template of a folder of Hugging Face, as metadata of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.bpe import BYTES, MARKS, UNIGRAM
from edgekit.host.compiler.frontends.gguf.hub_bpe import begins, bpe_of_hub, is_bpe
from edgekit.host.compiler.frontends.gguf.hub_unigram import is_unigram, unigram_spec
from edgekit.host.compiler.sidecars import GENERATION, TOKENIZER, TOKENIZER_CONFIG, read_sidecar
from edgekit.host.errors import InputError

_TEMPLATE = "chat_template.jinja"
_PREFIX = "tokenizer.ggml."
_NORMAL, _CONTROL, _OWN, _UNUSED, _BYTE = 1, 3, 4, 5, 6
WHOLE = "tokenizer.huggingface.json"  # which GGUF files may have: it says more than their own names


def tokenizer_values(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Raises InputError for a tokenizer that is missing, or of another kind than BPE or Unigram."""
    about = _read(folder / TOKENIZER)
    if about is None:
        raise InputError(f"{folder}: expected {TOKENIZER} in it, found none; fetch it, too")
    try:
        made = _values(about)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(
            f"{folder / TOKENIZER}: expected a tokenizer as the library tokenizers writes it, "
            f"found a damaged one ({type(error).__name__}: {error!s:.60})"
        ) from None
    own = _read(folder / TOKENIZER_CONFIG) or {}
    template = own.get("chat_template")
    jinja = read_sidecar(folder / _TEMPLATE)
    template = jinja.decode("utf-8", "replace") if jinja is not None else template
    if isinstance(template, str):
        made["tokenizer.chat_template"] = template
    generation = _read(folder / GENERATION) or {}
    ends = generation.get("eos_token_id", config.get("eos_token_id"))
    ends = ends if isinstance(ends, list) else [ends]
    named = zip(("eos", "eot", "eom"), [e for e in ends if type(e) is int and e >= 0], strict=False)
    made |= {f"{_PREFIX}{name}_token_id": number for name, number in named}
    first = config.get("bos_token_id")
    if type(first) is int and first >= 0:
        made.setdefault(f"{_PREFIX}bos_token_id", first)
    return made


def _read(file: Path) -> dict[str, Any] | None:
    data = read_sidecar(file)
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f"{file}: expected JSON, found something else") from None
    return found if isinstance(found, dict) else None


def _values(about: Mapping[str, Any]) -> dict[str, Any]:
    """With the whole file: GGUF has no names for most of what comes before the model."""
    model = about["model"]
    added = {int(each["id"]): each for each in about.get("added_tokens") or ()}
    if not (is_bpe(about) or is_unigram(about)):
        raise InputError(f"{TOKENIZER}: expected BPE or Unigram, found {model.get('type')!r:.40}")
    spec = bpe_of_hub(about) if is_bpe(about) else unigram_spec(about)
    kinds = {BYTES: "gpt2", MARKS: "llama", UNIGRAM: "t5"}
    first = begins(about)
    return {
        f"{_PREFIX}model": kinds[spec.kind],
        f"{_PREFIX}tokens": list(spec.pieces),
        f"{_PREFIX}token_type": [_kind(p, added.get(i)) for i, p in enumerate(spec.pieces)],
        f"{_PREFIX}add_bos_token": bool(first),
        **({f"{_PREFIX}bos_token_id": first[0]} if first else {}),
        WHOLE: json.dumps(about, ensure_ascii=False),
    }


def _kind(piece: str, added: Mapping[str, Any] | None) -> int:
    if added is not None:
        return _CONTROL if added.get("special") else _OWN
    if not piece:
        return _UNUSED
    return _BYTE if len(piece) == 6 and piece.startswith("<0x") else _NORMAL
