"""The dashboard in Grafana's own types."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_FILE = Path(__file__).parents[3] / "docs" / "monitoring" / "grafana.json"


def read_by_grafana(dashboard: dict[str, Any]) -> Any:
    """What is left of a dashboard after reading and writing: fields of other names are lost."""
    # Importing them takes longer than collecting the tests of most folders.
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    return json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))


def lost(mine: Any, read: Any, at: str = "") -> list[str]:
    """Paths of what `read` lacks or has otherwise; it may have defaults in addition."""
    if isinstance(mine, dict) and isinstance(read, dict):
        return [p for key, each in mine.items() for p in lost(each, read.get(key), f"{at}/{key}")]
    if isinstance(mine, list) and isinstance(read, list) and len(mine) == len(read):
        pairs = enumerate(zip(mine, read, strict=True))
        return [p for n, (one, other) in pairs for p in lost(one, other, f"{at}/{n}")]
    return [] if mine == read else [at]


def test_the_dashboard_has_only_what_grafana_reads() -> None:
    dashboard = json.loads(_FILE.read_text())
    assert dashboard["panels"] and lost(dashboard, read_by_grafana(dashboard)) == []


@pytest.mark.parametrize("path", ["/gridPosition", "/targets/0/expression"])
def test_a_field_that_grafana_lacks_is_found(path: str) -> None:
    dashboard = json.loads(_FILE.read_text())
    *folders, name = path.split("/")[1:]
    place = dashboard["panels"][0]
    for folder in folders:
        place = place[int(folder) if folder.isdigit() else folder]
    place[name] = {"x": 1}
    assert lost(dashboard, read_by_grafana(dashboard)) == [f"/panels/0{path}"]
