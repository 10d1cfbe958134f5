"""One small bundle, in memory and as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.host.deploy.bundle import Bundle


@pytest.fixture(scope="session")
def bundle(tiny: Callable[..., Bundle]) -> Bundle:
    return tiny()


@pytest.fixture
def ekb(bundle: Bundle, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.ekb"
    bundle.write(path)
    return path
