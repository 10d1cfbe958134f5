"""Tokenizers of the kinds that language models have, trained by the library tokenizers on texts of
this repository, and strings that try them."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

_ROOT = Path(__file__).parents[2]
_LANGUAGES = """La température de l'été à Zürich; größer, weiß, naïve café. Привет, мир! Как дела?
東京は日本の首都です。私は学生です。 北京是中国的首都，人口很多。
서울은 대한민국의 수도이다. مرحبا بالعالم كيف حالك
שלום עולם हिन्दी में लिखा हुआ पाठ ภาษาไทย Việt Nam ﬁne Ａ１ ½ ² ① 😀🏽 👩‍👩‍👧
x = [i ** 2 for i in range(10)]
Don't you'll we're they've I'd it's HE'S 1,234.5 times 2024-05-06 ǅ ʰ İ ß ſ ™ © € £ → ∑"""
_SPACE = "\u2581"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_NEWER = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*" + _ENDS
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEGIN = r"[^\r\n\p{L}\p{N}]?"
_CASED = (
    f"{_BEGIN}{_UPPER}*{_LOWER}+%s|{_BEGIN}{_UPPER}+{_LOWER}*%s"
    r"|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _ENDS
)
_MARKED = r"[\p{L}\p{M}]"
# What splits words, as the families of models have it.
PATTERNS = {
    "llama3": _NEWER % "{1,3}",
    "qwen2": _NEWER % "",
    "tekken": _CASED % ("", "", ""),
    "gpt-4o": _CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?", "{1,3}"),
    "qwen3.5": (
        _CONTRACTIONS + rf"|{_BEGIN}{_MARKED}+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*" + _ENDS
    ),
}
_SPECIAL = ("<unk>", "<s>", "</s>")


def corpus() -> list[str]:
    """Some lines of prose, code and other languages."""
    texts = [_LANGUAGES] * 8
    for file in ("docs/guide.md", "docs/architecture.md", "README.md"):
        texts += (_ROOT / file).read_text().splitlines()
    for part in ("bpe", "task", "generate"):
        texts += (_ROOT / f"device/runtime/agent/{part}.py").read_text().splitlines()
    return texts


def added_tokens() -> list[AddedToken]:
    """Tokens that are added in all the ways there are."""
    return [
        AddedToken("<|im_end|>", special=True, normalized=False),
        AddedToken("<|im_start|>", special=True, normalized=False),
        AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
        AddedToken("<|right|>", special=True, normalized=False, rstrip=True),
        AddedToken("<|both|>", special=False, normalized=False, lstrip=True, rstrip=True),
        AddedToken("<tool_call>", special=False, normalized=False),
        AddedToken("Board", special=False, normalized=True),
        AddedToken("alone", special=False, normalized=True, single_word=True),
        AddedToken("solo", special=False, normalized=False, single_word=True),
        AddedToken("<tool>", special=False, normalized=True),
        AddedToken("[été]", special=False, normalized=True, rstrip=True),
        AddedToken("    ", special=False, normalized=True),
        AddedToken("<|im", special=False, normalized=False),
    ]


def _of_bytes(first: list[Any], use_regex: bool = True, composed: bool = False,
              ignore_merges: bool = False) -> Tokenizer:  # fmt: skip
    made = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    made.pre_tokenizer = pre_tokenizers.Sequence([*first, level]) if first else level
    if composed:
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(corpus(), trainer)
    return made


def splitter(split: str) -> Any:
    """What splits words as this kit's SPLITS of that name do."""
    names = {"gpt4o": "gpt-4o", "qwen35": "qwen3.5"}
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split in ("gpt2", "digits"))
    first = {"gpt2": [], "digits": [_DIGITS]}.get(split)
    if split == "falcon":
        return pre_tokenizers.Sequence(_FALCON)
    return pre_tokenizers.Sequence(
        [*(_split(names.get(split, split)) if first is None else first), level]
    )


def _split(name: str) -> list[Any]:
    return [pre_tokenizers.Split(Regex(PATTERNS[name]), "isolated")]


_FALCON = [
    pre_tokenizers.Punctuation("contiguous"),
    pre_tokenizers.ByteLevel(add_prefix_space=False),
    pre_tokenizers.Digits(individual_digits=False),
    pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated"),
]


def _falcon() -> Tokenizer:
    made = _of_bytes([pre_tokenizers.Punctuation("contiguous")])
    made.pre_tokenizer = pre_tokenizers.Sequence(_FALCON)
    return made


def _of_marks(normalizer: Any, pre_tokenizer: Any, fallback: bool = True) -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=fallback, fuse_unk=True))
    made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
    for_bytes = [f"<0x{byte:02X}>" for byte in range(256)] if fallback else []
    if pre_tokenizer is None:  # the trainer would take each line for a word
        made.pre_tokenizer = pre_tokenizers.Split(_SPACE, "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=1400, special_tokens=[*_SPECIAL, *for_bytes], show_progress=False,
        limit_alphabet=120,
    )  # fmt: skip
    made.train_from_iterator(corpus(), trainer)
    document = json.loads(made.to_str())
    document["added_tokens"] = document["added_tokens"][: len(_SPECIAL)]  # bytes are plain pieces
    made = Tokenizer.from_str(json.dumps(document))
    if pre_tokenizer is not None:
        made.pre_tokenizer = pre_tokenizer
    else:
        document["pre_tokenizer"] = None
        made = Tokenizer.from_str(json.dumps(document))
    made.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


def _marks(before: bool) -> Any:
    steps = [normalizers.Prepend(_SPACE)] if before else []
    return normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])


def _sentencepiece(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.normalizer, made.pre_tokenizer = normalizer, pre_tokenizer
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=900, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        unk_token="<unk>", show_progress=False,
    )  # fmt: skip
    made.train_from_iterator(corpus(), trainer)
    return made


def _bert(lower: bool) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=lower)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=names, show_progress=False)
    made.train_from_iterator(corpus(), trainer)
    return made


_DIGITS = pre_tokenizers.Digits(individual_digits=True)
_RUNS = normalizers.Replace(Regex(" {2,}"), " ")
BYTE_LEVEL: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: _of_bytes([]),
    "gpt-neox": lambda: _of_bytes([], composed=True),
    "starcoder": lambda: _of_bytes([_DIGITS]),
    "llama3": lambda: _of_bytes(_split("llama3"), False, ignore_merges=True),
    "olmo2": lambda: _of_bytes(_split("llama3"), False),
    "qwen2": lambda: _of_bytes(_split("qwen2"), False, composed=True),
    "tekken": lambda: _of_bytes(_split("tekken"), False, ignore_merges=True),
    "gpt-4o": lambda: _of_bytes(_split("gpt-4o"), False),
    "phi-4": lambda: _of_bytes(
        [pre_tokenizers.Split(Regex(PATTERNS["gpt-4o"]), "removed", invert=True)], False
    ),
    "qwen3.5": lambda: _of_bytes(_split("qwen3.5"), False, composed=True),
    "falcon": _falcon,
}
MARKS: dict[str, Callable[[], Tokenizer]] = {
    "llama2": lambda: _of_marks(_marks(True), None),
    "yi": lambda: _of_marks(_marks(False), None),
    "gemma": lambda: _of_marks(
        _marks(False), pre_tokenizers.Split(" ", "merged_with_previous")),
    "metaspace": lambda: _of_marks(None, pre_tokenizers.Metaspace(prepend_scheme="first",
                                                                  split=False)),
    "metaspace, split": lambda: _of_marks(None, pre_tokenizers.Metaspace(prepend_scheme="always")),
    "metaspace, never": lambda: _of_marks(
        normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="never", split=False)),
    "without bytes": lambda: _of_marks(_marks(True), None, fallback=False),
}  # fmt: skip
UNIGRAM: dict[str, Callable[[], Tokenizer]] = {
    "t5": lambda: _sentencepiece(_RUNS, pre_tokenizers.Metaspace(prepend_scheme="first")),
    "xlm-r": lambda: _sentencepiece(
        normalizers.Sequence([normalizers.NFKC(), _RUNS]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])),
    "albert": lambda: _sentencepiece(
        normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(),
                              normalizers.Lowercase(), _RUNS]),
        pre_tokenizers.Metaspace()),
}  # fmt: skip
WORD_PIECE: dict[str, Callable[[], Tokenizer]] = {
    "bert": lambda: _bert(True),
    "bert, cased": lambda: _bert(False),
}

_ODD = [
    *(
        "'s",
        "'LL",
        "'ſ",
        "’s",
        "\n",
        "\r\n",
        "\r",
        "\t",
        "  ",
        "   ",
        " " * 9,
        "\n\n\n",
        " \n ",
        "\v",
    ),
    *("123", "4567890", "½", "²", "٣", "१२३", "Ⅷ", "𝟙𝟚", "e\u0301", "\u0301", "\u0300\u0301", "ﬁ"),
    *(
        "😀🏽",
        "👩\u200d👩\u200d👧",
        "🇩🇪",
        "❤\ufe0f",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u00ad",
        "\u00a0",
    ),
    *("\u2028", "\u0085", "\u3000", "\x1c", "\x00", "\x07", "\x7f", "\u202e", "مرحبا", "שָׁלוֹם"),
    *(
        "한국어",
        "한",
        "ᄒ\u1161",
        "हिन्दी",
        "ภาษา",
        "東京都",
        "ｶﾞ",
        "İ",
        "ß",
        "ſ",
        "ǅ",
        "ʰ",
        "K",
        "Å",
    ),
    *("<|im_end|>", "<|im_start|>", "<|left|>", "<|right|>", "<|both|>", "<tool_call>", "Board"),
    *("alone", "solo", "<tool>", "[été]", "    ", "<|im", "<s>", "</s>", "<unk>", "<0x41>", "▁"),
    *("[MASK]", "[CLS]", "<mask>", "<pad>", "aloneness", "_alone", "soloé", "²solo", "Ⓐalone"),
    *("</", "s>", "▁the", "▁▁", "()", "{}", "=>", "!=", "...", "…", "$5", "x_1", "__init__", "//"),
    *("HTTPServer", "camelCase", "ÀÉÎ", "ΑΒΓαβγ", "ЖЖж", "iPhone", "don't", "WE'VE", "I'D"),
]


def _points() -> list[tuple[int, int]]:
    """Ranges of characters from which strings are made."""
    return [
        (0x20, 0x7F), (0x00, 0x20), (0xA0, 0x250), (0x250, 0x600), (0x600, 0xE00), (0xE00, 0x1200),
        (0x1100, 0x1200), (0xAC00, 0xD7A4), (0x2000, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3100),
        (0x4E00, 0x9FFF), (0xF900, 0xFFFE), (0x1D400, 0x1D800), (0x1F100, 0x1FAFF), (0x300, 0x370),
        (0x10000, 0x11000), (0x20000, 0x2A6E0), (0x1, 0x110000),
    ]  # fmt: skip


def strings(count: int, seed: int) -> Iterator[str]:
    """Random texts; characters that Python's oldest tables do not know are left out, since
    libraries of other years have other properties for them."""
    rng, lines = random.Random(seed), [line for line in corpus() if line.strip()]
    known = unicodedata.ucd_3_2_0.category
    ranges = _points()
    yield from ("", " ", "\n", *_ODD)
    for _ in range(count):
        kind = rng.random()
        if kind < 0.25:
            text = "".join(rng.choices(_ODD, k=rng.randrange(1, 12)))
        elif kind < 0.4:
            text = " ".join(rng.choices(_ODD, k=rng.randrange(1, 12)))
        elif kind < 0.6:
            low, high = rng.choice(ranges)
            text = "".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 16)))
        elif kind < 0.7:
            text = "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(12))
        else:
            text = rng.choice(lines)[: rng.randrange(1, 200)]
            for _ in range(rng.randrange(3)):
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.choice(_ODD) + text[at:]
        yield "".join(c for c in text if known(c) not in ("Cn", "Cs") or c in "ſ\U0001f3fd")
