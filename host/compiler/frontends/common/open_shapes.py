"""Resolves input shapes that a file leaves open: from options, by inference, or by asking.

An open batch defaults to 1. All other open shapes are requested in one error, with plausible sizes
for each input (`proposals.py`) as a command line to paste, if an import with these sizes succeeds.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgekit.host.compiler.frontends.common.proposals import PROPOSALS, Dims, propose
from edgekit.host.compiler.ir.types import DType, Shape
from edgekit.host.compiler.options import Shapes
from edgekit.host.errors import InputError

# Names of a first dimension that is a batch, including names that exporters generate.
_BATCH = re.compile(r"n|b|bs|.*batch.*|unk__\d+|.*dynamic.*|.*dim_0|s\d+|d0")
_NO_NAMES = ("", "?", "-1", "none", "unk", "unknown", "dynamic")  # may denote different sizes
_SHOWN, _LISTED = 80, 40
_CHANNELS = (1, 3, 4)
_TRIAL_SECONDS = 5  # for trying shapes; each try takes as long as one import


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
    """One shape per input. `notes` report defaults that were chosen; `sized` are the inputs with
    open sizes that got what the file stores, which may be why operators do not fit, as may be
    `replaced`, which says what fixed shapes others were given for."""

    shapes: Shapes
    notes: tuple[str, ...] = ()
    sized: tuple[StoredInput, ...] = ()
    replaced: str = ""


class OpenShapesError(InputError):
    """Requests the shapes of the inputs in `asked`; `given` are those that are known."""

    def __init__(self, asked: Sequence[OpenInput], given: Shapes):
        self.asked, self.given = asked, given
        listed = ", ".join(
            f"{_printable_name(i.name)} [{_shown_dims(i.shape)}]" for i in asked[:_LISTED]
        )
        more = f" and {len(asked) - _LISTED} more" if len(asked) > _LISTED else ""
        noun = "input" if len(asked) == 1 else "inputs"
        super().__init__(f"{noun} {listed}{more}: expected fixed shapes, found open ones")

    def answered(self, file: str, fits: Callable[[Shapes], object]) -> InputError:
        """This error with a command line to paste: the most plausible shapes that `fits` accepts,
        without an InputError. `file` is the path as the user typed it."""
        found, reason = first_that_fits(proposed_shapes(self.asked, self.given, file), fits)
        if found is None:
            name = _printable_name(self.asked[0].name)
            return InputError(
                f"{self}; give them with --input-shape {name}=SIZES (no common sizes fit: {reason})"
            )
        options = {**self.given, **found}
        return InputError(
            f"{self}; give them: {shlex.join(['edgekit', 'compile', file])} {_options(options)}"
        )


def open_inputs(error: InputError) -> tuple[OpenInput, ...]:
    """The inputs whose shapes are asked for by an import that failed for that reason; else none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OpenShapesError):
        cause = cause.__cause__
    return () if cause is None else tuple(cause.asked)


def first_that_fits(
    proposals: Iterable[Shapes], fits: Callable[[Shapes], object]
) -> tuple[Shapes | None, str]:
    """The first of `proposals` that `fits` accepts within a few seconds, or None and why it refused
    the most plausible one."""
    deadline, reason = time.monotonic() + _TRIAL_SECONDS, ""
    for shapes in proposals:
        try:
            fits(shapes)
        except InputError as error:
            reason = reason or str(error)
            if time.monotonic() > deadline:
                break
        else:
            return shapes, ""
    return None, reason


def fix_shapes(inputs: Sequence[OpenInput], given: Shapes) -> FixedShapes:
    """Resolves the shapes of `inputs`; `given` are those from the command line, which may differ
    from fixed ones in size, not in rank.

    A dimension name denotes the same size in all inputs. `OpenShapesError` lists all inputs that
    are still open.
    """
    _check_names([i.name for i in inputs], given)
    stated = {i.name: _known_dims(i) for i in inputs}
    replaced = _replaced(stated, given)
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
        raise OpenShapesError(open_ones, given)
    notes = (*_batch_notes(batches), *filter(None, (replaced,)))
    return FixedShapes({i.name: shapes[i.name] for i in inputs}, notes, replaced=replaced)


def resize(inputs: Sequence[StoredInput], given: Shapes) -> FixedShapes:
    """The given or else the stored shape of each input.

    Any shape is accepted here; a shape that does not fit fails in the operators.
    """
    _check_names([i.name for i in inputs], given)
    left = [i for i in inputs if i.name not in given and any(i.open)]
    stored = {i.name: i.stored for i in inputs}
    batches = [i.name for i in left if not any(i.open[1:]) and i.stored[0] == 1]
    sized = tuple(i for i in left if i.name not in batches)
    return FixedShapes({**stored, **given}, _batch_notes(batches), sized)


def size_notes(
    sized: Sequence[StoredInput], given: Shapes, file: str, fits: Callable[[Shapes], object]
) -> tuple[str, ...]:
    """A note on the sizes that the open shapes of `sized` got, with options for more plausible ones
    that `fits` accepts, without an InputError."""
    if not sized:
        return ()
    asked = [OpenInput(i.name, i.dtype, _dims_left_open(i)) for i in sized]
    noun, verb, other = ("shape of input", "is open and becomes", "another one")
    if len(sized) > 1:
        noun, verb, other = ("shapes of inputs", "are open and become", "others")
    names = ", ".join(f"{_printable_name(i.name)} [{_shown_dims(i.shape)}]" for i in asked)
    stored = ", ".join(f"[{_format_shape(i.stored)}]" for i in sized)
    found, _ = first_that_fits(proposed_shapes(asked, given, file), fits)
    options = "--input-shape sets" if found is None else f"for {other}: {_options(found)}"
    return (f"the {noun} {names} {verb} {stored}; {options}" + f" {other}" * (found is None),)


def _dims_left_open(item: StoredInput) -> Dims:
    batch = item.open[0] and len(item.open) > 1 and item.stored[0] == 1
    return tuple(
        None if is_open and not (batch and i == 0) else size
        for i, (size, is_open) in enumerate(zip(item.stored, item.open, strict=True))
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


def _replaced(stated: Mapping[str, Dims | None], given: Shapes) -> str:
    """Which fixed sizes of the file those `given` replace. InputError for another rank."""
    replaced = []
    for name, shape in given.items():
        dims = stated[name]
        if dims is None:
            continue
        shown = _printable_name(name)
        if len(shape) != len(dims):
            raise InputError(
                f"--input-shape {shown}: expected a shape that fits [{_shown_dims(dims)}], "
                f"found {list(shape)}"
            )
        if any(isinstance(d, int) and d != g for d, g in zip(dims, shape, strict=True)):
            replaced.append(f"{shown} [{_shown_dims(dims)}] became [{_format_shape(shape)}]")
    return f"--input-shape: {', '.join(replaced)}, other than the file says" if replaced else ""


def _check_names(names: Sequence[str], given: Shapes) -> None:
    for name in given:
        if name not in names:
            listed = ", ".join(_printable_name(n) for n in names[:_LISTED])
            raise InputError(
                f"--input-shape: expected an input of the model ({listed}), found "
                f"{_printable_name(name)}"
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


def proposed_shapes(asked: Sequence[OpenInput], given: Shapes, file: str) -> Iterator[Shapes]:
    """Plausible shapes for the inputs in `asked`, without those that a name in an earlier one
    determines; the most plausible first, none twice. `file` may say what kind of model it is."""
    seen: list[Shapes] = []
    for turn in range(PROPOSALS):
        sizes: dict[str, int] = {}
        shapes: dict[str, Shape] = {}
        for item in asked:
            dims = _substitute_sizes(item.shape, sizes)
            if dims is not None and all(isinstance(d, int) for d in dims):
                continue
            shape = shapes[item.name] = propose(item.name, item.dtype, dims, file, turn)
            named = zip(dims or (), shape, strict=False)
            sizes.update({d: size for d, size in named if isinstance(d, str)})
        if shapes not in seen:
            seen.append(shapes)
            yield {**given, **shapes}


def _batch_notes(batches: Sequence[str]) -> tuple[str, ...]:
    if not batches:
        return ()
    listed = ", ".join(_printable_name(n) for n in batches[:_LISTED])
    noun = "input" if len(batches) == 1 else "inputs"
    return (f"the batch of {noun} {listed} is open and becomes 1; --input-shape sets another one",)


def _options(shapes: Shapes) -> str:
    words = [f"{name}={_format_shape(shape)}" for name, shape in shapes.items()][:_LISTED]
    return shlex.join([word for option in words for word in ("--input-shape", option)])


def _format_shape(shape: Shape) -> str:
    return ",".join(str(d) for d in shape)


def _shown_dims(dims: Dims | None) -> str:
    if dims is None:
        return "any shape"
    return ",".join("?" if d is None else _printable_name(str(d)) for d in dims)


def _printable_name(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:_SHOWN])
