"""edgekit deploy on board `local`: counters, downgrades, and the state after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgekit.host.cli.bench_history import keep_in_history
from edgekit.host.common.checked_files import is_intact, put_checked, scratch_of
from edgekit.host.compiler.options import DEFAULT_OPTIONS
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.bundle import Bundle, sign_bundle
from edgekit.host.deploy.release.types import Noise
from edgekit.host.lab.history.store import History
from tests.support.patience import AMPLE

SOURCES = Path(__file__).parents[2] / "src"


@pytest.fixture
def ekb(home: Path, tiny: Any) -> Any:
    """write(*defines): writes a bundle of the tiny model built with these -D options."""

    def write(*defines: str, counter: int = 0) -> Path:
        bundle = sign_bundle(tiny(*defines, counter=counter))  # with this home's key
        file = home / f"{bundle.manifest.id}.ekb"
        bundle.write(file)
        return file

    return write


@pytest.mark.exhaustive
def test_older_counter_needs_leave(edgekit: Any, ekb: Any) -> None:
    new, old = ekb(counter=5), ekb(counter=4)
    assert edgekit("deploy", new).code == 0
    for more in ([], ["--dry-run"]):
        done = edgekit("deploy", old, *more)
        assert (done.code, done.out) == (5, "")
        assert "--allow-downgrade" in done.complaint
    assert edgekit("deploy", old, "--allow-downgrade").code == 0
    assert edgekit("status", "--json").document["current"]["counter"] == 4


def tree(folder: Path) -> dict[str, tuple[int, float, bytes]]:
    """Every path below a folder, with mode, mtime, and content or link target."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        seen = path.lstat()
        data = str(path.readlink()).encode() if path.is_symlink() else b""
        data = path.read_bytes() if path.is_file() and not path.is_symlink() else data
        found[str(path)] = (seen.st_mode, seen.st_mtime, data)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("--name", "wake"), ("--allow-downgrade", "--json")])
def test_a_dry_run_of_a_model_writes_nothing(
    edgekit: Any, home: Path, tmp_path: Path, face_model: Path, more: tuple[str, ...]
) -> None:
    before = tree(tmp_path)  # a fresh EDGEKIT_HOME and the working directory
    done = edgekit("deploy", face_model.with_name("okay_nabu.tflite"), "--dry-run", *more)
    assert (done.code, tree(tmp_path)) == (0, before)


_LOADED = """
import sys
from edgekit.host.cli.main import main
assert main(["deploy", sys.argv[1], "--dry-run"]) == 0
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_a_deploy_of_an_unchanged_model_loads_neither_compiler_nor_numpy(
    edgekit: Any, face_model: Path
) -> None:
    model = face_model.with_name("okay_nabu.tflite")
    assert "compiling" in edgekit("compile", model).err
    assert edgekit("compile", model).err == ""
    loaded = subprocess.run(
        [sys.executable, "-c", _LOADED, model],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    ).stderr.split()
    assert "edgekit.host.deploy.compiled" in loaded
    heavy = {"numpy", "onnx", "tflite", "edgekit.host.compiler.driver", "edgekit.host.simulator"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.slow
def test_a_dry_run_over_a_damaged_release_writes_nothing(
    edgekit: Any, tmp_path: Path, ekb: Any
) -> None:
    old, new = ekb(), ekb('TINY_NAME="new"')
    assert edgekit("deploy", old).code == 0
    board = tmp_path / "home" / "boards" / "local"
    (board / "current" / "weights.bin").write_bytes(b"damaged")
    left = board / "incoming" / new.stem
    left.mkdir(parents=True)
    (left / "model.so").write_bytes(b"half")
    (board / "pending.json").write_text("{")
    before = tree(tmp_path)
    done = edgekit("deploy", new, "--dry-run", "--json")
    assert (done.code, tree(tmp_path)) == (0, before)
    assert set(done.document["send"]) >= {"model.so", "weights.bin"}


def test_a_dry_run_compiles_in_a_cache_of_its_own(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "objects").mkdir(parents=True)
    for name in ("one.o", "damaged.o"):
        (cache / name).write_bytes(b"1")
        put_checked(cache / name, cache / "objects" / name)
    (cache / "objects" / "damaged.o").write_bytes(b"0")
    before = tree(cache)
    with scratch_of(cache) as scratch:
        one, damaged, none = (scratch / "objects" / n for n in ("one.o", "damaged.o", "none.o"))
        assert [is_intact(path) for path in (one, damaged, none)] == [True, False, False]
        assert one.read_bytes() == b"1"
        for path in (one, damaged, none):
            (scratch / "made").write_bytes(b"2")
            put_checked(scratch / "made", path)
            assert is_intact(path)
            assert path.read_bytes() == b"2"
    assert not scratch.exists()
    assert tree(cache) == before


@pytest.mark.slow
def test_last_words_of_an_unhealthy_release_are_shown(edgekit: Any, ekb: Any) -> None:
    done = edgekit("deploy", ekb("TINY_CRASH", 'TINY_SAY="cannot map the weights"'))
    assert done.code == 7
    lines = done.err.splitlines()
    assert lines[-2] == "local said: cannot map the weights"
    assert "killed by SIGABRT" in lines[-1]


def test_counter_is_for_models(edgekit: Any, ekb: Any) -> None:
    done = edgekit("deploy", ekb(), "--counter", "3")
    assert done.code == 2
    assert "--counter" in done.complaint


def test_compile_writes_the_counter(edgekit: Any, home: Path, face_model: Path) -> None:
    small = face_model.with_name("okay_nabu.tflite")
    assert edgekit("compile", small, "--counter", "7", "-o", "x.ekb").code == 0
    assert Bundle.read(home / "x.ekb").manifest.counter == 7


def interrupted_in(state: str, bundle: Path, board: str = "local") -> tuple[int, str]:
    """Exit code and last line of a deploy that gets Ctrl-C as it enters `state`."""
    program = "from edgekit.host.cli.main import run; run()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "deploy", bundle, "--board", board],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    ) as process:
        watchdog = threading.Timer(AMPLE, process.kill)
        watchdog.start()
        assert process.stdout and process.stderr
        lines = []
        for line in process.stderr:
            lines.append(line)
            if f": {state} ..." in line:
                process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        watchdog.cancel()
    return process.returncode, lines[-1]


@pytest.mark.slow
def test_interrupt_in_the_health_check_keeps_the_old_release(edgekit: Any, ekb: Any) -> None:
    assert edgekit("deploy", ekb()).code == 0
    before = edgekit("status", "--json").document["current"]
    code, shown = interrupted_in("health", ekb("TINY_HANG"))
    assert code == 130
    assert "interrupted in state 'health'" in shown
    assert f"the old release {before['id']}" in shown
    assert edgekit("status", "--json").document["current"] == before


@pytest.mark.slow
def test_interrupt_of_the_first_deploy_leaves_nothing(edgekit: Any, ekb: Any) -> None:
    code, shown = interrupted_in("health", ekb("TINY_HANG"))
    assert code == 130
    assert "nothing ran on local before" in shown
    assert edgekit("status", "--json").document["current"] is None


@pytest.mark.slow
@pytest.mark.sshd
def test_interrupt_over_ssh_keeps_the_old_release(edgekit: Any, ekb: Any, pinned: None) -> None:
    assert edgekit("deploy", ekb(), "--board", "here").code == 0
    before = edgekit("status", "--board", "here", "--json").document["current"]
    code, shown = interrupted_in("health", ekb("TINY_HANG"), "here")
    assert code == 130
    assert f"the old release {before['id']} of tiny keeps running on here" in shown
    assert edgekit("status", "--board", "here", "--json").document["current"] == before


@pytest.mark.slow
def test_what_a_model_takes_after_its_deploy_goes_into_the_history(
    edgekit: Any, home: Path, face_model: Path, ekb: Any
) -> None:
    def recorded() -> list[str]:
        """Lines of the log on what went into the history, and why some did not."""
        log = home.parent / "home" / "state" / "edgekit.log"
        return [line for line in log.read_text().splitlines() if "in the history" in line]

    History().close()
    small = face_model.with_name("okay_nabu.tflite")
    assert edgekit("deploy", small).code == 0
    (line,) = recorded()  # a busy machine is a reason not to keep it
    assert "okay_nabu.tflite on local" in line
    assert edgekit("deploy", ekb(counter=5)).code == 0
    assert len(recorded()) == 1  # not kept: a bundle does not record its compile options


@pytest.mark.slow
def test_what_goes_into_the_history_was_measured_on_a_quiet_board(
    edgekit: Any, face_model: Path
) -> None:
    kept: list[tuple[Any, ...]] = []

    def keep(*given: Any) -> int:
        kept.append(given)
        return 1

    small, device = face_model.with_name("okay_nabu.tflite"), connect("local")
    assert edgekit("deploy", small).code == 0
    found = device.bench(count=2)
    quiet = replace(found, noise=Noise(2, 0.0, False, 0.0), p10_ms=1.0, median_ms=1.0, p90_ms=1.0)
    keep_in_history(small, device, DEFAULT_OPTIONS, quiet, keep)
    assert kept == []  # nothing was tuned
    History().close()
    keep_in_history(small, device, DEFAULT_OPTIONS, replace(quiet, p90_ms=2.0), keep)
    assert kept == []
    keep_in_history(small, device, DEFAULT_OPTIONS, quiet, keep)
    ((model, _, _, board, timing, _),) = kept
    assert (model, board, timing) == (small, "local", quiet) and timing.operators
