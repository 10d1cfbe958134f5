"""The tokenizer and chat template of a folder of Hugging Face, as metadata of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgekit.host.compiler.sidecars import GENERATION, TOKENIZER, TOKENIZER_CONFIG, read_sidecar
from edgekit.host.errors import InputError

_TEMPLATE = "chat_template.jinja"
_PREFIX = "tokenizer.ggml."
_NORMAL, _CONTROL, _OWN, _UNUSED, _BYTE = 1, 3, 4, 5, 6
_NO_SCORE = -1e9
# Names of GGUF files for what splits words, by the regular expressions of tokenizer.json.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = {_WORDS % "{1,3}": "llama-bpe", _WORDS % "": "qwen2"}


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
        made[f"{_PREFIX}bos_token_id"] = first
    return made


def _read(file: Path) -> dict[str, Any] | None:
    data = read_sidecar(file)
    try:
        found = None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f"{file}: expected JSON, found something else") from None
    return found if isinstance(found, dict) else None


def _values(about: Mapping[str, Any]) -> dict[str, Any]:
    model = about["model"]
    kind = model.get("type")
    added = {int(each["id"]): each for each in about.get("added_tokens") or ()}
    if kind == "Unigram":
        return _of_unigram(about, added)
    if kind != "BPE":
        raise InputError(f"{TOKENIZER}: expected BPE or Unigram, found {kind!r:.40}")
    pieces = _pieces(model["vocab"], added)
    kinds = [_kind(piece, added.get(i)) for i, piece in enumerate(pieces)]
    pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
    made: dict[str, Any] = {f"{_PREFIX}tokens": pieces, f"{_PREFIX}token_type": kinds}
    made[f"{_PREFIX}add_bos_token"] = _begins(about.get("post_processor"))
    for key in ("lstrip", "rstrip"):  # GGUF has no names for them
        if found := sorted(i for i, each in added.items() if each.get(key)):
            made[f"{_PREFIX}{key}"] = found
    splits = [*_flat(about.get("pre_tokenizer"), "pretokenizers")]
    if any(each["type"] == "ByteLevel" for each in splits):
        merges = [f"{a} {b}" for a, b in pairs]
        return {f"{_PREFIX}model": "gpt2", f"{_PREFIX}pre": _split(splits), **made,
                f"{_PREFIX}composed": _composes(about.get("normalizer")),
                f"{_PREFIX}merges": merges}  # fmt: skip
    scores = dict.fromkeys(pieces, _NO_SCORE)
    for rank, (a, b) in reversed([*enumerate(pairs)]):
        scores[a + b] = -float(rank)
    made[f"{_PREFIX}scores"] = [scores[piece] for piece in pieces]
    made[f"{_PREFIX}add_space_prefix"] = _adds_space(about, splits)
    return {f"{_PREFIX}model": "llama", **made}


def _of_unigram(about: Mapping[str, Any], added: Mapping[int, Any]) -> dict[str, Any]:
    """With the whole file: GGUF has no names for what comes before the model."""
    scores = {i: float(score) for i, (_, score) in enumerate(about["model"]["vocab"])}
    numbers = {i: piece for i, (piece, _) in enumerate(about["model"]["vocab"])}
    numbers |= {i: str(each["content"]) for i, each in added.items()}
    pieces = [str(numbers.get(i, "")) for i in range(len(numbers))]
    return {
        f"{_PREFIX}model": "t5",
        f"{_PREFIX}tokens": pieces,
        f"{_PREFIX}token_type": [_kind(piece, added.get(i)) for i, piece in enumerate(pieces)],
        f"{_PREFIX}scores": [scores.get(i, 0.0) for i in range(len(pieces))],
        f"{_PREFIX}add_bos_token": _begins(about.get("post_processor")),
        "tokenizer.huggingface.json": json.dumps(about, ensure_ascii=False),
    }


def _pieces(vocabulary: Mapping[str, int], added: Mapping[int, Any]) -> list[str]:
    numbers = {int(i): str(piece) for piece, i in vocabulary.items()}
    numbers |= {i: str(each["content"]) for i, each in added.items()}
    count = max(numbers) + 1
    if count > 2 * len(numbers) + 1000 or min(numbers) < 0:
        raise ValueError("numbers of tokens that do not follow each other")
    return [numbers.get(i, "") for i in range(count)]


def _kind(piece: str, added: Mapping[str, Any] | None) -> int:
    if added is not None:
        return _CONTROL if added.get("special") else _OWN
    if not piece:
        return _UNUSED
    return _BYTE if len(piece) == 6 and piece.startswith("<0x") else _NORMAL


def _flat(about: Mapping[str, Any] | None, parts: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a sequence, or the only one."""
    if about is not None:
        yield from about[parts] if about["type"] == "Sequence" else [about]


def _split(splits: list[Mapping[str, Any]]) -> str:
    """GGUF's name for how words are split."""
    *before, level = splits
    if level["type"] != "ByteLevel" or level.get("add_prefix_space"):
        raise InputError(f"{TOKENIZER}: expected ByteLevel without a space before, found another")
    by_level = bool(level.get("use_regex", True))
    if not before and by_level:
        return "gpt-2"
    first: Mapping[str, Any] = before[0] if len(before) == 1 else {"type": ""}
    if first["type"] == "Digits" and by_level and first.get("individual_digits"):
        return "smollm"
    pattern = first["pattern"].get("Regex") if first["type"] == "Split" and not by_level else ""
    if pattern in _PATTERNS:
        return _PATTERNS[pattern]
    raise InputError(
        f"{TOKENIZER}: expected words split as GPT-2, Llama 3, Qwen 2 or SmolLM do, found others; "
        "choose another model"
    )


def _composes(about: Mapping[str, Any] | None) -> bool:
    """Whether texts are brought into the form NFC, for which GGUF has no name either."""
    kinds = {each["type"] for each in _flat(about, "normalizers")}
    if kinds - {"NFC"}:
        raise InputError(
            f"{TOKENIZER}: expected no normalizer before ByteLevel, or NFC, found "
            f"{min(kinds - {'NFC'})!r:.40}; choose another model"
        )
    return bool(kinds)


def _adds_space(about: Mapping[str, Any], splits: list[Mapping[str, Any]]) -> bool:
    steps = [*_flat(about.get("normalizer"), "normalizers"), *splits]
    return any(
        each["type"] == "Prepend"
        or (each["type"] == "Metaspace" and each.get("prepend_scheme", "always") != "never")
        for each in steps
    )


def _begins(about: Mapping[str, Any] | None) -> bool:
    """Whether a token is put before a text."""
    steps = [*_flat(about, "processors")]
    return any("SpecialToken" in part for each in steps for part in each.get("single", ())[:1])
