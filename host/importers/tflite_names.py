"""Names for tensors and nodes: unique, printable, and the file's own where that is readable."""

from __future__ import annotations

from edgekit.host.importers.tflite_schema import FileSubgraph

_TENSOR_NAME_LIMIT = 200
_NODE_NAME_LIMIT = 40


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


class NodeNames:
    """Gives each node its output's name if that is short, else its kind and number."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def of(self, kind: str, index: int, outputs: tuple[str, ...]) -> str:
        short = outputs and len(outputs[0]) <= _NODE_NAME_LIMIT and outputs[0].isascii()
        own = short and not outputs[0].startswith("tensor_")
        return _unique(outputs[0] if own else f"{kind}_{index}", self._taken)


def _unique(name: str, taken: dict[str, int]) -> str:
    """`name`, or with a number behind it if another has it; `taken` counts uses of each name."""
    candidate = name
    while candidate in taken:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
    taken[candidate] = 1
    return candidate
