"""Fixtures that several folders share: bundles of a hand-written model, a device to put them on."""

from __future__ import annotations

import functools
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import platformdirs
import pytest

from edgekit.device.signing import enroll
from edgekit.device.store import Store
from edgekit.host.api import Device
from edgekit.host.build.artifact import Artifact, Golden
from edgekit.host.bundle import Bundle, SigningKey, build_bundle, sign_bundle, signing_key
from edgekit.host.transport import LocalTransport
from edgekit.kb.board import load_board

_HERE = Path(__file__).parent
_KERNELS = _HERE.parent / "device" / "kernels"

TinyArtifact = Callable[..., Artifact]
TinyBundle = Callable[..., Bundle]


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> TinyArtifact:
    """y = 2x + 1 of tests/device/tiny_model.c, compiled with the given -D options."""

    @functools.cache
    def build(*defines: str) -> Artifact:
        library = _compile(tmp_path_factory.mktemp("tiny") / "model.so", defines)
        x = np.array([0.0, 1.0, -2.5, 1e3], np.float32)
        y = 2 * x + 1 + ("TINY_STATE" in defines)
        name = next((d.split('"')[1] for d in defines if d.startswith("TINY_NAME")), "tiny")
        tensor = {"dtype": "f32", "shape": [4], "scale": None, "zero_point": None}
        return Artifact(
            model_name=name,
            model_sha256="0" * 64,
            library=library,
            weights=struct.pack("<2f", 2, 1),
            description={
                "name": name,
                "inputs": [{"name": "x", **tensor}],
                "outputs": [{"name": "y", **tensor}],
                "arena_bytes": 64,
                "state_bytes": 4 if "TINY_STATE" in defines else 0,
                "weights_bytes": 8,
                "simd": "none",
                "operators": [
                    {"name": "twice", "op": "Mul", "kernel": "f32-mul"},
                    {"name": "plus", "op": "Add", "kernel": "f32-add"},
                ],
            },
            golden=Golden((x,), (y.astype(np.float32),), (1e-3,)),
            explain={},
        )

    return build


@pytest.fixture(scope="session")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    """The key that signs the bundles of the tests."""
    return signing_key(tmp_path_factory.mktemp("trusted") / "keys")


@pytest.fixture(scope="session")
def tiny(tiny_artifact: TinyArtifact, trusted: SigningKey) -> TinyBundle:
    """A signed bundle for this machine of the tiny model with the given -D options."""

    @functools.cache
    def build(*defines: str, counter: int = 0) -> Bundle:
        bundle = build_bundle(tiny_artifact(*defines), load_board("local"), counter)
        return sign_bundle(bundle, trusted)

    return build


@pytest.fixture
def board_root(tmp_path: Path, trusted: SigningKey, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a board on this machine that trusts the tests' key."""
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    store = Store(tmp_path / "board")
    store.create()
    enroll(store, trusted.public.line)
    return store.root


@pytest.fixture
def device(board_root: Path) -> Device:
    """This machine as a board, with nothing deployed."""
    return Device(LocalTransport(board_root))


def _compile(target: Path, defines: tuple[str, ...]) -> bytes:
    caches = platformdirs.user_cache_path("edgekit") / "tests-zig"
    names = ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")
    command = [sys.executable, "-m", "ziglang", "cc", "-O2", "-fno-sanitize=undefined", "-shared"]
    command += ["-fPIC", "-I", str(_KERNELS), *(f"-D{d}" for d in defines)]
    command += ["-o", str(target), str(_HERE / "device" / "tiny_model.c")]
    environment = {**{name: str(caches / name) for name in names}, **os.environ}
    subprocess.run(command, check=True, env=environment)
    return target.read_bytes()
