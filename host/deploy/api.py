"""The Python API: compile a model or kernels, connect to a board, deploy, run and time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from edgekit.host.compiler.options import (
    Cache,
    CompileOptions,
    StateBinding,
    Task,
    WeightBits,
    variants_of,
)
from edgekit.host.deploy.board import Board
from edgekit.host.deploy.bundle import Bundle, sign_bundle
from edgekit.host.deploy.connections import Via, connect_to, profile_of
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile, UnknownBoardError, load_board

Device = Board  # the Python API's name for it


def compile_model(
    model: str | Path,
    board: str = "local",
    *,
    input_shapes: Mapping[str, tuple[int, ...] | Sequence[tuple[int, ...]]] | None = None,
    memory_limit: int | None = None,
    weights: WeightBits | None = None,
    states: Mapping[str, str] | None = None,
    signatures: Sequence[str] = (),
    task: Task = "auto",
    head: str = "",
    context: int | None = None,
    kv_cache: Cache = "f32",
) -> Bundle:
    """Compiles a .tflite, .onnx, .gguf or .prototxt model for a board or board profile; returns the
    signed bundle.

    `input_shapes` sets the shapes of inputs that the model leaves dynamic, or overrides a Caffe
    model's: one shape, or a list of shapes that all go into one release; the runtime picks the
    variant that matches the arrays it receives. `memory_limit` caps the bytes of any single
    operator and of the arena; the default is the board's memory. `weights` is the `--weights`
    option of `edgekit compile`. `states` maps an input to the output that the release feeds back to
    it on the next run, like `--state`. `signatures` are those of a .tflite model that go into
    the release, by default all. `task` and `head` are the options of those names: "detect"
    and "classify" give programs `detect()` and `classify()`. `context`: tokens that a language
    model remembers. `kv_cache` is the `--kv-cache` option.

    Raises InputError if the model cannot be compiled, or cannot be signed because ssh-keygen is
    missing.
    """
    profile = _profile_for(board)
    shapes, *more = variants_of({n: _as_shapes(s) for n, s in (input_shapes or {}).items()})
    options = CompileOptions(
        shapes=shapes,
        more_shapes=tuple(more),
        memory_limit=memory_limit,
        weights=weights,
        signatures=tuple(signatures),
        states=tuple(StateBinding(name, output) for name, output in (states or {}).items()),
        task=task,
        head=head,
        context_tokens=context,
        kv_cache=kv_cache,
    )
    from edgekit.host.deploy.compiled import compiled  # `run` and `status` need no model formats

    return sign_bundle(compiled(Path(model), profile, options).bundle)


def compile_kernels(board: str = "local", *, counter: int = 0) -> Bundle:
    """Compiles the kernels library for a board or board profile; returns the signed bundle, with
    the tables of the board's core and the Python API: `connect("b").named("kernels").deploy(it)`.

    Raises InputError if the bundle cannot be signed because ssh-keygen is missing.
    """
    from edgekit.host.deploy.bundle.kernels import build_kernels_bundle

    return sign_bundle(build_kernels_bundle(_profile_for(board), counter))


def _profile_for(board: str) -> BoardProfile:
    try:
        return load_board(profile_of(board))
    except UnknownBoardError as error:
        raise InputError(str(error)) from None


def _as_shapes(
    shapes: tuple[int, ...] | Sequence[tuple[int, ...]],
) -> tuple[tuple[int, ...], ...]:
    """Normalizes one shape or a sequence of shapes to a tuple of shapes."""
    if all(isinstance(size, int) for size in shapes):
        return (cast(tuple[int, ...], tuple(shapes)),)
    return tuple(tuple(shape) for shape in cast(Sequence[tuple[int, ...]], shapes))


def connect(board: str = "local", *, transport: Via | None = None) -> Board:
    """Returns the board of that name: this machine, an inventory board or a running virtual board.

    `transport`, "ssh" or "serial", overrides the inventory's. Raises InputError if there is no such
    board. Nothing is sent before the first call that needs the board.
    """
    return connect_to(board, transport)
