"""Texts as inputs of a model that has a tokenizer."""

from __future__ import annotations

import struct
from typing import Dict, Optional, Sequence

from edgekit.device.runtime.agent.manifest import Manifest, Variant
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.pieces import PieceTokenizer, are_pieces, pieces_of
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.task import GENERATE, TaskSpec
from edgekit.device.runtime.agent.tokenizer import Tokenizer, tokenizer_of
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import InputError


class Texts:
    """Makes inputs of texts: for the variant with the fewest tokens that hold the text, or cut for
    the one with most."""

    def __init__(self, manifest: Manifest, files: ReleaseFiles) -> None:
        self._task = text_task(manifest.task)
        data = files.read(self._task.tokenizer)
        self._tokenizer = (
            PieceTokenizer(pieces_of(data, "tokenizer"))
            if are_pieces(data)
            else Tokenizer(tokenizer_of(data, "tokenizer"))
        )
        self._variants = sorted(
            (v for v in manifest.every_variant() if self._spec(v, self._task.input) is not None),
            key=lambda v: v.shapes[self._task.input],
        )

    def inputs(self, value: str) -> Dict[str, Array]:
        """The inputs of the model, by name."""
        lengths = [variant.shapes[self._task.input][-1] for variant in self._variants]
        found = len(self._tokenizer.tokens(value, lengths[-1]))
        at = next(i for i, length in enumerate(lengths) if length >= found)
        tokens, mask = self._tokenizer.padded(value, lengths[at])
        given = {
            self._task.input: tokens,
            self._task.mask: mask,
            self._task.segments: [0] * len(tokens),
        }
        return {spec.name: _array(spec, given[spec.name]) for spec in self._variants[at].inputs}

    @staticmethod
    def _spec(variant: Variant, name: str) -> Optional[TensorSpec]:
        return next((spec for spec in variant.inputs if spec.name == name), None)


def text_task(task: Optional[TaskSpec]) -> TaskSpec:
    """The task of a model of texts; InputError for others."""
    if task is None or not task.tokenizer or task.kind == GENERATE:
        raise InputError(
            "expected a model of texts, found one without a tokenizer or one "
            "that continues texts; compile it with its tokenizer.json next to it"
        )
    return task


def _array(spec: TensorSpec, values: Sequence[int]) -> Array:
    code = BY_NAME[spec.dtype].code
    return Array(spec.dtype, spec.shape, struct.pack(f"<{len(values)}{code}", *values))
