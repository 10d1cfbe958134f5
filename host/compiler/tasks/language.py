"""Reads how a language model reads texts: the tokenizer and the chat template of a GGUF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edgekit.device.runtime.agent.bpe import ALWAYS, BYTES, MARKS, NEVER, UNIGRAM, BpeSpec
from edgekit.device.runtime.agent.language import SCHEMA, ChatSpec, LanguageSpec, language_of
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.device.runtime.record import asdict
from edgekit.host.compiler.frontends.gguf.hub_bpe import begins, bpe_of_hub, is_bpe
from edgekit.host.compiler.frontends.gguf.hub_tokenizer import WHOLE
from edgekit.host.compiler.frontends.gguf.hub_unigram import (
    sentencepiece_steps,
    unigram_spec,
)
from edgekit.host.errors import InputError

# Token types of GGUF files.
_UNKNOWN, _CONTROL, _OWN, _UNUSED = 2, 3, 4, 5
# How words are split, by the names that GGUF files have for it.
_SPLITS = {
    **dict.fromkeys(
        ("gpt-2", "gpt2", "phi-2", "olmo", "jais", "mpt", "dbrx-gpt2", "exaone4", "trillion"),
        "gpt2"),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        "digits"),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "dbrx",
         "smaug-bpe", "chatglm-bpe", "glm4"), "llama3"),
    **dict.fromkeys(
        ("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan", "grok-2"), "qwen2"),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), "gpt4o"),
    "qwen35": "qwen35", "tekken": "tekken", "falcon": "falcon",
}  # fmt: skip
# Names of tokenizers that keep words, and put a token before texts.
_WHOLE = (
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2", "tekken",
)  # fmt: skip
_COMPOSED = ("qwen2", "qwen35", "stablelm2", "megrez")  # names of those that use NFC
_ENDS = (
    "<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "<end_of_turn>", "<eos>",
    "</s>", "<|end|>", "<|eom_id|>",
)  # fmt: skip
_PREFIX = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"


def language_file(about: Mapping[str, Any], words: int, context: int) -> tuple[bytes, str]:
    """The file of a release, and why it has no form for conversations, or nothing.

    `words`: of the model. Raises InputError for a tokenizer that the board has not.
    """
    tokenizer = bpe_spec(about)
    if len(tokenizer.pieces) > words:
        raise InputError(
            f"{_PREFIX}tokens: expected at most the model's {words} tokens, found "
            f"{len(tokenizer.pieces)}; the file is damaged"
        )
    numbers = {piece: i for i, piece in enumerate(tokenizer.pieces)}
    stated = [about.get(f"{_PREFIX}{name}_token_id") for name in ("eos", "eot", "eom")]
    ends = {n for n in stated if type(n) is int and 0 <= n < len(tokenizer.pieces)}
    ends |= {numbers[piece] for piece in _ENDS if piece in numbers}
    chat, why = _chat(about, tokenizer)
    spec = LanguageSpec(tokenizer, tuple(sorted(ends)), context, chat)
    made = json.dumps({"schema": SCHEMA, **asdict(spec)}, ensure_ascii=False).encode()
    try:
        language_of(made, _PREFIX.rstrip("."))  # as the board will check it
    except DeviceInputError as error:
        raise InputError(str(error)) from None
    return made, why


def bpe_spec(about: Mapping[str, Any]) -> BpeSpec:
    """The tokenizer in the metadata of a GGUF file. Raises InputError for one that the board has
    not."""
    model = about.get(f"{_PREFIX}model")
    if model not in ("gpt2", "llama", "t5"):
        raise InputError(
            f"{_PREFIX}model: expected gpt2, llama or t5, whose tokenizers run on boards, found "
            f"{model!r:.40}; --task none gives the logits of tokens"
        )
    pieces = _texts(about, "tokens")
    if isinstance(about.get(WHOLE), str):
        try:
            return _of_hub(about, pieces)
        except InputError:
            if not {f"{_PREFIX}scores", f"{_PREFIX}merges"} & {*about}:
                raise
    kinds = about.get(f"{_PREFIX}token_type", [1] * len(pieces))
    if not isinstance(kinds, list) or len(kinds) != len(pieces):
        raise _misfit("token_type", len(pieces))
    special = tuple(i for i, kind in enumerate(kinds) if kind in (_CONTROL, _OWN) and pieces[i])
    hidden = tuple(i for i, kind in enumerate(kinds) if kind in (_UNKNOWN, _CONTROL, _UNUSED))
    first = about.get(f"{_PREFIX}bos_token_id")
    if model in ("llama", "t5"):
        scores = about.get(f"{_PREFIX}scores", [])
        if not isinstance(scores, list) or len(scores) != len(pieces):
            raise _misfit("scores", len(pieces))
        if not all(type(score) in (int, float) and score == score for score in scores):
            raise InputError(
                f"{_PREFIX}scores: expected numbers, found others; the file is damaged"
            )
        spaced = about.get(f"{_PREFIX}add_space_prefix", True)
        before = _before(first, about.get(f"{_PREFIX}add_bos_token", True), pieces)
        unknown = about.get(f"{_PREFIX}unknown_token_id", -1)
        steps = _steps(about) if model == "t5" else {}
        return BpeSpec(
            UNIGRAM if model == "t5" else MARKS, "none", pieces, (), tuple(map(float, scores)),
            special, hidden, before, ALWAYS if spaced else NEVER,
            unknown=unknown if type(unknown) is int and unknown < len(pieces) else -1, **steps,
        )  # fmt: skip
    name = about.get(f"{_PREFIX}pre", "gpt2")
    if name not in _SPLITS:
        raise InputError(
            f"{_PREFIX}pre: expected one of {', '.join(sorted(_SPLITS))}, found {name!r:.40}; "
            "--task none gives the logits of tokens"
        )
    split = _SPLITS[name]
    before = _before(first, about.get(f"{_PREFIX}add_bos_token", name in _WHOLE), pieces)
    merges = _merges(_texts(about, "merges"), pieces)
    return BpeSpec(
        BYTES, split, pieces, merges, (), special, hidden, before,
        whole=name in _WHOLE, composed=name in _COMPOSED,
    )  # fmt: skip


def _steps(about: Mapping[str, Any]) -> dict[str, Any]:
    """SentencePiece's normalizer, which files keep as a list of bytes, signed or not."""
    key = f"{_PREFIX}precompiled_charsmap"
    trims = bool(about.get(f"{_PREFIX}remove_extra_whitespaces", True))
    try:
        return sentencepiece_steps(bytes(byte & 255 for byte in about.get(key) or ()), trims)
    except TypeError:
        raise InputError(f"{key}: expected a list of bytes, found others") from None


def _of_hub(about: Mapping[str, Any], pieces: Sequence[str]) -> BpeSpec:
    """The tokenizer of Hugging Face, which says more than GGUF's own metadata."""
    first, added = (about.get(f"{_PREFIX}{key}") for key in ("bos_token_id", "add_bos_token"))
    try:
        document = json.loads(about[WHOLE])
        before = begins(document) or _before(first, added, pieces)
        return (bpe_of_hub if is_bpe(document) else unigram_spec)(document, before)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{WHOLE}: expected BPE or Unigram, found a damaged one ({error!s:.60})"
        ) from None


def _before(first: Any, added: Any, pieces: Sequence[str]) -> tuple[int, ...]:
    return (first,) if added and type(first) is int and 0 <= first < len(pieces) else ()


def _merges(lines: Sequence[str], pieces: Sequence[str]) -> tuple[int, ...]:
    numbers = {piece: i for i, piece in reversed([*enumerate(pieces)])}
    found: list[int] = []
    for line in lines:
        left, _, right = line.partition(" ")
        if left not in numbers or right not in numbers:
            raise InputError(f"{_PREFIX}merges: expected pairs of tokens, found {line!r:.40}")
        found += (numbers[left], numbers[right])
    return tuple(found)


def _texts(about: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = about.get(f"{_PREFIX}{name}")
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise InputError(f"{_PREFIX}{name}: expected a list of texts, found {found!r:.40}")
    return tuple(found)


def _misfit(name: str, count: int) -> InputError:
    return InputError(f"{_PREFIX}{name}: expected a list of {count} values, found another")


def _chat(about: Mapping[str, Any], tokenizer: BpeSpec) -> tuple[ChatSpec | None, str]:
    template = about.get(_TEMPLATE)
    if not isinstance(template, str):
        return None, "it has no chat template"

    def piece(name: str) -> str:
        number: Any = about.get(f"{_PREFIX}{name}_token_id")
        known = isinstance(number, int) and 0 <= number < len(tokenizer.pieces)
        return tokenizer.pieces[number] if known else ""

    from edgekit.host.compiler.tasks.chat import chat_of  # imports Jinja

    return chat_of(template, piece("bos"), piece("eos"), bool(tokenizer.before))
