"""The outline of a GGUF file: its tensors, and the inputs and outputs of their network."""

from __future__ import annotations

import math
from pathlib import Path

from edgekit.host.compiler.frontends.common.outline import Outline, Slot
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.importer import EMBEDDINGS, LOGITS, POSITION, TOKENS


def outline_gguf(path: Path) -> Outline:
    """Raises `InputError` for unreadable files."""
    file = read_gguf(path)
    counts = [math.prod(info.shape) for info in file.tensors.values()]
    embeddings = file.tensors.get(EMBEDDINGS)
    words = None if embeddings is None else embeddings.shape[0]
    matrices = [info for info in file.tensors.values() if len(info.shape) == 2]
    tied = embeddings is not None and "output.weight" not in file.tensors
    products = [info for info in matrices if tied or info.name != EMBEDDINGS]
    return Outline(
        "GGUF",
        (Slot(TOKENS, "s32", (1, 1)), Slot(POSITION, "s32", (1,))),
        (Slot(LOGITS, "f32", (1, words)),),
        (),
        (),
        frozenset(),
        sum(counts),
        sum(info.bytes for info in file.tensors.values()),
        sum(math.prod(info.shape) for info in products),
        None,
    )
