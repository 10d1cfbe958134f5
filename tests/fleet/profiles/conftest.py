"""A profile server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.host.fleet.profiles import ProfileServer, ProfileStore
from tests.support.profile_servers import running_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ProfileServer]:
    with running_server(ProfileStore(tmp_path / "store")) as found:
        yield found
