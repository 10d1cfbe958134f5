"""Holds tokenizers of this kit against the library tokenizers over random texts.

    python -m tests.long.tokens [--count 100000] [--seed 1] [--only SUBSTRING]

Tokenizers of every kind that language models have are trained here, get tokens that are added in
all ways, and are read as a folder of Hugging Face and as a GGUF file. Tokens of a text must be the
library's, and joined again they must be the text that it says. Needs the package `tokenizers`.
Prints the first difference of each; exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import codecs
import json
import random
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.bpe import Bpe
from edgekit.device.runtime.agent.pieces import PieceTokenizer, pieces_of
from edgekit.device.runtime.agent.tokenizer import Tokenizer, tokenizer_of
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.hub_tokenizer import tokenizer_values
from edgekit.host.compiler.frontends.gguf.write import write_gguf
from edgekit.host.compiler.tasks.language import bpe_spec
from edgekit.host.compiler.tasks.tokenizer_file import read_tokenizer
from edgekit.host.errors import EdgekitError
from tests.support.library_tokenizers import (
    BYTE_LEVEL,
    MARKS,
    UNIGRAM,
    WORD_PIECE,
    added_tokens,
    strings,
)

Library = Any
# What GGUF files call how words are split.
_GGUF_NAMES = {
    "gpt2": "gpt-2", "starcoder": "starcoder", "llama3": "llama-bpe", "olmo2": "dbrx",
    "qwen2": "qwen2", "tekken": "tekken", "gpt-4o": "gpt-4o", "qwen3.5": "qwen35",
    "falcon": "falcon",
}  # fmt: skip
Tokens = Callable[[str], Sequence[int]]
Text = Callable[[Sequence[int]], str]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=100_000, help="texts for each tokenizer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="tokenizers whose name holds this")
    options = parser.parse_args(arguments)
    compared, wrong = 0, 0
    for name, make in {**BYTE_LEVEL, **MARKS, **UNIGRAM, **WORD_PIECE}.items():
        if options.only not in name:
            continue
        library = make()
        for added in ((), added_tokens()):
            library.add_tokens([*added])
            said = f"{name}{', tokens added' if added else ''}"
            try:
                done, found = _compared(library, name, not added, options.count // 2, options.seed)
            except EdgekitError as error:
                done, found = 0, str(error)
            compared += done
            wrong += bool(found)
            print(f"{said}: {done:,} texts{f'; {found}' if found else ''}", flush=True)
    print(f"{compared:,} texts compared, {wrong} tokenizers differ")
    return 1 if wrong else 0


def _compared(library: Library, name: str, plain: bool, count: int, seed: int) -> tuple[int, str]:
    """How many texts have the library's tokens, and the first that has not."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokenizer.json").write_text(library.to_str())
        tokens, text_of = _own(Path(folder), name in {**BYTE_LEVEL, **MARKS})
        known = _GGUF_NAMES.get(name) if plain else None
        other = _of_gguf(library, known, Path(folder)) if known else None
    # The library shows these as they are after the normalizer.
    apart = {i for i, each in library.get_added_tokens_decoder().items() if each.normalized}
    done = 0
    for text in strings(count, seed):
        wanted = library.encode(text, add_special_tokens=False).ids
        found = [*tokens(text)]
        if found != wanted:
            return done, f"{text!r}: {_difference(library, found, wanted)}"
        if other is not None and other.tokens(text) != wanted:
            return done, f"{text!r}: {_difference(library, other.tokens(text), wanted)}, in GGUF"
        if text_of is not None and not apart.intersection(wanted):
            said = library.decode(wanted, skip_special_tokens=True)
            if text_of(found) != said:
                return done, f"{text!r}: joined {text_of(found)!r}, expected {said!r}"
        done += 1
    broken = _broken(library, text_of, apart, count // 10, seed) if name in BYTE_LEVEL else ""
    return done, broken


def _broken(
    library: Library, text_of: Text | None, apart: Collection[int], count: int, seed: int
) -> str:
    """The first random tokens, whose bytes are seldom whole characters, that are streamed as
    another text. Where bytes are tokens of their own, the library replaces all of a run with a
    wrong one, which a stream cannot."""
    rng = random.Random(seed)
    among = [n for n in range(library.get_vocab_size()) if n not in apart]
    for _ in range(count):
        tokens = rng.choices(among, k=rng.randrange(1, 12))
        said = library.decode(tokens, skip_special_tokens=True)
        if text_of is not None and text_of(tokens) != said:
            return f"tokens {tokens} are {text_of(tokens)!r}, expected {said!r}"
    return ""


def _of_gguf(library: Library, name: str, folder: Path) -> Bpe:
    """As other programs write it, which leave out Hugging Face's file."""
    model = json.loads(library.to_str())["model"]
    about = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": name,
        "tokenizer.ggml.tokens": sorted(model["vocab"], key=model["vocab"].__getitem__),
        "tokenizer.ggml.token_type": [1] * len(model["vocab"]),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
    }
    write_gguf(folder / "other.gguf", about, {}, ())
    return Bpe(bpe_spec(read_gguf(folder / "other.gguf").about))


def _difference(library: Library, found: Sequence[int], wanted: Sequence[int]) -> str:
    same = next(
        (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b),
        min(len(found), len(wanted)),
    )
    shown = [[library.id_to_token(n) for n in each[max(same - 1, 0) : same + 5]]
             for each in (found, wanted)]  # fmt: skip
    return f"found {shown[0]}, expected {shown[1]}"


def _own(folder: Path, generates: bool) -> tuple[Tokens, Text | None]:
    """What makes tokens of a text, and a text of tokens."""
    if generates:
        write_gguf(folder / "m.gguf", tokenizer_values(folder, {}), {}, ())
        bpe = Bpe(bpe_spec(read_gguf(folder / "m.gguf").about))
        return bpe.tokens, lambda tokens: _joined(bpe, tokens)
    data = read_tokenizer(folder / "model.onnx")
    assert data is not None
    if b"edgekit.pieces" in data[:64]:
        pieces = pieces_of(data, "tokenizer")
        around = len(pieces.tokenizer.before), len(pieces.after)
        own: Any = PieceTokenizer(pieces)
    else:
        words = tokenizer_of(data, "tokenizer")
        around, own = (len(words.before), len(words.after)), Tokenizer(words)

    def inside(text: str) -> Sequence[int]:
        whole = own.tokens(text, 1 << 30)
        return whole[around[0] : len(whole) - around[1]]

    return inside, None


def _joined(bpe: Bpe, tokens: Sequence[int]) -> str:
    """As texts are streamed."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    parts = [decoder.decode(bpe.bytes_of(token)) for token in tokens]
    return "".join(parts) + decoder.decode(b"", final=True)


if __name__ == "__main__":
    sys.exit(main())
