"""Reads tokenizers that join pairs of pieces: "BPE" of tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgekit.device.runtime.agent.bpe import ALWAYS, BYTES, FIRST, MARKS, NEVER, SPACE, BpeSpec
from edgekit.host.compiler.frontends.gguf.hub_unigram import (
    added_with,
    flat,
    marks_of,
    steps_of,
    unfit,
)
from edgekit.host.compiler.sidecars import TOKENIZER
from edgekit.host.errors import InputError

_ANY_CASE, _BEGIN = "(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"[^\r\n\p{L}\p{N}]?"
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = rf"{_ANY_CASE}|{_BEGIN}\p{{L}}+|\p{{N}}%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_ENDS}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    f"{_BEGIN}{_UPPER}*{_LOWER}+%s|{_BEGIN}{_UPPER}+{_LOWER}*%s"
    rf"|\p{{N}}%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_ENDS}"
)
_MARKED = (
    rf"{_ANY_CASE}|{_BEGIN}[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_ENDS}"
)
# What splits words, by the regular expressions of tokenizer.json.
_PATTERNS = {
    _WORDS % "{1,3}": "llama3",
    _WORDS % "": "qwen2",
    _CASED % ("", "", ""): "tekken",
    _CASED % (_ANY_CASE + "?", _ANY_CASE + "?", "{1,3}"): "gpt4o",
    _MARKED: "qwen35",
}
_FALCON = ("Punctuation", "ByteLevel", "Digits", "Split")


def is_bpe(about: Mapping[str, Any]) -> bool:
    """Whether a tokenizer.json has a BPE model; older files do not say its type."""
    model = about.get("model")
    return isinstance(model, dict) and model.get("type", "BPE" if "merges" in model else "") == (
        "BPE"
    )


def bpe_of_hub(about: Mapping[str, Any], before: tuple[int, ...] = ()) -> BpeSpec:
    """The tokenizer in a tokenizer.json whose model is BPE, with the tokens `before` a text.

    Raises InputError for steps that boards have not; KeyError, TypeError, ValueError and so on for
    a damaged one.
    """
    model = about["model"]
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name):
            raise unfit(f"model.{name}", "none", model[name])
    added = {int(each["id"]): each for each in about.get("added_tokens") or ()}
    pieces = pieces_of(model["vocab"], added)
    numbers = {str(piece): int(i) for piece, i in model["vocab"].items()}
    pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in model["merges"]]
    merges = tuple(numbers[str(part)] for a, b in pairs for part in (a, b))
    kind, split, space = _words(about)
    if kind == MARKS and not model.get("byte_fallback") and "<0x00>" in numbers:
        raise unfit("byte_fallback", "true for a vocabulary of bytes", "false")
    steps, characters = steps_of(about.get("normalizer"))
    kept = [i for i in added if not added[i].get("special")]
    return BpeSpec(
        kind, split, pieces, merges, (), tuple(sorted(added)),
        tuple(sorted({*added}.difference(kept))), before, space,
        whole=bool(model.get("ignore_merges")), unknown=numbers.get(model.get("unk_token"), -1),
        steps=tuple(steps), characters=characters,
        left=added_with(added, "lstrip"), right=added_with(added, "rstrip"),
        single=added_with(added, "single_word"), normalized=added_with(added, "normalized"),
        fused=bool(model.get("fuse_unk")),
    )  # fmt: skip


def pieces_of(vocabulary: Mapping[str, int], added: Mapping[int, Any]) -> tuple[str, ...]:
    """The tokens by number; those that are missing are empty."""
    numbers = {int(i): str(piece) for piece, i in vocabulary.items()}
    numbers |= {i: str(each["content"]) for i, each in added.items()}
    count = max(numbers) + 1
    if count > 2 * len(numbers) + 1000 or min(numbers) < 0:
        raise ValueError("numbers of tokens that do not follow each other")
    return tuple(numbers.get(i, "") for i in range(count))


def _words(about: Mapping[str, Any]) -> tuple[str, str, str]:
    """The kind of pieces, how words are split, and where a space is put before a text."""
    splits = [*flat(about.get("pre_tokenizer"), "pretokenizers")]
    if any(each["type"] == "ByteLevel" for each in splits):
        return BYTES, _of_bytes(splits), NEVER
    steps = [*flat(about.get("normalizer"), "normalizers")]
    marks = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE} in steps
    plain = [each for each in splits if not (marks and _is_of_spaces(each))]
    if marks and not plain:
        return MARKS, "none", NEVER
    if not any(each["type"] == "Metaspace" for each in plain):
        odd = next((each["type"] for each in plain), "none")
        raise unfit("pre_tokenizer", "ByteLevel, Metaspace or marks for spaces", odd)
    split, space = marks_of(plain)
    assert space in (NEVER, FIRST, ALWAYS)
    return MARKS, "text" if split == "none" else split, space


def _is_of_spaces(split: Mapping[str, Any]) -> bool:
    """Whether it splits at spaces, of which marks leave none."""
    return bool(split["type"] == "Split" and split["pattern"] == {"String": " "})


def _of_bytes(splits: Sequence[Mapping[str, Any]]) -> str:
    """A key of SPLITS."""
    kinds = tuple(each["type"] for each in splits)
    levels = [each for each in splits if each["type"] == "ByteLevel"]
    by_level = [bool(each.get("use_regex", True)) for each in levels] == [True]
    first = splits[0]
    if any(each.get("add_prefix_space") for each in levels):
        raise unfit("pre_tokenizer", "ByteLevel without a space before", "another")
    if kinds == ("ByteLevel",) and by_level:
        return "gpt2"
    if kinds == ("Digits", "ByteLevel") and by_level and first.get("individual_digits"):
        return "digits"
    if kinds == ("Split", "ByteLevel") and not by_level:
        found = _PATTERNS.get(str(first["pattern"].get("Regex")))
        # The patterns match every character: what is between their matches is nothing.
        how = str(first.get("behavior")).lower(), bool(first.get("invert"))
        if found and how in (("isolated", False), ("removed", True)):
            return found
    if kinds == _FALCON and by_level and _is_falcon(splits):
        return "falcon"
    raise InputError(
        f"{TOKENIZER}: expected words split as GPT-2, GPT-4o, Llama 3, Qwen 2, Falcon, Tekken or "
        "SmolLM do, found others; choose another model"
    )


def _is_falcon(splits: Sequence[Mapping[str, Any]]) -> bool:
    marks, _, digits, threes = splits
    return (
        str(marks["behavior"]).lower() == "contiguous"
        and not digits.get("individual_digits")
        and threes["pattern"] == {"Regex": "[0-9][0-9][0-9]"}
    )


def begins(about: Mapping[str, Any]) -> tuple[int, ...]:
    """The tokens that are put before a text."""
    return tuple(_before(about))


def _before(about: Mapping[str, Any]) -> Iterator[int]:
    for each in flat(about.get("post_processor"), "processors"):
        for part in each.get("single", ()):
            if "SpecialToken" not in part:
                return
            yield from map(int, each["special_tokens"][part["SpecialToken"]["id"]]["ids"])
