"""Resolves input shapes that a file leaves open: from options, by inference, or by asking.

An open batch defaults to 1. All other open shapes are requested in one error, with plausible sizes
for each input (`proposals.py`) as a command line to paste.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.common.proposals import PROPOSALS, Dims, propose
from edgekit.host.compiler.ir.types import DType, Shape
from edgekit.host.errors import InputError

Shapes = Mapping[str, Shape]

# Names of a first dimension that is a batch, including names that exporters generate.
_BATCH = re.compile(r"n|b|bs|.*batch.*|unk__\d+|.*dynamic.*|.*dim_0|s\d+|d0")
_NO_NAMES = ("", "?", "-1", "none", "unk", "unknown", "dynamic")  # may denote different sizes
_SHOWN, _LISTED = 80, 40
_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class OpenInput:
    """An input as declared: `shape` has None or a name for open dimensions, and is None if even the
    rank is unknown."""

    name: str
    dtype: DType
    shape: tuple[int | str | None, ...] | None


@dataclass(frozen=True)
class StoredInput:
    """An input that has the shape `stored` unless another is given; `open` flags the dimensions the
    file declares as open."""

    name: str
    dtype: DType
    stored: Shape
    open: tuple[bool, ...]


@dataclass(frozen=True)
class FixedShapes:
    """One shape per input. `notes` report defaults that were chosen; `hints` is the subset that may
    explain why operators do not fit."""

    shapes: Shapes
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


class OpenShapesError(InputError):
    """Requests the shapes of the open inputs, with a command line that supplies plausible ones."""

    def __init__(self, inputs: Sequence[OpenInput], given: Shapes, file: str, turn: int = 0):
        self._asked = inputs, given, file
        self.proposed, message = _propose_shapes(inputs, given, file, turn)
        super().__init__(message)

    def others(self) -> Iterator[OpenShapesError]:
        """The same request with less plausible shapes, without duplicates."""
        seen = [self.proposed]
        for turn in range(1, PROPOSALS):
            other = OpenShapesError(*self._asked, turn)
            if other.proposed not in seen:
                seen.append(other.proposed)
                yield other


def fix_shapes(inputs: Sequence[OpenInput], given: Shapes, file: str) -> FixedShapes:
    """Resolves the shapes of `inputs`; `given` are those from the command line.

    A dimension name denotes the same size in all inputs. `file` is the model path as the user typed
    it, for the suggested command line. `OpenShapesError` lists all inputs that are still open.
    """
    _check_given(inputs, given)
    stated = {i.name: _known_dims(i) for i in inputs}
    sizes = _named_sizes(stated, given)
    batches = _set_batches(inputs, stated, sizes, given)
    shapes: dict[str, Shape] = dict(given)
    open_ones = []
    for item in inputs:
        if item.name in given:
            continue
        dims = _substitute_sizes(stated[item.name], sizes)
        shape = tuple(d for d in dims or () if isinstance(d, int))
        if dims is None or len(shape) != len(dims):
            open_ones.append(OpenInput(item.name, item.dtype, dims))
        shapes[item.name] = shape
    if open_ones:
        raise OpenShapesError(open_ones, given, file)
    return FixedShapes({i.name: shapes[i.name] for i in inputs}, _batch_notes(batches, shapes))


def resize(inputs: Sequence[StoredInput], given: Shapes, file: str) -> FixedShapes:
    """The given or else the stored shape of each input.

    Any shape is accepted here; a shape that does not fit fails in the operators.
    """
    _check_names([i.name for i in inputs], given)
    left = [i for i in inputs if i.name not in given and any(i.open)]
    stored = {i.name: i.stored for i in inputs}
    batches = [i.name for i in left if not any(i.open[1:]) and i.stored[0] == 1]
    hints = tuple(_format_size_note(i, file) for i in left if i.name not in batches)
    return FixedShapes({**stored, **given}, (*_batch_notes(batches, stored), *hints), hints)


def _format_size_note(item: StoredInput, file: str) -> str:
    """A note on the size an open shape gets, with an option for a more plausible one."""
    batch = item.open[0] and len(item.open) > 1 and item.stored[0] == 1
    dims = tuple(
        None if is_open and not (batch and i == 0) else size
        for i, (size, is_open) in enumerate(zip(item.stored, item.open, strict=True))
    )
    other = f"{item.name}={_format_shape(propose(item.name, item.dtype, dims, file))}"
    return (
        f"the shape of input {_printable_name(item.name)} [{_shown_dims(dims)}] is open and "
        f"becomes [{_format_shape(item.stored)}]; for another one: "
        f"{shlex.join(['--input-shape', other])}"
    )


def _known_dims(item: OpenInput) -> Dims | None:
    """Dimensions with None where they are open and have no distinctive name."""
    if item.shape is None:
        return None
    return tuple(
        (d if d > 0 else None)
        if isinstance(d, int)
        else (None if d is None or d.lower() in _NO_NAMES else d)
        for d in item.shape
    )


def _check_given(inputs: Sequence[OpenInput], given: Shapes) -> None:
    stated = {i.name: _known_dims(i) for i in inputs}
    _check_names([*stated], given)
    for name, shape in given.items():
        dims = stated[name]
        if dims is not None and (
            len(shape) != len(dims)
            or any(isinstance(d, int) and d != g for d, g in zip(dims, shape, strict=True))
        ):
            raise InputError(
                f"--input-shape {_printable_name(name)}: expected a shape that fits "
                f"[{_shown_dims(dims)}], found {list(shape)}"
            )


def _check_names(names: Sequence[str], given: Shapes) -> None:
    for name in given:
        if name not in names:
            listed = ", ".join(_printable_name(n) for n in names[:_LISTED])
            raise InputError(
                f"--input-shape: expected one of the inputs {listed}, found {_printable_name(name)}"
            )


def _named_sizes(stated: Mapping[str, Dims | None], given: Shapes) -> dict[str, int]:
    """Sizes of dimension names, derived from the given shapes; a name with two sizes is dropped."""
    found: dict[str, set[int]] = {}
    for name, shape in given.items():
        for dim, size in zip(stated[name] or (), shape, strict=False):
            if isinstance(dim, str):
                found.setdefault(dim, set()).add(size)
    return {dim: sizes.pop() for dim, sizes in found.items() if len(sizes) == 1}


def _set_batches(
    inputs: Iterable[OpenInput],
    stated: dict[str, Dims | None],
    sizes: dict[str, int],
    given: Shapes,
) -> list[str]:
    """Sets open batches to 1, in `stated` and by name in `sizes`; returns the inputs affected."""
    found = []
    for item in inputs:
        dims = stated[item.name]
        if item.name in given or not dims:
            continue
        first = dims[0]
        named = isinstance(first, str)
        if (named and first in sizes) or not _is_batch(dims):
            continue
        if isinstance(first, str):
            sizes[first] = 1
        stated[item.name] = (1, *dims[1:])
        found.append(item.name)
    for dims in stated.values():  # "batch" is a batch on any axis, as in LSTM states
        for dim in dims or ():
            if isinstance(dim, str) and "batch" in dim.lower() and dim.isidentifier():
                sizes.setdefault(dim, 1)
    return found


def _is_batch(dims: Dims) -> bool:
    """Whether the first dimension of an input is an open batch."""
    first = dims[0]
    if isinstance(first, int):
        return False
    if isinstance(first, str) and "batch" in first.lower():
        return True
    picture = len(dims) == 3 and dims[2] in _CHANNELS and not isinstance(dims[1], int)
    known = first is None or _BATCH.fullmatch(first.lower()) is not None
    return known and len(dims) > 1 and not picture


def _substitute_sizes(dims: Dims | None, sizes: Mapping[str, int]) -> Dims | None:
    if dims is None:
        return None
    return tuple(sizes.get(d, d) if isinstance(d, str) else d for d in dims)


def _propose_shapes(
    open_ones: Sequence[OpenInput], given: Shapes, file: str, turn: int
) -> tuple[Shapes, str]:
    """Proposed shapes for the open inputs, and a command line with them; each dimension name is
    asked for once."""
    sizes: dict[str, int] = {}
    shapes = dict(given)
    options = [f"{name}={_format_shape(shape)}" for name, shape in given.items()]
    for item in open_ones:
        dims = _substitute_sizes(item.shape, sizes)
        if dims is not None and all(isinstance(d, int) for d in dims):
            continue  # an earlier option determines it
        shape = propose(item.name, item.dtype, dims, file, turn)
        shapes[item.name] = shape
        sizes.update({d: s for d, s in zip(dims or (), shape, strict=False) if isinstance(d, str)})
        options.append(f"{item.name}={_format_shape(shape)}")
    listed = ", ".join(
        f"{_printable_name(i.name)} [{_shown_dims(i.shape)}]" for i in open_ones[:_LISTED]
    )
    more = f" and {len(open_ones) - _LISTED} more" if len(open_ones) > _LISTED else ""
    words = [word for option in options[:_LISTED] for word in ("--input-shape", option)]
    command = shlex.join(["edgekit", "compile", file, *words])
    noun = "input" if len(open_ones) == 1 else "inputs"
    return shapes, (
        f"{noun} {listed}{more}: expected fixed shapes, found open ones; give them: {command}"
    )


def _batch_notes(batches: Sequence[str], shapes: Shapes) -> tuple[str, ...]:
    if not batches:
        return ()
    name = batches[0]
    other = f"{name}={_format_shape((8, *shapes[name][1:]))}"
    listed = ", ".join(_printable_name(n) for n in batches[:_LISTED])
    noun = "input" if len(batches) == 1 else "inputs"
    return (
        f"the batch of {noun} {listed} is open and becomes 1; "
        f"for another one: {shlex.join(['--input-shape', other])}",
    )


def _format_shape(shape: Shape) -> str:
    return ",".join(str(d) for d in shape)


def _shown_dims(dims: Dims | None) -> str:
    if dims is None:
        return "any shape"
    return ",".join("?" if d is None else _printable_name(str(d)) for d in dims)


def _printable_name(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:_SHOWN])
