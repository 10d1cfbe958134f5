"""Operators whose method is chosen together: a chain, a region of images in one layout, a pruned
layer. Which of its methods a group gets says the knowledge base, as of single operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from edgekit.host.compiler.lowering.choice import Choice, choose_among
from edgekit.kb.tables.gemm_table import KnowledgeBase
from edgekit.kb.tables.operators import Candidate, Form, OperatorMethod
from edgekit.kb.targets.board import BoardProfile

NO_CHOICES: Mapping[str, Choice] = MappingProxyType({})


@dataclass(frozen=True)
class Group:
    """`form` is that of the operator that the group is looked up by; `members` are the names of its
    operators, `steps` those of all that run for it with one method or another."""

    name: str
    form: Form
    method: OperatorMethod
    candidates: tuple[Candidate, ...]
    choice: Choice
    members: frozenset[str]
    steps: frozenset[str]


class Groups:
    """Asks `rows` for the methods of groups on `threads`; keeps the answers in `made`, by name."""

    def __init__(self, board: BoardProfile, rows: KnowledgeBase, threads: int = 1) -> None:
        self._board, self._rows, self._threads = board, rows, threads
        self.made: dict[str, Group] = {}

    def choose(
        self,
        name: str,
        form: Form,
        candidates: Sequence[Candidate],
        members: Iterable[str],
        more_steps: Iterable[str] = (),
    ) -> OperatorMethod:
        """The method of the group of the operator `name`; the cheapest proven one without a row.
        `more_steps`: what may run for it beside its members."""
        method, choice = choose_among(self._rows, self._board, form, self._threads, candidates)
        inside = frozenset(members)
        self.made[name] = Group(
            f"{name}:{form.kind}", form, method, tuple(candidates), choice, inside,
            inside.union(more_steps),
        )  # fmt: skip
        return method


def choices_of(groups: Iterable[Group]) -> dict[str, Choice]:
    """What decided on each operator of some groups."""
    return {name: group.choice for group in groups for name in group.members}
