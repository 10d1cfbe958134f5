"""Programs on a virtual board that multiply with the kernels deployed there."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host import compile_kernels, connect
from edgekit.host.compiler.costs.methods.gemm import Method
from edgekit.host.compiler.tables.gemm import table_of
from edgekit.host.lab.tune.csv_import import REQUIRED
from edgekit.host.simulator.products import Multiplication, ProductTimer
from edgekit.host.simulator.target import target_of
from edgekit.host.virtual import down, up
from edgekit.kb.features import GemmShape
from edgekit.kb.targets.board import load_board
from tests.support.places import few_or_all
from tests.support.product_cases import check_nna, check_products

pytestmark = pytest.mark.boards

_SECONDS = 300.0
_NEIGHBORS = b"""
import json, os, sys
import numpy as np
sys.path.insert(0, os.path.realpath(sys.argv[1]))
from edgekit_runtime import gemm

rng = np.random.default_rng(0)
points = rng.standard_normal((300, 24)).astype(np.float32)
asked = points[::30] + np.float32(0.01)
products, why = gemm(asked, points.T, explain=True)
distances = (points**2).sum(1) - 2 * products
print(json.dumps({"nearest": distances.argmin(1).tolist(), "rule": why.rule}))
"""

_RANKS = b"""
import json, os, sys
from array import array
sys.path.insert(0, os.path.realpath(sys.argv[1]))
from edgekit_runtime import SparseMatrix

# Page i links to i // 2 and to i * 7 % N: many to the first pages. Column j has the links of j.
N, DAMPING = 500, 0.85
links = [sorted({j // 2, j * 7 % N}) for j in range(N)]
rows = [[j for j in range(N) if i in links[j]] for i in range(N)]
starts = array("q", [0])
for row in rows:
    starts.append(starts[-1] + len(row))
values = array("f", (1 / len(links[j]) for row in rows for j in row))
spread = SparseMatrix.from_csr(starts, array("i", (j for row in rows for j in row)), values, (N, N))
rank = array("f", [1 / N] * N)
for _ in range(30):
    rank = array("f", (DAMPING * y + (1 - DAMPING) / N for y in spread.matvec(rank)))
print(json.dumps({"sum": sum(rank), "first": max(range(N), key=rank.__getitem__), "rank": rank[0]}))
"""

_EMBEDDINGS = b"""
import json, os, random, sys
from array import array
sys.path.insert(0, os.path.realpath(sys.argv[1]))
from edgekit_runtime import OutlierWeights, outlier_matmul

# States of texts, two channels of which are large, as in language models; the layer embeds them.
TEXTS, K, N = 24, 96, 48
draw = random.Random(0)
layer = array("b", (draw.randint(-127, 127) for _ in range(K * N)))
values = array("f", (draw.gauss(0, 1) for _ in range(TEXTS * K)))
for text in range(TEXTS):
    values[text * K + 7] *= 40
    values[text * K + 50] *= 60
layer = memoryview(layer).cast("B").cast("b", [K, N])
weights = OutlierWeights.from_int8(layer, array("f", [1 / 64] * N))
states = memoryview(values).cast("B").cast("f", [TEXTS, K])
embedded, why = outlier_matmul(states, weights, path="split", explain=True)
rough = outlier_matmul(states, weights, path="int8", absmax="row")
found = {"embedded": embedded.tolist(), "rough": rough.tolist(), "outliers": why.outliers}
print(json.dumps(found))
"""

_SPOILED = b"""
import json, os, sys, time
from array import array
sys.path.insert(0, os.path.realpath(sys.argv[1]))
from edgekit_runtime import gemm
from edgekit.device.runtime.application import kernels

a, b = (memoryview(array("f", range(24 * 24))).cast("B").cast("f", [24, 24]) for _ in "ab")
how = gemm(a, b, explain=True)[1].method
end, sampler = time.monotonic() + float(sys.argv[2]), None
while time.monotonic() < end:
    gemm(a, b)
    sampler = kernels._sampler(1)
    if sampler and sum(each.tried for each in sampler._trials.values()) > 15:
        break
print(json.dumps({"tile": [how.mr, how.nr], "cost": sampler.cost if sampler else 0.0}))
"""


@pytest.fixture(scope="module")
def board(shared_home, request):
    name = request.param
    up(name)
    found = connect(name).named("kernels")
    assert max(found.deploy(compile_kernels(found.profile)).release.health["max_difference"]) == 0
    yield found
    down(name)


def on(*names):
    """Runs a test on these boards, by default on the first."""
    return pytest.mark.parametrize("board", few_or_all(names, names[:1]), indirect=True)


def run(board, program: bytes, *options: str) -> dict[str, Any]:
    """What a program on the board prints; `options` are Python's."""
    board.transport.put(program, "program.py", deadline=_SECONDS)
    words = [board.transport.python, *options, "program.py", "named/kernels/current/runtime.pyz"]
    done = board.transport.run(words, deadline=_SECONDS)
    assert done.exit_code == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@on("a57")
def test_the_nearest_of_many_points_by_a_product(board):
    found = run(board, _NEIGHBORS)
    assert found["nearest"] == list(range(0, 300, 30))
    assert found["rule"] in ("exact", "analytic") or found["rule"].startswith("relaxed:")


@on("a57", "rv64v")
def test_the_ranks_of_pages_by_a_sparse_matrix(board):
    n = 500
    spread = np.zeros((n, n))
    for page in range(n):
        links = {page // 2, page * 7 % n}
        spread[list(links), page] = 1 / len(links)
    rank = np.full(n, 1 / n)
    for _ in range(30):
        rank = 0.85 * spread @ rank + 0.15 / n
    found = run(board, _RANKS)
    assert found["first"] == rank.argmax() and abs(found["sum"] - 1) < 1e-4
    assert abs(found["rank"] / rank[0] - 1) < 1e-4


@on("a57", "rv64v")
def test_texts_are_embedded_with_their_large_channels_apart(board):
    draw, (texts, k, n) = random.Random(0), (24, 96, 48)
    layer = np.array([draw.randint(-127, 127) / 64 for _ in range(k * n)], np.float32)
    states = np.array([draw.gauss(0, 1) for _ in range(texts * k)], np.float32).reshape(texts, k)
    states[:, [7, 50]] *= [40, 60]
    exact = states @ layer.reshape(k, n)
    found = run(board, _EMBEDDINGS, "-I", "-S")  # without site: without NumPy
    assert found["outliers"] == 2
    split, rough = (np.abs(np.array(found[y]) - exact).mean() for y in ("embedded", "rough"))
    assert split < 0.1 and rough > 10 * split  # one scale for all channels loses the small ones


@on("a57", "rv64v")
def test_products_of_each_kind_are_the_hosts(board):
    program = Path(__file__).parents[1] / "support" / "products_on_board.py"
    found = run(board, program.read_bytes(), "-I", "-S")  # without site: without NumPy
    check_products(found)
    check_nna(found)


def edgekit(*words: object) -> None:
    """Runs a command in this test's home."""
    command = [str(Path(sys.executable).with_name("edgekit")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@on("a57")
@pytest.mark.exhaustive
def test_a_spoiled_table_is_mended_by_trials_within_the_budget(board, tmp_path):
    """The table says that a tiny tile in tiny blocks takes nine tenths of the time. Nothing is
    tuned: the board's own calls, and the little time that they earn, show what is better."""
    profile, shape = load_board("a57"), GemmShape(24, 24, 24)
    spoiled = Method(2, 4, 4, True, True, 2, 4)
    lies = tmp_path / "lies.csv"
    row = f"a57,{profile.platform},f32,1,24,24,24,2,4,4,1,1,2,4,0.0009,0.001"
    lies.write_text(f"{','.join(REQUIRED)}\n{row}\n")
    edgekit("lab", "kb", "build", "--board", "a57", "--import", lies)
    edgekit("deploy", "--tables", "--board", "a57")
    edgekit("profile", "pull", "--board", "a57", "--sampling", "explore")
    board.transport.put(_SPOILED, "spoiled.py", deadline=_SECONDS)
    runtime = "named/kernels/current/runtime.pyz"

    def loop(seconds: int) -> dict[str, Any]:
        words = [board.transport.python, "-I", "-S", "spoiled.py", runtime, str(seconds)]
        done = board.transport.run(words, deadline=2 * _SECONDS)
        assert done.exit_code == 0, done.stderr.decode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    found = loop(int(_SECONDS))
    assert found["tile"] == [2, 4] and 0.0 < found["cost"] < 0.015
    edgekit("profile", "pull", "--board", "a57")
    edgekit("lab", "kb", "build", "--board", "a57")
    edgekit("deploy", "--tables", "--board", "a57")
    assert loop(0)["tile"] != [2, 4]
    mended = table_of(profile).choose(profile, shape, "f32", 1, "none").method.cut(shape)
    timer = ProductTimer(target_of(profile))
    before, after = timer.costs(Multiplication(shape), [spoiled, mended])
    assert after.cycles < before.cycles / 2
