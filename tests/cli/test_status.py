"""`edgekit status` reports where models run, from the release or from the inventory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import ROOT

BOARD = '[boards.gate]\nprofile = "local"\ntransport = "local"\n'
MODEL = ROOT / "models" / "okay_nabu.tflite"


@pytest.fixture
def small_bundle(edgekit: Any, home: Path) -> Path:
    """A bundle of a small model for this machine."""
    assert edgekit("compile", MODEL, "-o", "small.ekb").code == 0
    return home / "small.ekb"


def runs_on(shown: str) -> list[str]:
    return [line.split(maxsplit=2)[2] for line in shown.splitlines() if line.startswith("runs on")]


@pytest.mark.slow
def test_a_release_that_says_nothing_runs_on_one_thread(edgekit: Any, small_bundle: Path) -> None:
    assert runs_on(edgekit("status").out) == []
    assert edgekit("deploy", small_bundle).code == 0
    assert runs_on(edgekit("status").out) == ["1 thread"]
    document = edgekit("status", "--json").document
    assert (document["threads"], document["cluster"]) == (None, "")
    assert document["current"]["placement"] is None


@pytest.mark.slow
def test_a_release_says_on_how_many_threads_it_runs_and_its_cost(edgekit: Any, home: Path) -> None:
    bundle = home / "two.ekb"
    assert edgekit("compile", MODEL, "--threads", "2", "-o", bundle).code == 0
    assert edgekit("deploy", bundle).code == 0
    assert runs_on(edgekit("status").out)[0].startswith("2 threads: ")
    assert edgekit("status", "--json").document["current"]["placement"]["threads"] == 2


@pytest.mark.slow
def test_the_inventory_overrides_what_a_release_says(
    edgekit: Any, home: Path, small_bundle: Path
) -> None:
    (home / "edgekit.toml").write_text(BOARD + 'threads = 2\ncluster = "all"\n')
    done = edgekit("deploy", small_bundle, "--board", "gate", "--json").document
    assert done["bench"]["threads"] == 2
    assert runs_on(edgekit("status", "--board", "gate").out) == ["2 threads, as set for this board"]
    document = edgekit("status", "--board", "gate", "--json").document
    assert (document["threads"], document["cluster"]) == (2, "all")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ('cluster = "a999"', r"--cluster: expected a cluster of this board, .*found 'a999'"),
        ('cluster = "big one"', r"boards\.gate\.cluster: expected big, little, all, or a kind"),
    ],
)
def test_an_unknown_cluster_is_one_line(
    edgekit: Any, home: Path, small_bundle: Path, keys: str, said: str
) -> None:
    (home / "edgekit.toml").write_text(BOARD)
    assert edgekit("deploy", small_bundle, "--board", "gate").code == 0
    (home / "edgekit.toml").write_text(BOARD + keys + "\n")
    done = edgekit("bench", "model", "--board", "gate", "--runs", "1")
    assert done.code == 2
    assert re.search(said, done.complaint)
