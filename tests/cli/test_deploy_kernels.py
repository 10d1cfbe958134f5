"""`edgekit deploy --kernels` on board `local`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.applications import UnixConnection


@pytest.fixture
def stopped(edgekit: Any) -> Iterator[None]:
    """Stops the application at teardown."""
    yield
    edgekit("app", "stop", "--name", "kernels")


@pytest.mark.slow
@pytest.mark.usefixtures("bare_init", "stopped")
def test_kernels_are_planned_deployed_and_shown(edgekit: Any, tmp_path: Path) -> None:
    plan = edgekit("deploy", "--kernels", "--dry-run", "--json").document
    tables = {"kernels.so.table", "kernels.so.spmv", "kernels.so.nna"}
    assert {"kernels.so", *tables, "runtime.pyz"} < set(plan["send"])
    assert not (tmp_path / "home" / "boards").exists()
    found = edgekit("deploy", "--kernels", "--json").document
    assert (found["name"], found["release"]) == ("kernels", plan["release"])
    assert max(found["health"]["max_difference"]) == 0
    assert found["sent_bytes"] == found["bytes"] == plan["send_bytes"]
    assert Path(found["runtime"]).is_file() and Path(found["include"], "ek_gemm.h").is_file()
    lines = edgekit("status", "--name", "kernels").out.splitlines()
    assert [line.split()[0] for line in lines] == ["board", "current", "previous"]
    search_with(edgekit, tmp_path / "search", Path(found["runtime"]).parents[1])
    said = edgekit("bench", "model", "--name", "kernels").complaint
    assert "expected a model, found kernels of" in said


def search_with(edgekit: Any, folder: Path, board: Path) -> None:
    """Installs the template that searches vectors with the kernels, and asks it."""
    points = np.random.default_rng(0).standard_normal((300, 8), np.float32)
    assert edgekit("app", "new", "--kernels", folder).out.endswith(f"{folder} --name kernels\n")
    points.tofile(folder / "points.f32")
    settings = folder / "app.toml"
    arguments = f'arguments = ["--points", "{folder / "points.f32"}", "--width", "8"]'
    settings.write_text(re.sub("(?m)^arguments = .*", arguments, settings.read_text()))
    state = edgekit("app", "install", folder, "--name", "kernels", "--json").document
    assert state["said"].startswith("searching 300 vectors, listening on ")
    wanted = points[[7, 250]] + np.float32(0.25)
    squares = ((wanted[:, None] - points) ** 2).sum(2)
    answers = {}
    right, odd = wanted.tobytes(), f"/nearest?count={'9' * 5000}"
    for path, body in (("/nearest?count=3", right), (odd, right), ("/nearest", b"123")):
        connection = UnixConnection(board / "app" / "data" / "search.sock")
        connection.request("POST", path, body)
        answers[path] = json.load(connection.getresponse())
        connection.close()
    assert answers["/nearest"] == (
        "expected /nearest?count=N with vectors of 32 bytes, found 3 bytes for /nearest"
    )
    assert "found 64 bytes for" in answers[odd]
    for found, exact in zip(answers["/nearest?count=3"], squares, strict=True):
        assert [number for number, _ in found] == np.argsort(exact)[:3].tolist()
        assert np.allclose([far for _, far in found], np.sort(exact)[:3], atol=1e-4)
    assert edgekit("app", "stop", "--name", "kernels", "--json").document["state"] == "stopped"


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


def test_new_application_of_kernels_is_the_template_search(edgekit: Any, tmp_path: Path) -> None:
    for name, arguments in (("one", ("search",)), ("two", ("--kernels",))):
        assert edgekit("app", "new", *arguments, tmp_path / name).code == 0
    one, two = ({p.name: p.read_bytes() for p in (tmp_path / n).iterdir()} for n in ("one", "two"))
    assert one == two and "main.py" in one
    done = edgekit("app", "new", "--kernels", "serve", tmp_path / "three")
    assert done.code == 2 and done.complaint.strip().count("\n") == 0
    assert "expected the template search with --kernels, found serve" in done.complaint
    assert not (tmp_path / "three").exists()
