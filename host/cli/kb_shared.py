"""What the commands of `edgekit lab kb` share: the board that is meant, and how a method reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgekit.host.cli.options import board_name

if TYPE_CHECKING:
    from edgekit.kb.features import Sequences
    from edgekit.kb.tables.method import Method
    from edgekit.kb.tables.operators import OperatorMethod
    from edgekit.kb.targets.board import BoardProfile


def profile(board: str | None) -> BoardProfile:
    """The profile of the board that is meant, or that is named: also one for others to inherit."""
    from edgekit.host.deploy.connections import profile_of
    from edgekit.kb.targets.board import LOCAL, load_board, load_profile

    name = profile_of(board_name(board))
    return load_board(name) if name == LOCAL else load_profile(name)


def is_learned(sequences: Sequences) -> bool:
    """Whether a table uses other sequences than those of the patent."""
    from edgekit.kb.features import Sequences as Default

    return sequences != Default(tie=sequences.tie)


def method_text(method: Method | None) -> str:
    """A method in one line for people; None: a row that has none."""
    if method is None:
        return "the analytic one"
    packed = "+".join(n for n in ("a", "b") if getattr(method, f"pack_{n}")) or "nothing"
    blocks = f"blocks {method.mc} x {method.kc} x {method.nc}"
    tile = f"tile {method.mr} x {method.nr}"
    return f"{blocks}, {tile}, packs {packed}, threads share {method.split}"


def operator_text(method: OperatorMethod | None) -> str:
    """How an operator of a model multiplies, in some words; None: a row that has no method."""
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
