"""What boards report of their float models: how often releases agree, and the ranges of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.sketch import parse_sketch
from edgekit.host.errors import InputError
from edgekit.host.fleet.profiles.query import Source, asking

if TYPE_CHECKING:
    from edgekit.host.compiler.transforms.quantize import FieldRanges, FieldTensor

_SURE = 1.645  # standard deviations of a one-sided 95% bound
_AGREEMENT = """
    SELECT release, max(model), max(measure), sum(samples), sum(agreed), count(DISTINCT board)
    FROM fields WHERE measure IS NOT NULL {where}
    GROUP BY release ORDER BY max(received) DESC, release
"""
_RANGES = """
    SELECT release, name, low, high, odd, from_low, to_high, sketch, board
    FROM fields WHERE sketch IS NOT NULL ORDER BY received, release
"""
_OF_MODEL = "SELECT name, low, high, odd, sketch FROM fields WHERE sketch IS NOT NULL"
_COUNTS = """
    SELECT sum(samples), count(DISTINCT board) FROM fields
    WHERE measure IS NOT NULL AND float_sha256 = ?
"""


@dataclass(frozen=True)
class Agreement:
    """Inferences of a release that boards repeated in float, and those that agreed: by `measure`,
    in the class, or up to a difference of 10%."""

    release: str
    model: str
    measure: str
    inferences: int
    agreed: int
    boards: int

    @property
    def share(self) -> float:
        """The fraction that agreed."""
        return self.agreed / max(self.inferences, 1)

    @property
    def at_most(self) -> float:
        """An upper bound of the agreement with 95% confidence (Wilson)."""
        n, z = max(self.inferences, 1), _SURE
        spread = z * (self.share * (1 - self.share) / n + z * z / (4 * n * n)) ** 0.5
        bound: float = (self.share + z * z / (2 * n) + spread) / (1 + z * z / n)
        return min(bound, 1.0)


@dataclass(frozen=True)
class StrayTensor:
    """A tensor with values on boards beyond the range that a release has for it. `beyond` is the
    fraction of its nonzero values that are; `odd` counts infinities and NaN."""

    release: str
    name: str
    low: float
    high: float
    from_low: float
    to_high: float
    beyond: float
    odd: int
    boards: int


def agreements(store: Source, release: str = "", boards: Sequence[str] = ()) -> list[Agreement]:
    """The agreement of each release, newest first; of one `release` and of these `boards` if
    given."""
    where = " AND release = ? AND list_contains(?, board)" if release else ""
    values = (release, list(boards)) if release else ()
    with asking(store) as views:
        rows = views.rows(_AGREEMENT.format(where=where), values)
    return [Agreement(r, model, how, int(n), int(same), of) for r, model, how, n, same, of in rows]


def stray_tensors(store: Source) -> list[StrayTensor]:
    """Tensors whose values leave the range that their release has for them, worst first in each
    release."""
    from edgekit.host.compiler.transforms.quantize import FieldTensor

    with asking(store) as views:
        rows = views.rows(_RANGES)
    found: dict[tuple[str, str], FieldTensor] = {}
    about: dict[tuple[str, str], tuple[float | None, float | None, set[str]]] = {}
    for release, name, low, high, odd, from_low, to_high, sketch, board in rows:
        key = release, name
        found.setdefault(key, FieldTensor()).add(parse_sketch(sketch), low, high, odd)
        about.setdefault(key, (from_low, to_high, set()))[2].add(board)
    strays = []
    for (release, name), tensor in found.items():
        least, most, boards = about[release, name]
        if least is None or most is None:
            continue
        step = (most - least) / 255
        if tensor.odd or tensor.low < least - step or tensor.high > most + step:
            strays.append(
                StrayTensor(
                    release,
                    name,
                    tensor.low,
                    tensor.high,
                    least,
                    most,
                    tensor.beyond(least - step, most + step),
                    tensor.odd,
                    len(boards),
                )
            )
    return sorted(strays, key=lambda each: (each.release, -each.odd, -each.beyond, each.name))


def field_ranges(store: Source, float_sha256: str, model: str) -> FieldRanges:
    """The ranges of a float model's tensors, of all boards and releases. InputError if boards have
    sent none; `model` is its file's name."""
    from edgekit.host.compiler.transforms.quantize import FieldRanges, FieldTensor

    with asking(store) as views:
        rows = views.rows(f"{_OF_MODEL} AND float_sha256 = ?", (float_sha256,))
        if not rows:
            others = views.rows("SELECT DISTINCT model FROM fields WHERE sketch IS NOT NULL")
            known = ", ".join(sorted(name for (name,) in others)[:3])
            raise InputError(
                f"--from-field: expected ranges of {model} from boards, found "
                f"{f'those of another model ({known})' if known else 'none'}; deploy it with "
                "--field-ranges, then: edgekit profile pull"
            )
        inferences, boards = views.rows(_COUNTS, (float_sha256,))[0]
    tensors: dict[str, FieldTensor] = {}
    for name, low, high, odd, sketch in rows:
        tensors.setdefault(name, FieldTensor()).add(parse_sketch(sketch), low, high, odd)
    return FieldRanges(tensors, int(boards), int(inferences))
