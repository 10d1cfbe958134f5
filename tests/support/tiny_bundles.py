"""The tests' hand-written model, y = 2x + 1, as a bundle: needs a C compiler and no importer."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.host.compiler.artifact import Artifact, Golden
from edgekit.host.deploy.bundle import Bundle, SigningKey, build_bundle, sign_bundle
from edgekit.kb.targets.board import load_board

_TESTS = Path(__file__).parents[1]
_KERNELS = _TESTS.parent / "device" / "kernels"


def tiny_bundle(
    folder: Path, key: SigningKey, *defines: str, counter: int = 0, board: str = "local"
) -> Bundle:
    """A bundle signed by `key`; `defines` are -D options for tiny_model.c."""
    profile = load_board(board)
    target = () if board == "local" else ("-target", f"{profile.arch}-linux-gnu")
    artifact = tiny_artifact(folder, *defines, target=target)
    return sign_bundle(build_bundle(artifact, profile, counter), key)


def tiny_artifact(folder: Path, *defines: str, target: tuple[str, ...] = ()) -> Artifact:
    """A compiler output; `folder` is for intermediate files."""
    library = _compile(folder / "model.so", defines, target)
    x = np.array([0.0, 1.0, -2.5, 1e3], np.float32)
    y = 2 * x + 1 + ("TINY_STATE" in defines)
    name = _value("TINY_NAME", defines, "tiny")
    weights_bytes = int(_value("TINY_WEIGHTS", defines, "8"))
    tensor = {"dtype": "f32", "shape": [4], "scale": None, "zero_point": None}
    return Artifact(
        model_name=name,
        model_sha256="0" * 64,
        library=library,
        weights=struct.pack("<2f", 2, 1).ljust(weights_bytes, b"\0"),
        description={
            "name": name,
            "inputs": [{"name": "x", **tensor}],
            "outputs": [{"name": "y", **tensor}],
            "arena_bytes": 64,
            "state_bytes": 4 if "TINY_STATE" in defines else 0,
            "weights_bytes": weights_bytes,
            "simd": "none",
            "operators": [
                {"name": "twice", "op": "Mul", "kernel": "f32-mul"},
                {"name": "plus", "op": "Add", "kernel": "f32-add"},
            ],
        },
        golden=Golden((x,), (y.astype(np.float32),), (1e-3,)),
        explain={},
    )


def with_weights(
    artifact: Artifact, weights: bytes, counter: int = 0, board: str = "local"
) -> Bundle:
    """An unsigned bundle of a compiler output with other weights behind the two
    that the model uses; as many as TINY_WEIGHTS says."""
    used = artifact.weights[:8]
    changed = replace(artifact, weights=used + weights[len(used) :])
    return build_bundle(changed, load_board(board), counter)


def _value(name: str, defines: tuple[str, ...], default: str) -> str:
    return next((d.split('"')[1] for d in defines if d.startswith(name)), default)


def _compile(library: Path, defines: tuple[str, ...], target: tuple[str, ...]) -> bytes:
    source = _TESTS / "device" / "tiny_model.c"
    compile_shared(source, library, *target, "-I", str(_KERNELS), *(f"-D{d}" for d in defines))
    return library.read_bytes()


def compile_shared(source: Path, target: Path, *options: str) -> None:
    """Compile a shared library for this machine."""
    command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-fno-sanitize=undefined", "-shared"]
    command += ["-fPIC", *options, "-o", str(target), str(source)]
    subprocess.run(command, check=True)
