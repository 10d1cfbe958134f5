"""Runs the long suites in this folder at the scale that `docs/releases.md` promises.

Each is a standalone program that can be run with other counts and seeds; see `--help`. Its result
line begins with a number, and is printed with its duration when all tests have ended.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.long.result import result_line
from tests.support.homes import home_over_the_cache
from tests.support.nats_servers import PROGRAM
from tests.support.patience import until

_ROOT = Path(__file__).parents[2]
_SECONDS_LIMIT = 2 * 3600
_NEEDS_LLVM = pytest.mark.skipif(not shutil.which("llvm-objdump"), reason="needs llvm-objdump")
_NEEDS_NODE = pytest.mark.skipif(not shutil.which("node"), reason="needs node")
_NEEDS_DUCKDB = pytest.mark.skipif(
    not (find_spec("duckdb") and find_spec("pyarrow")), reason="needs DuckDB and PyArrow"
)
_NEEDS_NATS = pytest.mark.skipif(not PROGRAM.exists(), reason="no nats-server for this machine")
_NEEDS_TOKENIZERS = pytest.mark.skipif(not find_spec("tokenizers"), reason="needs tokenizers")
_NEEDS_GGUF = pytest.mark.skipif(not find_spec("gguf"), reason="needs gguf")
_SUITES = [
    pytest.param(("hostile_models", "--count", "5000"), id="hostile models"),
    pytest.param(("onnx_nodes",), id="ONNX nodes"),
    pytest.param(("tokens",), id="tokens", marks=_NEEDS_TOKENIZERS),
    pytest.param(("gguf_networks",), id="random language models", marks=_NEEDS_GGUF),
    pytest.param(("decoders",), id="decoders", marks=_NEEDS_LLVM),
    pytest.param(
        ("random_graphs", "--count", "5000"),
        id="random networks",
        marks=(pytest.mark.cross, pytest.mark.engines),
    ),
    pytest.param(
        ("random_graphs", "--count", "520", "--merge", "5", "--sanitize"),
        id="random networks with sanitizers",
        marks=(pytest.mark.cross, pytest.mark.engines, pytest.mark.sanitizers),
    ),
    pytest.param(("zoo",), id="zoo", marks=(pytest.mark.peers, pytest.mark.engines)),
    pytest.param(("viewers",), id="viewers", marks=_NEEDS_NODE),
    pytest.param(("memory_limits",), id="memory limits"),
    pytest.param(("fuzz_bundle", "--minutes", "10"), id="bundles"),
    pytest.param(("flip_bytes", "--bits"), id="signatures"),
    pytest.param(("kill_commands",), id="kills"),
    pytest.param(("flip_installed",), id="installed files"),
    pytest.param(("swap_files",), id="files that change"),
    pytest.param(("swap_files", "--c"), id="files that change, in C"),
    pytest.param(("odd_files",), id="files that are none"),
    pytest.param(("kill_every_syscall",), id="system calls", marks=pytest.mark.sshd),
    pytest.param(("upload_rate",), id="upload rate", marks=pytest.mark.sshd),
    pytest.param(("hot_changes",), id="changes of release"),
    pytest.param(("profile_spool",), id="spool"),
    pytest.param(("profile_store",), id="profiles", marks=_NEEDS_DUCKDB),
    pytest.param(("kill_profile_server",), id="profile server", marks=_NEEDS_DUCKDB),
    pytest.param(("profile_clients",), id="profile clients", marks=_NEEDS_DUCKDB),
    pytest.param(
        ("hostile_clients", "--limit", "inf"),  # times depend on what else the machine does
        id="hostile clients",
        marks=_NEEDS_DUCKDB,
    ),
    pytest.param(("profile_rate",), id="profile rate", marks=_NEEDS_DUCKDB),
    pytest.param(
        ("kill_fleet_profiles", "--batches", "100000"), id="fleet profiles", marks=_NEEDS_NATS
    ),
    pytest.param(("write_rate", "--batches", "4000"), id="write rate", marks=_NEEDS_NATS),
    pytest.param(("sampling_cost",), id="sampling"),
    pytest.param(
        ("sampling_cost", "--board", "a57", "--turns", "10"),
        id="sampling on a board",
        marks=pytest.mark.boards,
    ),
    pytest.param(("kill_rollouts", "--kills", "50"), id="killed rollouts"),
    pytest.param(("two_hosts",), id="two hosts"),
    pytest.param(("rollout_size", "--boards", "1000"), id="a thousand boards"),
    pytest.param(("fetch_at_scale",), id="boards that fetch", marks=_NEEDS_DUCKDB),
    pytest.param(
        ("fleet_on_boards", "--boards", "8"), id="a fleet of boards", marks=pytest.mark.boards
    ),
    pytest.param(("tune_on_cluster",), id="tuning on a cluster", marks=pytest.mark.boards),
    pytest.param(
        ("redeploy", "--limit", "inf"),
        id="deploying again",
        marks=pytest.mark.boards,
    ),
    pytest.param(("power_cut", "--cuts", "50"), id="power cuts", marks=pytest.mark.boards),
]


def test_a_result_begins_with_a_number_that_may_have_separators():
    assert result_line("2 tests\n1,234,567 bytes in 60 s: 64.0 kbit/s\nlimit 0.5\n") == (
        "1,234,567 bytes in 60 s: 64.0 kbit/s"
    )
    assert result_line("kills 3; 5 requests failed\n") is None


@pytest.mark.engines
@pytest.mark.exhaustive
def test_random_graphs_leave_nothing_behind_when_they_are_ended(tmp_path):
    command = [sys.executable, "-m", "tests.long.random_graphs", "--format=onnx", "--board=local"]
    with subprocess.Popen(command, cwd=_ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}) as suite:
        until(lambda: any(path.is_dir() for path in tmp_path.iterdir()))  # tempfile tries a file
        suite.terminate()
    assert suite.returncode == 128 + signal.SIGTERM
    assert not [*tmp_path.iterdir()]


@pytest.mark.long
@pytest.mark.parametrize("suite", _SUITES)
def test_suite(
    suite: tuple[str, ...], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    name, *arguments = suite
    command = [sys.executable, "-m", f"tests.long.{name}", *arguments]
    begin = time.monotonic()
    with home_over_the_cache(tmp_path):
        done = subprocess.run(
            command,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS_LIMIT,
            check=False,
        )
    result = result_line(done.stdout)
    if result:
        seconds = time.monotonic() - begin
        record_property("count", f"{name}: {result} ({seconds:.0f} s)")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert result
