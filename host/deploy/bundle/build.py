"""Builds a bundle from a compiler artifact."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.manifest import (
    LIBRARY,
    RUNTIME,
    WEIGHTS,
    BoardNeeds,
    FileEntry,
    Manifest,
    ModelRef,
    Variant,
    parse_manifest,
)
from edgekit.device.runtime.agent.specs import Description, GoldenFiles, parse_description
from edgekit.device.version import VERSION
from edgekit.host.common.content import Content, parts_of
from edgekit.host.deploy.bundle.bundle import Bundle
from edgekit.host.deploy.bundle.pyz import runtime_pyz
from edgekit.kb.targets.board import BoardProfile

if TYPE_CHECKING:
    from edgekit.host.compiler.artifact import Artifact
    from edgekit.host.compiler.ir.types import Array


def build_bundle(
    artifact: Artifact, board: BoardProfile, counter: int = 0, others: Sequence[Artifact] = ()
) -> Bundle:
    """Builds the bundle of `artifact` for `board`; deterministic in its arguments.

    `others` are the same model compiled for further input shapes and signatures, after `artifact`,
    so that the last one's weights contain everyone's (`compile_variants`). `counter` is monotonic:
    a board rejects a lower counter for the same model. Raises device.runtime.errors.InputError if
    the artifacts do not fit together (a compiler bug).
    """
    shadow = artifact.shadow
    weights = (shadow or (artifact, *others)[-1]).weights
    files = {WEIGHTS: weights, RUNTIME: runtime_pyz(), **artifact.files}
    if shadow is not None:
        files[shadow.spec.library] = shadow.library
    about = parse_description(artifact.description)
    first = _build_variant(artifact, about, LIBRARY, "golden", files)
    variants = tuple(
        _build_variant(
            other, parse_description(other.description), f"{folder}/{LIBRARY}", folder, files
        )
        for folder, other in ((f"shape{i}", other) for i, other in enumerate(others, 2))
    )
    built = (artifact, *others, *((shadow,) if shadow else ()))
    features = {*board.features}.union(*(each.extras for each in built))
    manifest = Manifest(
        id="",
        kit_version=VERSION,
        counter=counter,
        model=ModelRef(artifact.model_name, artifact.model_sha256),
        board=board_needs(board, features),
        memory=about.memory,
        inputs=about.inputs,
        outputs=about.outputs,
        operators=about.operators,
        simd=about.simd,
        golden=first.golden,
        files=file_entries(files),
        variants=variants,
        placements=artifact.placements,
        loss=artifact.loss,
        signature=artifact.signature,
        task=artifact.task,
        shadow=shadow.spec if shadow else None,
    ).with_id()
    return Bundle(parse_manifest(manifest.to_json()), files)


def _build_variant(
    artifact: Artifact,
    about: Description,
    library: str,
    folder: str,
    files: dict[str, Content],
) -> Variant:
    """Builds the manifest entry of `artifact`; adds its library and its golden files (in `folder`)
    to `files`."""
    golden = artifact.golden
    inputs = golden_files(f"{folder}/in", golden.inputs)
    outputs = golden_files(f"{folder}/out", golden.outputs)
    margins = tuple(
        None if codes is None else f"{folder}/margin{i}.bin"
        for i, codes in enumerate(golden.margins)
    )
    files.update({library: artifact.library, **inputs, **outputs})
    for path, codes in zip(margins, golden.margins, strict=True):
        if path is not None and codes is not None:
            files[path] = codes.tobytes()
    tolerances = tuple(float(t) for t in golden.tolerances)
    return Variant(
        library,
        about.memory,
        about.inputs,
        about.outputs,
        about.operators,
        GoldenFiles(tuple(inputs), tuple(outputs), tolerances, margins),
        artifact.signature,
    )


def board_needs(board: BoardProfile, features: Iterable[str]) -> BoardNeeds:
    """What a board must have to run code for `board` that uses these CPU features."""
    return BoardNeeds(board.name, board.arch, tuple(sorted(features)), board.vlen_bits)


def file_entries(files: Mapping[str, Content]) -> tuple[FileEntry, ...]:
    """Returns the manifest's list of files."""
    return tuple(FileEntry(path, len(files[path]), _hash(files[path])) for path in sorted(files))


def _hash(data: Content) -> str:
    digest = hashlib.sha256()
    for part in parts_of(data):
        digest.update(part)
    return digest.hexdigest()


def golden_files(stem: str, arrays: Sequence[Array]) -> dict[str, bytes]:
    """Returns path -> raw little-endian bytes, in tensor order."""
    return {
        f"{stem}{i}.bin": array.astype(array.dtype.newbyteorder("<"), order="C").tobytes()
        for i, array in enumerate(arrays)
    }
