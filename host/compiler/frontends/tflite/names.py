"""Names for tensors: unique, printable, and the file's own where that is readable."""

from __future__ import annotations

from edgekit.host.compiler.frontends.tflite.schema import FileSubgraph

_TENSOR_NAME_LIMIT = 200


def tensor_names(graph: FileSubgraph) -> list[str]:
    """One name per tensor; graph inputs and outputs keep the file's name if that is unique."""
    ends = dict.fromkeys((*graph.inputs, *graph.outputs))
    count = len(graph.tensors)
    order = [*(i for i in ends if 0 <= i < count), *(i for i in range(count) if i not in ends)]
    taken: dict[str, int] = {}
    names = [""] * count
    for index in order:
        name = graph.tensors[index].name
        readable = name.isprintable() and 0 < len(name) <= _TENSOR_NAME_LIMIT
        names[index] = _unique(name if readable else f"tensor_{index}", taken)
    return names


def _unique(name: str, taken: dict[str, int]) -> str:
    """`name`, or with a number behind it if another has it; `taken` counts uses of each name."""
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 1
    return candidate
