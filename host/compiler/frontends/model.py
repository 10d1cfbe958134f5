"""Selects the importer for a model file by its content, and imports no other format's code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.host.compiler.frontends.common.files import read_model_file
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.options import DEFAULT_DECODER, DecoderOptions, Shapes
from edgekit.host.errors import InputError

if TYPE_CHECKING:
    from edgekit.host.compiler.frontends.common.outline import Outline
    from edgekit.host.compiler.ir.types import Graph

_NAMES = {"onnx": "an ONNX one", "caffe": "a Caffe one", "gguf": "a GGUF one"}


def import_model(
    path: Path,
    shapes: Shapes | None = None,
    signature: str = "",
    decoder: DecoderOptions = DEFAULT_DECODER,
    max_rows: int | None = None,
    ones: Mapping[str, str] | None = None,
) -> Graph:
    """Imports a model of any supported format. Raises `InputError` with one line.

    `signature` selects one of a .tflite file, which then names inputs and outputs; a file with
    several needs it. `shapes`: input shapes by name. They fill the open dimensions of ONNX inputs
    and override the stored shapes of TensorFlow Lite and Caffe inputs. `decoder` is for GGUF files,
    `max_rows` for ONNX files: how many rows a result of data-dependent size has where nothing else
    limits it. `ones`, also for these, are inputs of nothing but 1, with the name of the input whose
    shape each has.
    """
    kind = format_of(path)
    for option, given in (
        ("--context", decoder.context is not None),
        ("--kv-cache", decoder.cache != DEFAULT_DECODER.cache),
    ):
        if given and kind != "gguf":
            raise InputError(
                f"{path.name}: expected a language model (.gguf) with {option}, found another; "
                "leave the option out"
            )
    if max_rows is not None and kind != "onnx":
        raise InputError(
            f"{path.name}: expected an ONNX model with --max-rows, found another; leave the option "
            "out"
        )
    if kind == "tflite":
        from edgekit.host.compiler.frontends.tflite.importer import import_tflite

        return import_tflite(path, shapes, signature)
    if signature:
        raise InputError(
            f"{path.name}: expected a .tflite model with --signature, found {_NAMES[kind]}, which "
            "has no signatures; leave the option out"
        )
    if kind == "onnx":
        from edgekit.host.compiler.frontends.onnx.importer import import_onnx

        return import_onnx(path, shapes, max_rows, ones or {})
    if kind == "gguf":
        from edgekit.host.compiler.frontends.gguf.importer import import_gguf

        _check_shapes(path, shapes)
        return import_gguf(path, decoder)
    from edgekit.host.compiler.frontends.caffe.importer import import_caffe

    return import_caffe(path, shapes)


def _check_shapes(path: Path, shapes: Shapes | None) -> None:
    for name, shape in (shapes or {}).items():
        if name != "tokens" or len(shape) != 2 or shape[0] != 1:
            raise InputError(
                f"{path.name}: expected --input-shape tokens=1,N for a GGUF file, found "
                f"{shown_name(name)}={','.join(map(str, shape))}; --context sets what it keeps"
            )


def signatures_of(path: Path) -> Mapping[str, tuple[str, ...]]:
    """The signatures of a model with the names of their inputs; empty if it is not a .tflite file
    or has none. Raises `InputError`."""
    if format_of(path) != "tflite":
        return {}
    from edgekit.host.compiler.frontends.tflite.schema import read_model
    from edgekit.host.compiler.frontends.tflite.signatures import signatures_of as known

    try:
        content = read_model_file(path)
        found = known(content, read_model(content))
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error
    return {each.name: tuple(each.inputs.values()) for each in found}


def check_signatures(path: Path, chosen: Sequence[str]) -> None:
    """Checks that signatures of a .tflite file may go into one release. Raises `InputError`."""
    from edgekit.host.compiler.frontends.tflite.schema import read_model
    from edgekit.host.compiler.frontends.tflite.signatures import need_own_variables
    from edgekit.host.compiler.frontends.tflite.signatures import signatures_of as known

    try:
        content = read_model_file(path)
        model = read_model(content)
        need_own_variables(model, [s for s in known(content, model) if s.name in chosen])
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error


def outline_model(path: Path, shapes: Shapes | None = None, signature: str = "") -> Outline:
    """The outline of a model file. Raises `InputError` only if it cannot be read."""
    kind = format_of(path)
    try:
        if kind == "tflite":
            from edgekit.host.compiler.frontends.tflite.outline import outline_tflite

            return outline_tflite(path, shapes or {}, signature)
        if kind == "onnx":
            from edgekit.host.compiler.frontends.onnx.outline import outline_onnx

            return outline_onnx(path, shapes or {})
        if kind == "gguf":
            from edgekit.host.compiler.frontends.gguf.outline import outline_gguf

            return outline_gguf(path)
        from edgekit.host.compiler.frontends.caffe.outline import outline_caffe

        return outline_caffe(path, shapes or {})
    except InputError as error:
        raise InputError(f"{path.name}: {error}") from error
