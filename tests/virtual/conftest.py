"""Separate homes for virtual boards, so that the user's boards are untouched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.homes import home_over_the_cache


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home shared by a module's boards."""
    with home_over_the_cache(tmp_path_factory.mktemp("home")) as folder:
        yield folder


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Path]:
    """A home for the boards of one test."""
    with home_over_the_cache(tmp_path) as folder:
        yield folder
