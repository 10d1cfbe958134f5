"""A graph that is prepared for its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.host.compiler.ir.types import Graph


@dataclass(frozen=True)
class Prepared:
    """A graph with the output of its task, if it has one; `source` says where the task is from.
    `files` go into the release with it."""

    graph: Graph
    task: TaskSpec | None = None
    source: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


def free_name(graph: Graph, wanted: str) -> str:
    """The wanted name, or with a number if the graph has it already."""
    number, name = 1, wanted
    while name in graph.tensors or name in graph.output_names.values():
        number += 1
        name = f"{wanted}{number}"
    return name
