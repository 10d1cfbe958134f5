"""Estimates the products of SmolLM2's layers in llama.cpp's library on a board's core.

    npm pack @node-llama-cpp/linux-arm64 && tar xzf node-llama-cpp-linux-arm64-*.tgz
    python scripts/llama_cpp.py package/bins/linux-arm64 --board rpi5 --threads 1 --rows 1

Weights are Q4_0 in the form that the library itself chooses for the core, as when it loads a file;
the variant of the library is the one with the highest score there. The shapes are those of
scripts/few_bits.py.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib
import os
import random
import sys
from pathlib import Path
from typing import Any

_F32, _Q4_0, _BLOCK, _BLOCK_BYTES = 0, 2, 32, 18
_WIDTH, _SHARED, _WIDE = 576, 192, 1536
_BEGIN, _END, _WARM, _WARMED = 777001, 777002, 777004, 777005
_MOST_ERROR = 0.02  # relative to the largest value


class _Parameters(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("bare", ctypes.c_bool))


def main() -> int:
    if sys.argv[1] == "--guest":
        return _guest(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="with libggml-base.so")
    parser.add_argument("--board", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1, metavar="N", help="tokens at a time")
    parser.add_argument("--layers", type=int, default=6, metavar="N")
    asked = parser.parse_args()
    milliseconds, said = _estimate(asked)
    print(f"{said.strip()}: estimated {milliseconds:.3g} ms on {asked.board}")
    return 0


def _estimate(asked: argparse.Namespace) -> tuple[float, str]:
    from edgekit.host.lab.bench.board_peers import NUMPY
    from edgekit.host.simulator.emulator import find_emulator
    from edgekit.host.simulator.identity import view_of
    from edgekit.host.simulator.root import system_root, wheels
    from edgekit.host.simulator.run import SimulatorJob, run_job
    from edgekit.host.simulator.target import target_of
    from edgekit.kb.targets.board import load_board

    target = target_of(load_board(asked.board))
    root = system_root(target.board.arch, print)
    view = view_of(target.core.name, target.core, root)
    numbers = map(str, (asked.threads, asked.rows, asked.layers))
    words = ("-S", str(Path(__file__).resolve()), "--guest", str(asked.folder.resolve()), *numbers)
    job = SimulatorJob(
        (str(view.interpreter), *words),
        view.folder,
        quiet=True,
        variables={"PYTHONPATH": str(wheels(root, [NUMPY], print)), "LC_ALL": "C"},
    )
    run = run_job(find_emulator(target.board.arch, print), target, job)
    return target.milliseconds(run.regions[0].cost.cycles), run.said


class _Library:
    """The functions of ggml, which give addresses unless `plain` says otherwise."""

    def __init__(self, folder: Path) -> None:
        self.base = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
        variants = [ctypes.CDLL(str(each)) for each in sorted(folder.glob("libggml-cpu-*.so"))]
        scores = [each.ggml_backend_score() for each in variants]
        best = variants[scores.index(max(scores))]
        self.name = Path(best._name).stem.removeprefix("libggml-cpu-")
        best.ggml_backend_init.restype = ctypes.c_void_p
        self.registry = best.ggml_backend_init()
        self.device = self.call("ggml_backend_reg_dev_get", self.registry, ctypes.c_size_t(0))
        self.backend = self.call("ggml_backend_dev_init", self.device, None)

    def call(self, name: str, *values: Any) -> Any:
        function = getattr(self.base, name)
        function.restype = ctypes.c_void_p
        return function(*(ctypes.c_void_p(v) if v.__class__ is int else v for v in values))

    def named(self, name: str, result: Any, *kinds: Any) -> Any:
        """A function of the core's variant."""
        at = self.call("ggml_backend_reg_get_proc_address", self.registry, name.encode())
        return ctypes.CFUNCTYPE(result, *kinds)(at)

    def context(self) -> Any:
        return self.call("ggml_init", _Parameters(64 << 20, None, True))

    def matrix(self, context: Any, kind: int, columns: int, rows: int) -> Any:
        sizes = (ctypes.c_int64(columns), ctypes.c_int64(rows))
        return self.call("ggml_new_tensor_2d", context, ctypes.c_int(kind), *sizes)

    def weight_buffer(self) -> Any:
        """The form of weights that is the core's own, else the plain one."""
        own = self.named(
            "ggml_backend_dev_get_extra_bufts", ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
        )(self.device)
        plain = self.call("ggml_backend_dev_buffer_type", self.device)
        return own[0] if own and own[0] and self.name != "armv8.0_1" else plain


def _guest(folder: Path, threads: int, rows: int, layers: int) -> int:
    library = _Library(folder)
    pointer = ctypes.c_void_p
    library.named("ggml_backend_set_n_threads", None, pointer, ctypes.c_int)(
        library.backend, threads
    )
    weights, work = library.context(), library.context()
    x = library.matrix(work, _F32, _WIDTH, rows)
    matrices: list[tuple[Any, int, int]] = []

    def product(of: Any, k: int, n: int) -> Any:
        matrices.append((library.matrix(weights, _Q4_0, k, n), k, n))
        return library.call("ggml_mul_mat", work, matrices[-1][0], of)

    ends, first = [], None
    for _ in range(layers):
        keys = product(x, _WIDTH, _SHARED)
        first = first or keys
        ends.append(library.call("ggml_add", work, keys, product(x, _WIDTH, _SHARED)))
        made = product(product(x, _WIDTH, _WIDTH), _WIDTH, _WIDTH)
        wide = (product(made, _WIDTH, _WIDE), product(made, _WIDTH, _WIDE))
        ends.append(product(library.call("ggml_add", work, *wide), _WIDE, _WIDTH))
    graph = library.call("ggml_new_graph", work)
    for end in ends:
        library.call("ggml_build_forward_expand", graph, end)
    library.call("ggml_backend_alloc_ctx_tensors_from_buft", weights, library.weight_buffer())
    library.call("ggml_backend_alloc_ctx_tensors", work, library.backend)
    source = random.Random(0)
    data = [_random_blocks(source, k, n) for _, k, n in matrices]
    for (tensor, _, _), each in zip(matrices, data, strict=True):
        _set(library, tensor, each)
    numpy: Any = importlib.import_module("numpy")
    given = numpy.random.default_rng(0).standard_normal((rows, _WIDTH)).astype("f4")
    _set(library, x, given.tobytes())
    for begin, end in ((_WARM, _WARMED), (_BEGIN, _END)):
        _mark(begin)
        library.call("ggml_backend_graph_compute", library.backend, graph)
        _mark(end)
    found = numpy.empty((rows, _SHARED), "f4")
    size = (ctypes.c_size_t(0), ctypes.c_size_t(found.nbytes))
    library.call("ggml_backend_tensor_get", first, found.ctypes.data, *size)
    wanted = given @ _floats(numpy, data[0], _SHARED).T
    error = float(abs(found - wanted).max() / abs(wanted).max())
    if not error < _MOST_ERROR:
        sys.exit(f"expected products within {_MOST_ERROR:.0%}, found {error:.1%}")
    print(f"llama.cpp ({library.name}), {threads} threads, {rows} rows", flush=True)
    os._exit(0)


def _set(library: _Library, tensor: Any, data: bytes) -> None:
    size = (ctypes.c_size_t(0), ctypes.c_size_t(len(data)))
    library.call("ggml_backend_tensor_set", tensor, ctypes.c_char_p(data), *size)


def _random_blocks(source: random.Random, k: int, n: int) -> bytes:
    """Q4_0: an f16 scale of about 0.01, and 32 values."""
    values = source.randbytes(n * k // 2)
    step = _BLOCK // 2
    return b"".join(b"\x1f\x21" + values[i : i + step] for i in range(0, len(values), step))


def _floats(numpy: Any, data: bytes, rows: int) -> Any:
    blocks = numpy.frombuffer(data, "u1").reshape(-1, _BLOCK_BYTES)
    scale = blocks[:, :2].copy().view("f2").astype("f4")
    codes = numpy.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1)
    return ((codes.astype("f4") - 8) * scale).reshape(rows, -1)


def _mark(number: int) -> None:
    with contextlib.suppress(OSError):  # no such descriptor exists: the call itself is the mark
        os.close(number)


if __name__ == "__main__":
    raise SystemExit(main())
