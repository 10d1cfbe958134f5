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
    taken: set[str] = set()
    names = [""] * count
    for index in order:
        name = graph.tensors[index].name
        readable = name.isprintable() and 0 < len(name) <= _TENSOR_NAME_LIMIT
        names[index] = _unique(name if readable else f"tensor_{index}", taken)
    return names


class NodeNames:
    """Gives each node its output's name if that is short, else its kind and number."""

    def __init__(self, tensors: set[str]) -> None:
        self._tensors = tensors
        self._taken: set[str] = set()

    def of(self, kind: str, index: int, outputs: tuple[str, ...]) -> str:
        short = outputs and len(outputs[0]) <= _NODE_NAME_LIMIT and outputs[0].isascii()
        return _unique(outputs[0] if short else f"{kind}_{index}", self._taken)


def _unique(name: str, taken: set[str]) -> str:
    """`name`, or with a number behind it if another has it; adds it to `taken`."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}_{number}", number + 1
    taken.add(candidate)
    return candidate
