"""The tables that a user's own measurements made, in the data folder."""

from __future__ import annotations

import logging
from pathlib import Path

from edgekit.host.common.paths import data_folder
from edgekit.kb.tables.paths import Kind, table_name
from edgekit.kb.targets.board import BoardProfile

_LOG = logging.getLogger(__name__)


def user_file(kind: Kind, board: BoardProfile) -> Path:
    """The path of the user's table of a board, which need not be there.

    One that an older edgekit wrote, named by a profile and not by the core, gets its new name.
    """
    path = data_folder() / kind / table_name(board.platform)
    old = path.with_name(f"{board.core_profile}.json")
    if old != path and old.exists() and not path.exists():
        old.rename(path)
        _LOG.warning("%s: named %s from now on, by the core whose table it is", old, path.name)
    return path
