"""The tokenizer of a model of texts whose tokens are pieces by probability, as XLM-R has them, or
joined pairs, as RoBERTa and ModernBERT have."""

from __future__ import annotations

from typing import List, Tuple

from edgekit.device.runtime.agent.bpe import Bpe, BpeSpec, bpe_of
from edgekit.device.runtime.agent.strict import each, file_keys, integer
from edgekit.device.runtime.record import Record

SCHEMA = "edgekit.pieces/1"


class PiecesSpec(Record):
    """`after` are the tokens behind a text, `padding` fills the rest."""

    tokenizer: BpeSpec
    after: Tuple[int, ...]
    padding: int


def are_pieces(data: bytes) -> bool:
    """Whether a release's file has this kind of tokenizer; its schema comes first."""
    return SCHEMA.encode() in data[:64]


def pieces_of(data: bytes, where: str) -> PiecesSpec:
    """Checks the file of a release."""
    keys = file_keys(data, where, SCHEMA, PiecesSpec.field_names)
    spec = bpe_of(keys["tokenizer"], f"{where}.tokenizer")
    last = len(spec.pieces) - 1

    def number(value: object, name: str) -> int:
        return integer(value, name, 0, last)

    after = each(keys["after"], f"{where}.after", number)
    return PiecesSpec(spec, after, number(keys["padding"], f"{where}.padding"))


class PieceTokenizer:
    """`spec` prepared for look-ups; it is used like `Tokenizer`."""

    def __init__(self, spec: PiecesSpec) -> None:
        self._spec, self._pieces = spec, Bpe(spec.tokenizer)

    def tokens(self, value: str, most: int) -> List[int]:
        """The numbers of at most `most` tokens of a text, with those around it; what is longer is
        cut."""
        before, after = self._spec.tokenizer.before, self._spec.after
        room = max(most - len(before) - len(after), 0)
        return [*before, *self._pieces.tokens(value)[:room], *after][:most]

    def padded(self, value: str, length: int) -> Tuple[List[int], List[int]]:
        """The tokens of a text, padded to `length`, and a mask with 1 for each that counts."""
        found = self.tokens(value, length)
        rest = length - len(found)
        return found + [self._spec.padding] * rest, [1] * len(found) + [0] * rest
