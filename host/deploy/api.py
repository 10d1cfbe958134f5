"""The Python API: compile a model, connect to a board, which deploys, runs and times it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from edgekit.host.compiler.options import CompileOptions, StateBinding, WeightBits, variants_of
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.deploy.connections import Via, connect_to, profile_of
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import UnknownBoardError, load_board

Device = Board  # the name of the Python API


def compile_model(
    model: str | Path,
    board: str = "local",
    *,
    input_shapes: Mapping[str, tuple[int, ...] | Sequence[tuple[int, ...]]] | None = None,
    memory_limit: int | None = None,
    weights: WeightBits | None = None,
    states: Mapping[str, str] | None = None,
) -> Bundle:
    """The signed bundle of a .tflite, .onnx or .prototxt model for a board or a board profile.

    `input_shapes` are those of inputs that a model leaves open, or others for Caffe's: one shape,
    or a list of shapes, all of which go into one release and are chosen by the arrays that come in.
    `memory_limit` are the bytes that an operator and the arena may take, by default what the board
    has. `weights` is that of `edgekit compile`. `states`: by input the output
    that the release keeps for it from run to run, as `--state` does.

    InputError if it cannot be compiled, or not signed for want of ssh-keygen.
    """
    from edgekit.host.compiler.driver import compile_variants
    from edgekit.host.compiler.explain import explained_variants
    from edgekit.host.deploy.explanations import remember

    try:
        profile = load_board(profile_of(board))
    except UnknownBoardError as error:
        raise InputError(str(error)) from None
    shapes, *more = variants_of({n: _several(s) for n, s in (input_shapes or {}).items()})
    options = CompileOptions(
        shapes=shapes,
        more_shapes=tuple(more),
        memory_limit=memory_limit,
        weights=weights,
        states=tuple(StateBinding(name, output) for name, output in (states or {}).items()),
    )
    first, *others = compile_variants(Path(model), profile, options=options)
    bundle = sign_bundle(build_bundle(first, profile, others=others))
    remember(bundle.manifest.id, explained_variants(first, others))
    return bundle


def _several(
    shapes: tuple[int, ...] | Sequence[tuple[int, ...]],
) -> tuple[tuple[int, ...], ...]:
    """One shape, or several, as several."""
    if all(isinstance(size, int) for size in shapes):
        return (cast(tuple[int, ...], tuple(shapes)),)
    return tuple(tuple(shape) for shape in cast(Sequence[tuple[int, ...]], shapes))


def connect(board: str = "local", *, transport: Via | None = None) -> Board:
    """The board of that name: this machine, one of the inventory, or a virtual one that is up.

    `transport`, "ssh" or "serial", is used instead of the inventory's. InputError if there is no
    such board. Nothing is sent before the first call that needs the board.
    """
    return connect_to(board, transport)
