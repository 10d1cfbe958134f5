"""Reads the tokenizer next to a model of texts: tokenizer.json or vocab.txt of Hugging Face."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.pieces import SCHEMA as PIECES
from edgekit.device.runtime.agent.pieces import PiecesSpec, pieces_of
from edgekit.device.runtime.agent.tokenizer import SCHEMA, TokenizerSpec, tokenizer_of
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.device.runtime.record import asdict
from edgekit.host.compiler.frontends.gguf.hub_bpe import bpe_of_hub, is_bpe
from edgekit.host.compiler.frontends.gguf.hub_unigram import (
    added_with,
    flat,
    is_unigram,
    unigram_spec,
)
from edgekit.host.compiler.sidecars import (
    TOKENIZER,
    TOKENIZER_CONFIG,
    VOCABULARY,
    config_folder,
    read_sidecar,
)
from edgekit.host.errors import InputError

_UNKNOWN, _BEFORE, _AFTER, _PADDING, _MASK = "[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"


def read_tokenizer(model: Path) -> bytes | None:
    """The file of a release with the model's tokenizer; None if there is none next to the model.

    Raises InputError for a tokenizer of another kind than WordPiece, BPE and Unigram, or one that
    is damaged.
    """
    folder = config_folder(model)
    for name, read in ((TOKENIZER, _of_json), (VOCABULARY, _of_vocabulary)):
        data = read_sidecar(folder / name)
        if data is not None:
            return _checked(folder / name, partial(read, data, folder))
    return None


def tokenizer_of_vocabulary(data: bytes, model: Path) -> bytes:
    """`read_tokenizer` for a vocabulary that the file of a model contains."""
    return _checked(model, partial(_of_vocabulary, data, config_folder(model)))


def _checked(file: Path, read: Callable[[], TokenizerSpec | PiecesSpec]) -> bytes:
    try:
        spec = read()
        schema = PIECES if isinstance(spec, PiecesSpec) else SCHEMA
        made = json.dumps({"schema": schema, **asdict(spec)}, ensure_ascii=False).encode()
        (pieces_of if schema == PIECES else tokenizer_of)(made, TOKENIZER)  # as the board does
    except (KeyError, TypeError, ValueError, RecursionError, AttributeError) as error:
        raise InputError(
            f"{file}: expected a tokenizer as the library tokenizers writes it, found a damaged "
            f"one ({type(error).__name__}: {error!s:.60})"
        ) from None
    except (DeviceInputError, StopIteration) as error:
        raise InputError(f"{file}: {error}") from None
    return made


def _of_json(data: bytes, _: Path) -> TokenizerSpec | PiecesSpec:
    about = json.loads(data)
    if is_unigram(about) or is_bpe(about):
        return _of_pieces(about)
    model = about["model"]
    kind = model.get("type", "WordPiece" if "max_input_chars_per_word" in model else "")
    if kind != "WordPiece":
        raise InputError(
            f"{TOKENIZER}: expected WordPiece, BPE or Unigram tokens, found {kind or 'others'}; "
            "give the tokens with --input tokens.npz"
        )
    added = {int(each["id"]): each for each in about.get("added_tokens") or ()}
    contents = {str(each["content"]): i for i, each in added.items()}
    pieces = _by_number({**model["vocab"], **contents})
    number = {piece: i for i, piece in enumerate(pieces)}
    before, after = _around(about.get("post_processor"))
    padding = (about.get("padding") or {}).get("pad_id", number.get(_PADDING, 0))
    return TokenizerSpec(
        pieces,
        tuple(added),
        before,
        after,
        number[model["unk_token"]],
        int(padding),
        str(model["continuing_subword_prefix"]),
        int(model["max_input_chars_per_word"]),
        **_normalizer(about.get("normalizer"), about.get("pre_tokenizer")),
        left=added_with(added, "lstrip"),
        right=added_with(added, "rstrip"),
        single=added_with(added, "single_word"),
        normalized=added_with(added, "normalized"),
    )


def _of_pieces(about: Mapping[str, Any]) -> PiecesSpec:
    before, after = _around(about.get("post_processor"))
    spec = (bpe_of_hub if is_bpe(about) else unigram_spec)(about, before)
    named = [spec.pieces.index(name) for name in ("<pad>", _PADDING) if name in spec.pieces]
    return PiecesSpec(spec, after, int((about.get("padding") or {}).get("pad_id", [*named, 0][0])))


def _of_vocabulary(data: bytes, folder: Path) -> TokenizerSpec:
    """BERT's own form: a piece per line."""
    lines = data.decode("utf-8").split("\n")
    pieces = tuple(line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1]))
    number = {piece: i for i, piece in enumerate(pieces)}
    known = [number[name] for name in (_PADDING, _UNKNOWN, _BEFORE, _AFTER)]
    config = json.loads(read_sidecar(folder / TOKENIZER_CONFIG) or b"{}")
    lower = config.get("do_lower_case", True)
    return TokenizerSpec(
        pieces,
        tuple(number[p] for p in (_PADDING, _UNKNOWN, _BEFORE, _AFTER, _MASK) if p in number),
        (known[2],),
        (known[3],),
        known[1],
        known[0],
        lower=bool(lower),
        accents=_accents(config.get("strip_accents"), lower),
        ideographs=bool(config.get("tokenize_chinese_chars", True)),
    )


def _by_number(numbers: Mapping[str, int]) -> tuple[str, ...]:
    """The pieces in order; those that are missing are empty."""
    most = max(numbers.values(), default=-1) + 1
    if not 0 < most <= 2 * len(numbers) + 1000 or min(numbers.values()) < 0:
        raise ValueError("numbers of tokens that do not follow each other")
    pieces = [""] * most
    for piece, i in numbers.items():
        pieces[i] = piece
    return tuple(pieces)


def _normalizer(about: Mapping[str, Any] | None, split: Mapping[str, Any] | None) -> dict[str, Any]:
    if (split or {}).get("type") != "BertPreTokenizer":
        raise _unknown("BertPreTokenizer", (split or {}).get("type"))
    if about is None:
        return {"clean": False, "lower": False, "accents": False, "ideographs": False}
    if about.get("type") != "BertNormalizer":
        raise _unknown("BertNormalizer", about.get("type"))
    lower = bool(about.get("lowercase"))
    return {
        "clean": bool(about.get("clean_text")),
        "lower": lower,
        "accents": _accents(about.get("strip_accents"), lower),
        "ideographs": bool(about.get("handle_chinese_chars")),
    }


def _accents(stated: object, lower: bool) -> bool:
    return bool(lower if stated is None else stated)


def _around(about: Mapping[str, Any] | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens before and after a text."""
    # ByteLevel is about where tokens begin and end.
    steps = [each for each in flat(about, "processors") if each.get("type") != "ByteLevel"]
    if not steps:
        return (), ()
    step, kind = steps[0], steps[0].get("type")
    if kind in ("BertProcessing", "RobertaProcessing") and len(steps) == 1:
        return (int(step["cls"][1]),), (int(step["sep"][1]),)
    if kind != "TemplateProcessing" or len(steps) > 1:
        raise _unknown("TemplateProcessing or BertProcessing", kind)
    at = next(i for i, each in enumerate(step["single"]) if "Sequence" in each)
    parts = step["single"][:at], step["single"][at + 1 :]
    before, after = (tuple(_special(part, step["special_tokens"])) for part in parts)
    return before, after


def _special(part: Sequence[Mapping[str, Any]], known: Mapping[str, Any]) -> Iterator[int]:
    for each in part:
        yield from map(int, known[each["SpecialToken"]["id"]]["ids"])


def _unknown(expected: str, found: object) -> InputError:
    return InputError(
        f"{TOKENIZER}: expected {expected}, as BERT has, found {found}; give the tokens with "
        "--input tokens.npz"
    )
