"""Reads tokenizers that split texts by the probabilities of pieces: "Unigram" of tokenizer.json,
and SentencePiece's in GGUF files ("t5")."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgekit.device.runtime.agent.bpe import ALWAYS, FIRST, NEVER, SPACE, UNIGRAM, BpeSpec
from edgekit.host.compiler.sidecars import TOKENIZER
from edgekit.host.errors import InputError

_SCHEMES = {"always": ALWAYS, "first": FIRST, "never": NEVER}
_PLAIN = {
    "NFC": "nfc", "NFD": "nfd", "NFKC": "nfkc", "NFKD": "nfkd", "Lowercase": "lower",
    "StripAccents": "accents",
}  # fmt: skip
_SPLITS = ("Metaspace", "WhitespaceSplit")
_RUNS = re.compile(r"( |\\s|.)(?:\{([1-9]),\}|(\+))", re.DOTALL)


def unigram_spec(about: Mapping[str, Any], before: tuple[int, ...] = ()) -> BpeSpec:
    """The tokenizer in a tokenizer.json whose model is Unigram, with the tokens `before` a text.

    Raises InputError for steps that boards have not; KeyError, TypeError, ValueError and so on for
    a damaged one.
    """
    model = about["model"]
    pieces = [str(piece) for piece, _ in model["vocab"]]
    scores = [float(score) for _, score in model["vocab"]]
    added = {int(each["id"]): each for each in about.get("added_tokens") or ()}
    for i in sorted(added):
        if i > len(pieces):
            raise ValueError("numbers of tokens that do not follow each other")
        if i == len(pieces):
            pieces.append(str(added[i]["content"]))
            scores.append(0.0)
    unknown = model.get("unk_id")
    if type(unknown) is not int or not 0 <= unknown < len(pieces):
        raise unfit("unk_id", "the number of a piece", unknown)
    if not model.get("byte_fallback") and "<0x00>" in pieces:
        raise unfit("byte_fallback", "true for a vocabulary of bytes", "false")
    steps, characters = steps_of(about.get("normalizer"))
    split, space = marks_of([*flat(about.get("pre_tokenizer"), "pretokenizers")])
    hidden = {i for i, each in added.items() if each.get("special")} | {unknown}
    return BpeSpec(
        UNIGRAM, split, tuple(pieces), (), tuple(scores), tuple(sorted(added)),
        tuple(sorted(hidden)), before, space, unknown=unknown, steps=tuple(steps),
        characters=characters, left=added_with(added, "lstrip"), right=added_with(added, "rstrip"),
        single=added_with(added, "single_word"), normalized=added_with(added, "normalized"),
    )  # fmt: skip


def added_with(added: Mapping[int, Any], key: str) -> tuple[int, ...]:
    """The added tokens of a tokenizer.json for which `key` is true: those to which spaces belong
    before them (lstrip), or behind them (rstrip), and so on."""
    return tuple(sorted(i for i, each in added.items() if each.get(key)))


def sentencepiece_steps(characters: bytes, trims: bool) -> dict[str, Any]:
    """SentencePiece's own normalizer, as fields of BpeSpec: a map of characters, empty for none,
    and whether spaces at the ends and repeated ones are dropped."""
    steps: list[tuple[str, ...]] = [("longest",)] if characters else []
    steps += [("left", " "), ("right", " "), ("runs", " ", " ", "2")] if trims else []
    return {"steps": tuple(steps), "characters": base64.b64encode(characters).decode()}


def steps_of(about: Mapping[str, Any] | None) -> tuple[list[tuple[str, ...]], str]:
    """The steps of a normalizer, and the characters that one of them replaces."""
    steps, characters = list[tuple[str, ...]](), ""
    for each in flat(about, "normalizers"):
        kind = each["type"]
        if kind in _PLAIN:
            steps.append((_PLAIN[kind],))
        elif kind == "Precompiled":
            if not each["precompiled_charsmap"]:
                continue
            if characters:
                raise unfit("normalizer", "one Precompiled step", "several")
            steps.append(("clusters",))
            characters = str(each["precompiled_charsmap"])
        elif kind == "Prepend":
            steps.append(("prepend", str(each["prepend"])))
        elif kind == "Strip":
            sides = (("left", "strip_left"), ("right", "strip_right"))
            steps += [(side, "") for side, key in sides if each.get(key)]
        elif kind == "Replace":
            steps.append(_replace(each["pattern"], str(each["content"])))
        else:
            known = ", ".join((*_PLAIN, "Precompiled", "Prepend", "Strip", "Replace"))
            raise unfit("normalizer", f"one of {known}", kind)
    return steps, characters


def _replace(pattern: Mapping[str, Any], content: str) -> tuple[str, ...]:
    if "String" in pattern:
        return "replace", str(pattern["String"]), content
    runs = _RUNS.fullmatch(str(pattern["Regex"]))
    if runs is None or runs[1] in (r"\s", ".", "^", "$", "|", "(", ")", "[", "]", "\\"):
        raise unfit("normalizer", 'Replace of a text or of runs as " {2,}"', pattern["Regex"])
    return "runs", runs[1], content, runs[2] or "1"


def marks_of(splits: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """How words are split by these steps, and where a space is put before a text."""
    kinds = [each["type"] for each in splits]
    if not kinds:
        return "none", NEVER
    if kinds not in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        odd = next((k for k in kinds if k not in _SPLITS), " and ".join(kinds))
        raise unfit("pre_tokenizer", "Metaspace, or WhitespaceSplit before it", odd)
    marks = splits[-1]
    if marks.get("replacement", SPACE) != SPACE:
        raise unfit("pre_tokenizer", f"Metaspace with {SPACE}", marks["replacement"])
    usual = "always" if marks.get("add_prefix_space", True) else "never"
    space = _SCHEMES[marks.get("prepend_scheme", usual)]
    whole = marks.get("split", True) is False
    if len(kinds) == 2:
        if space == FIRST or whole:
            raise unfit("pre_tokenizer", "Metaspace that begins and splits all words", "another")
        return "spaces", space
    return "none" if whole else "marks", space


def flat(about: Mapping[str, Any] | None, parts: str) -> Iterator[Mapping[str, Any]]:
    """The steps of a sequence, which may have others in it, or the only one."""
    if about is None:
        return
    if about["type"] != "Sequence":
        yield about
        return
    for each in about[parts]:
        yield from flat(each, parts)


def unfit(what: str, expected: str, found: object) -> InputError:
    return InputError(
        f"{TOKENIZER}: {what}: expected {expected}, found {found!s:.60}; give the tokens with "
        "--input tokens.npz"
    )


def is_unigram(about: Mapping[str, Any]) -> bool:
    """Whether a tokenizer.json has a Unigram model; older files do not say its type."""
    model = about.get("model")
    return isinstance(model, dict) and model.get("type", "Unigram" if _listed(model) else "") == (
        "Unigram"
    )


def _listed(model: Mapping[str, Any]) -> bool:
    vocabulary: Sequence[Any] | object = model.get("vocab")
    return isinstance(vocabulary, list) and "unk_id" in model
