"""A graph that is prepared for its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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


def recognized(
    graph: Graph, task: TaskSpec, does: str, source: str, files: Mapping[str, bytes] | None = None
) -> Prepared:
    """The graph with its task; a note says what it `does` (finds boxes) and `source`."""
    note = f"{does}, {source}; --task none leaves the outputs as they are"
    return Prepared(with_note(graph, note), task, source, files or {})


def without_task(graph: Graph, note: str) -> Prepared:
    """The graph as it is, with a note of what a task would need."""
    return Prepared(with_note(graph, note), source=note)


def with_note(graph: Graph, note: str) -> Graph:
    """The graph with one more note for the user."""
    return replace(graph, notes=(*graph.notes, note))


def free_name(graph: Graph, wanted: str) -> str:
    """The wanted name, or with a number if the graph has it already."""
    number, name = 1, wanted
    while name in graph.tensors or name in graph.output_names.values():
        number += 1
        name = f"{wanted}{number}"
    return name
