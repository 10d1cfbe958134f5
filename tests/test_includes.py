"""No C file of the kernels includes itself, however far around."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[1]


def test_no_c_file_includes_itself_in_the_end():
    kernels = _ROOT / "device" / "kernels"
    included = {path: set(_includes(path, kernels)) for path in kernels.rglob("*.[ch]")}
    while ends := {path for path, names in included.items() if not names & included.keys()}:
        included = {path: names for path, names in included.items() if path not in ends}
    assert not included


def _includes(path: Path, kernels: Path) -> Iterator[Path]:
    for name in re.findall(r'^\s*#\s*include "(.+)"', path.read_text(), re.MULTILINE):
        found = (folder / name for folder in (path.parent, kernels))
        yield next((place.resolve() for place in found if place.is_file()), kernels)
