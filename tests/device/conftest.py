"""Bundles that need no compiler, uploaded to a board as a transport would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent.signing import enroll_unsigned
from edgekit.device.runtime.agent.store import Store
from edgekit.host.compiler.artifact import Artifact, Golden
from edgekit.host.deploy.bundle import Bundle, build_bundle
from edgekit.kb.targets.board import load_board

MakeBundle = Callable[..., Bundle]
Send = Callable[..., str]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store that accepts unsigned bundles."""
    found = Store(tmp_path / "board")
    found.create()
    enroll_unsigned(found)
    return found


@pytest.fixture(scope="session")
def paper() -> MakeBundle:
    """A bundle whose library is plain text: valid and compatible, but not runnable."""

    def build(
        library: str = "library", counter: int = 0, arena_bytes: int = 64, name: str = "paper"
    ) -> Bundle:
        x = np.arange(3, dtype=np.float32)
        tensor = {"dtype": "f32", "shape": [3], "scale": None, "zero_point": None}
        artifact = Artifact(
            model_name=name,
            model_sha256="1" * 64,
            library=library.encode(),
            weights=b"weights!",
            description={
                "name": name,
                "inputs": [{"name": "x", **tensor}],
                "outputs": [{"name": "y", **tensor}],
                "arena_bytes": arena_bytes,
                "state_bytes": 0,
                "weights_bytes": 8,
                "simd": "none",
                "operators": [{"name": "id", "op": "Identity", "kernel": "copy"}],
            },
            golden=Golden((x,), (x,), (0.0,)),
            explain={},
        )
        return build_bundle(artifact, load_board("local"), counter)

    return build


@pytest.fixture(scope="session")
def send() -> Send:
    """Puts a bundle, or some of its files, into incoming/; returns its id."""

    def put(store: Store, bundle: Bundle, only: tuple[str, ...] | None = None) -> str:
        store.create()
        folder = store.incoming / bundle.manifest.id
        (folder / "golden").mkdir(parents=True, exist_ok=True)
        (folder / "manifest.json").write_bytes(bundle.manifest.to_json())
        for path, data in bundle.files.items():
            if only is None or path in only:
                (folder / path).write_bytes(data)
        return bundle.manifest.id

    return put
