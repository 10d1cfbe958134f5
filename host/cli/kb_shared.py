"""Helpers for `edgekit lab kb`: board selection, and methods as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.host.cli.options import board_name

if TYPE_CHECKING:
    from edgekit.host.compiler.costs.methods.gemm import Method
    from edgekit.host.compiler.costs.methods.operators import OperatorMethod
    from edgekit.kb.features import Sequences
    from edgekit.kb.targets.board import BoardProfile


def profile(board: str | None) -> BoardProfile:
    """The profile of the given or default board; also accepts base profiles that others inherit."""
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import LOCAL, load_board, load_profile

    name = profile_of(board_name(board))
    return load_board(name) if name == LOCAL else load_profile(name)


def is_learned(sequences: Sequences) -> bool:
    """Whether a table uses sequences other than the patent's."""
    from edgekit.kb.features import Sequences as Default

    return sequences != Default(tie=sequences.tie)


def method_text(method: Method | None) -> str:
    """A method as one line of text; None is a row without a method."""
    if method is None:
        return "the analytic one"
    packed = "+".join(n for n in ("a", "b") if getattr(method, f"pack_{n}")) or "nothing"
    blocks = f"blocks {method.mc} x {method.kc} x {method.nc}"
    tile = f"tile {method.mr} x {method.nr}"
    return f"{blocks}, {tile}, packs {packed}, threads share {method.split}"


def operator_text(method: OperatorMethod | None) -> str:
    """An operator's method as text; None is a row without a method."""
    if method is None:
        return "the rule without a row"
    walk = ", channels last" if method.split == "n" else ""
    tile = "" if method.mr is None else f" {method.mr} x {method.nr}"
    blocks = "" if method.kc is None else f", {method.kc} of k at a time"
    bands = "" if method.band is None else f", {_band_text(method.band)}"
    several = "" if method.members == 1 else f" of {method.members}"
    return f"{method.family}{several}{tile}{blocks}{walk}{bands}"


def _band_text(quarters: int) -> str:
    if quarters == 0:
        return "all rows at a time"
    share = {1: "a quarter", 2: "half", 4: "all"}[quarters]
    return f"rows in bands of {share} of the last cache"
