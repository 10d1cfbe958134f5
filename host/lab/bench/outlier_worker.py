"""Times all contenders of `lab bench gemm --dtype outlier` in one process, on the same cores.

    python -m edgekit.host.lab.bench.outlier_worker SETTINGS    {"threads", "cpus", "peers"} as JSON

Prints {"versions": {...}, "missing": {...}}, then answers each line {"m", "k", "n"} with {"times":
{name: [nanoseconds, per round]}, "errors": {name: relative error}, "missing": {...}, "outliers",
"path", "reason", "bytes"}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np

from edgekit.device.runtime.arrays.outlier import OutlierWeights, outlier_matmul
from edgekit.host.lab.bench.answering import Answer, Message, answer_questions
from edgekit.host.lab.bench.gemm_contenders import UnavailableError
from edgekit.host.lab.bench.gemm_worker import in_turns
from edgekit.host.lab.bench.outlier_contenders import (
    BYTES_ALONE,
    OutlierLayer,
    OutlierPeers,
    Prepare,
    bytes_alone,
    our_contenders,
    peer_contenders,
    runner_of,
)

_OUTLIER_SHARE = 0.005  # of the channels, as in transformers; at least one
_OUTLIER = 20.0  # factor applied to outlier channels
_WRONG = 0.1  # a relative error too large to come from quantization


def layer_of(m: int, k: int, n: int) -> OutlierLayer:
    """Random activations with some outlier channels, and weights distributed like trained ones."""
    rng = np.random.default_rng(m * 7919 + k * 31 + n)
    x = np.clip(rng.standard_normal((m, k), dtype=np.float32), -5, 5)
    outliers = rng.choice(k, max(int(k * _OUTLIER_SHARE), 1), replace=False)
    x[:, outliers] *= np.float32(_OUTLIER)
    w = rng.standard_normal((k, n), dtype=np.float32) / np.float32(k**0.5)
    scale = np.abs(w).max(axis=0) / np.float32(127)
    return OutlierLayer(x, np.rint(w / scale).astype(np.int8), scale)


def time_layer(layer: OutlierLayer, contenders: dict[str, Prepare], threads: int) -> dict[str, Any]:
    """Times one product with every contender that can compute it, after checking the result, and
    the bare int8 product."""
    exact = layer.x.astype(np.float64) @ layer.weights.astype(np.float64)
    runners, errors, missing = {}, {}, {}
    for name, prepare in contenders.items():
        try:
            call = prepare(layer, threads)
            error = np.linalg.norm(call() - exact) / np.linalg.norm(exact)
        except UnavailableError as why:
            missing[name] = str(why)
            continue
        if not error < _WRONG:
            missing[name] = f"a result with an error of {error:.0%}"
            continue
        runners[name], errors[name] = runner_of(call), float(error)
    runners[BYTES_ALONE] = bytes_alone(layer, threads)
    weights = OutlierWeights.from_int8(layer.values, layer.scale)
    _, about = outlier_matmul(layer.x, weights, threads=threads, explain=True)
    return {
        "times": in_turns(runners, threads > 1),
        "errors": errors,
        "missing": missing,
        "outliers": about.outliers,
        "path": about.path,
        "reason": about.reason,
        "bytes": about.report.bytes,
    }


def main(text: str) -> None:
    """Answers questions until EOF."""

    def begin() -> tuple[Message, Answer]:
        settings = json.loads(text)
        os.sched_setaffinity(0, settings["cpus"])
        contenders = our_contenders()
        peers = peer_contenders() if settings["peers"] else OutlierPeers({}, {}, {})
        contenders |= peers.prepare

        def answer(question: Message) -> Message:
            layer = layer_of(question["m"], question["k"], question["n"])
            return time_layer(layer, contenders, settings["threads"])

        return {"versions": peers.versions, "missing": peers.missing}, answer

    answer_questions(begin)


if __name__ == "__main__":
    main(*sys.argv[1:])
