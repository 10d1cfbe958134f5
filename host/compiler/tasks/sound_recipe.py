"""How a model's features of sound are computed, and what its other inputs are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.host.compiler.options import Shapes
from edgekit.host.compiler.sidecars import SPEECH_TOKENS
from edgekit.host.compiler.tasks.feature_rows import Features
from edgekit.host.compiler.tasks.features import Scaled


@dataclass(frozen=True)
class Recipe:
    """What the `input` of a model is, in so many `rows`, and what becomes of it: `scaled` of each
    number. `others` are the values of its other inputs, None that of the rows. `skipped`: places
    before the words; `whose`: who takes the features so; `across`: rows are along the last axis of
    the input; `tokens`: files that may list those of speech."""

    task: str
    input: str
    features: Features
    rows: int
    whose: str
    others: Mapping[str, int | None] = field(default_factory=dict)
    scaled: Scaled = ()
    skipped: int = 0
    across: bool = False
    tokens: tuple[str, ...] = (SPEECH_TOKENS,)

    @property
    def shapes(self) -> Shapes:
        width = self.features.width
        shape = (1, width, self.rows) if self.across else (1, self.rows, width)
        return {self.input: shape, **dict.fromkeys(self.others, (1,))}
