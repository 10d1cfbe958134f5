"""Signatures of a .tflite file: entry points with a name, a subgraph, and names for its ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tflite

from edgekit.host.compiler.frontends.tflite.flow import variables_of
from edgekit.host.compiler.frontends.tflite.schema import (
    FileSubgraph,
    TfliteFile,
    corruption,
    printable,
)
from edgekit.host.errors import InputError

_COUNT_LIMIT = 1 << 16  # signatures, and names of all of them
_LISTED = 16


@dataclass(frozen=True, eq=False)
class TfliteSignature:
    """An entry point: subgraph `number`, with names for its inputs by tensor, and the tensors of
    its outputs by name; a tensor may have several names."""

    name: str
    number: int
    inputs: Mapping[int, str]
    outputs: Mapping[str, int]

    def applied_to(self, graph: FileSubgraph) -> FileSubgraph:
        """The subgraph with the signature's names, and only its outputs. An output that shares the
        name of an input gets a similar one."""
        names, taken = {**self.inputs}, set(self.inputs.values())
        for name, index in self.outputs.items():
            if index in names:
                continue  # an input that is passed through, or an output with another name
            while name in taken:
                name += "_out"
            names[index] = name
            taken.add(name)
        tensors = [replace(t, name=names.get(i, t.name)) for i, t in enumerate(graph.tensors)]
        outputs = tuple(self.outputs.values()) or graph.outputs
        return replace(graph, tensors=tuple(tensors), outputs=outputs)


def signatures_of(content: bytes, model: TfliteFile) -> tuple[TfliteSignature, ...]:
    """The signatures of a file, in order. Raises `InputError` if one of several is corrupt; a
    corrupt one that is the only one is ignored, since nobody needs it."""
    with corruption("the signatures"):
        tables = list(_tables(tflite.Model.GetRootAs(content, 0), "SignatureDefs"))
    try:
        with corruption("the signatures"):
            found = tuple(_read(table, model) for table in tables)
    except InputError:
        if len(tables) == 1:
            return ()
        raise
    names = [signature.name for signature in found]
    if len(set(names)) != len(names) or (len(names) > 1 and not all(names)):
        raise InputError(f"expected signatures with distinct names, found {', '.join(names)}")
    return found


def chosen_signature(signatures: Sequence[TfliteSignature], name: str) -> TfliteSignature | None:
    """The signature of that name; without a name None, for a file that has at most one."""
    found = next((s for s in signatures if s.name == name), None)
    if found is None and (name or len(signatures) > 1):
        raise InputError(
            f"expected --signature with one of {_listed(s.name for s in signatures)}, found "
            f"{name or 'none'}"
        )
    return found if name else None


def need_own_variables(model: TfliteFile, chosen: Sequence[TfliteSignature]) -> None:
    """Refuses signatures that share a variable which one of them changes: each gets a state of its
    own in a release."""
    used = [(signature.name, *variables_of(model, signature.number)) for signature in chosen]
    for writer, _, written in used:
        for other, read, also in used:
            if writer != other and (shared := sorted(written & (read | also))):
                raise InputError(
                    f"expected signatures without common state, found that {writer} changes "
                    f"variable {shared[0]} of {other}; choose one: --signature {other}"
                )


def _read(table: Any, model: TfliteFile) -> TfliteSignature:
    name, number = _text(table.SignatureKey()), table.SubgraphIndex()
    if number >= len(model.subgraphs):
        raise InputError(
            f"signature {name}: expected a subgraph below {len(model.subgraphs)}, found {number}"
        )
    graph = model.subgraphs[number]
    ends = []
    for kind, there in (("Inputs", graph.inputs), ("Outputs", graph.outputs)):
        pairs = [(_text(t.Name()), t.TensorIndex()) for t in _tables(table, kind)]
        names = [text for text, _ in pairs]
        distinct = len(set(names)) == len(pairs)
        once = kind == "Outputs" or len({i for _, i in pairs}) == len(pairs)
        if not (distinct and once and all(names) and all(i in there for _, i in pairs)):
            raise InputError(
                f"signature {name}: expected a name for each of the {kind.lower()} of subgraph "
                f"{number}, found {_listed(names)}"
            )
        ends.append(dict(pairs))
    return TfliteSignature(name, number, {i: text for text, i in ends[0].items()}, ends[1])


def _tables(parent: Any, field: str) -> Iterator[Any]:
    length: int = getattr(parent, f"{field}Length")()
    if length > _COUNT_LIMIT:
        raise InputError(f"expected at most {_COUNT_LIMIT} names in a signature, found {length}")
    get: Callable[[int], Any] = getattr(parent, field)
    return (get(i) for i in range(length))


def _text(raw: bytes | None) -> str:
    return printable((raw or b"")[:200].decode("utf-8", "replace"))


def _listed(names: Any) -> str:
    found = list(names)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return (", ".join(found[:_LISTED]) or "none") + more
