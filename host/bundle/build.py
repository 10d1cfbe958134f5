"""An artifact of the compiler becomes a bundle."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgekit.device.manifest import (
    LIBRARY,
    RUNTIME,
    WEIGHTS,
    BoardNeeds,
    FileEntry,
    GoldenFiles,
    Manifest,
    ModelRef,
    parse_description,
    parse_manifest,
)
from edgekit.device.version import VERSION
from edgekit.host.build.artifact import Artifact
from edgekit.host.bundle.bundle import Bundle
from edgekit.host.bundle.pyz import runtime_pyz
from edgekit.kb.board import BoardProfile


def build_bundle(artifact: Artifact, board: BoardProfile, counter: int = 0) -> Bundle:
    """The bundle of `artifact` for `board`; the same bytes for the same arguments.

    `counter` only grows: a board refuses a lower one of the same model. Raises
    edgekit.device.errors.InputError if the artifact does not fit together (a bug of the compiler).
    """
    golden = artifact.golden
    inputs = _golden_files("in", golden.inputs)
    outputs = _golden_files("out", golden.outputs)
    margins = [None if m is None else f"golden/margin{i}.bin" for i, m in enumerate(golden.margins)]
    files = {
        LIBRARY: artifact.library,
        WEIGHTS: artifact.weights,
        RUNTIME: runtime_pyz(),
        **inputs,
        **outputs,
        **{
            p: m.tobytes()
            for p, m in zip(margins, golden.margins, strict=True)
            if p and m is not None
        },
    }
    about = parse_description(artifact.description)
    manifest = Manifest(
        id="",
        kit_version=VERSION,
        counter=counter,
        model=ModelRef(artifact.model_name, artifact.model_sha256),
        board=BoardNeeds(board.name, board.arch, tuple(sorted(board.features)), board.vlen_bits),
        memory=about.memory,
        inputs=about.inputs,
        outputs=about.outputs,
        operators=about.operators,
        simd=about.simd,
        golden=GoldenFiles(
            tuple(inputs),
            tuple(outputs),
            tuple(float(t) for t in golden.tolerances),
            tuple(margins),
        ),
        files=tuple(
            FileEntry(path, len(data), hashlib.sha256(data).hexdigest())
            for path, data in sorted(files.items())
        ),
    ).with_id()
    return Bundle(parse_manifest(manifest.to_json()), files)


def _golden_files(kind: str, arrays: Sequence[NDArray[Any]]) -> dict[str, bytes]:
    """Raw little-endian bytes by path, in the order of the tensors."""
    return {
        f"golden/{kind}{i}.bin": array.astype(array.dtype.newbyteorder("<"), order="C").tobytes()
        for i, array in enumerate(map(np.asarray, arrays))
    }
