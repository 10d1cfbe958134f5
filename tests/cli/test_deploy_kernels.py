"""`edgekit deploy --kernels` on board `local`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
def test_kernels_are_planned_deployed_and_shown(edgekit: Any, tmp_path: Path) -> None:
    plan = edgekit("deploy", "--kernels", "--dry-run", "--json").document
    tables = {"kernels.so.table", "kernels.so.spmv", "kernels.so.nna"}
    assert {"kernels.so", *tables, "runtime.pyz"} < set(plan["send"])
    assert not (tmp_path / "home" / "boards").exists()
    found = edgekit("deploy", "--kernels", "--json").document
    assert (found["name"], found["release"]) == ("kernels", plan["release"])
    assert max(found["health"]["max_difference"]) == 0
    assert found["sent_bytes"] == found["bytes"] == plan["send_bytes"]
    assert Path(found["runtime"]).is_file()
    lines = edgekit("status", "--name", "kernels").out.splitlines()
    assert [line.split()[0] for line in lines] == ["board", "current", "previous"]
    said = edgekit("bench", "model", "--name", "kernels").complaint
    assert "expected a model, found kernels of" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("model.tflite",), "expected MODEL or BUNDLE or --kernels, found both"),
        (("--threads", "2"), "expected --threads or --kernels, found both"),
        (("--memory-limit", "1MiB"), "expected --kernels or options of a model, found both"),
        (("--name", "Kernels"), "expected a name of 1 to 32 small letters"),
    ],
)
def test_options_of_models_are_refused(edgekit: Any, arguments: tuple[str, ...], said: str) -> None:
    done = edgekit("deploy", "--kernels", *arguments)
    assert done.code == 2 and said in done.complaint
