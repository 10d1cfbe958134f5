"""Operators whose method is chosen as a group.

Groups are chains, regions of images in one layout, and pruned layers. As for single operators, the
knowledge base selects the method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from edgekit.host.compiler.costs.methods.operators import Form, MethodCost, OperatorMethod
from edgekit.host.compiler.lowering.choice import Choice, choose_among
from edgekit.host.compiler.tables.gemm_table import KnowledgeBase
from edgekit.kb.targets.board import BoardProfile

NO_CHOICES: Mapping[str, Choice] = MappingProxyType({})


@dataclass(frozen=True)
class Group:
    """A group with its chosen method.

    `form` is the form of the operator that the group is looked up by; `members` are the names of
    its operators; `steps` also includes all steps that may run in their place.
    """

    name: str
    form: Form
    method: OperatorMethod
    candidates: tuple[MethodCost, ...]
    choice: Choice
    members: frozenset[str]
    steps: frozenset[str]


class MethodGroups:
    """Queries `rows` for the methods of groups on `threads`, and records the results by name in
    `made`."""

    def __init__(self, board: BoardProfile, rows: KnowledgeBase, threads: int = 1) -> None:
        self._board, self._rows, self._threads = board, rows, threads
        self.made: dict[str, Group] = {}

    def choose(
        self,
        name: str,
        form: Form,
        candidates: Sequence[MethodCost],
        members: Iterable[str],
        more_steps: Iterable[str] = (),
    ) -> OperatorMethod:
        """Chooses the method of the group of operator `name`: its row's, else the cheapest.

        `more_steps` are steps that may run besides its members.
        """
        method, choice = choose_among(self._rows, self._board, form, self._threads, candidates)
        inside = frozenset(members)
        self.made[name] = Group(
            f"{name}:{form.kind}", form, method, tuple(candidates), choice, inside,
            inside.union(more_steps),
        )  # fmt: skip
        return method


def choices_of(groups: Iterable[Group]) -> dict[str, Choice]:
    """The decisions on the operators of `groups`, by operator name."""
    return {name: group.choice for group in groups for name in group.members}
