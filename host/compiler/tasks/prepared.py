"""A graph that is prepared for its task."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.host.compiler.ir.types import Graph


@dataclass(frozen=True)
class Prepared:
    """A graph with the output of its task, if it has one; `source` says where the task is from."""

    graph: Graph
    task: TaskSpec | None = None
    source: str = ""


def free_name(graph: Graph, wanted: str) -> str:
    """The wanted name, or with a number if the graph has it already."""
    number, name = 1, wanted
    while name in graph.tensors or name in graph.output_names.values():
        number += 1
        name = f"{wanted}{number}"
    return name
