#!/usr/bin/env python3
"""Estimates what share of a core's peak 3x3 convolutions of YOLO11n reach.

    python scripts/conv_peak.py [--boards rpi3,rk3566,rpi5] [--precisions f32,f16] [--write]

Each distinct 3x3 convolution of YOLO11n for pictures of 640 x 640, with bias and without
activation, is an output of one model with random weights, which is estimated on one thread in f32
and, where the core has it, f16. --write puts the shares into docs/results/conv_peak.csv. The shapes
are from the published description of the architecture. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper
from results import csv_text, record
from yolov8n import Network

from edgekit.kb.targets.board import load_board

# Input and output channels, stride, and width and height of the output.
_SHAPES = (
    (3, 16, 2, 320),
    (16, 32, 2, 160),
    (16, 8, 1, 160),
    (8, 16, 1, 160),
    (64, 64, 2, 80),
    (32, 16, 1, 80),
    (64, 64, 1, 80),
    (128, 128, 2, 40),
    (32, 32, 1, 40),
    (128, 64, 1, 40),
    (64, 64, 1, 40),
    (128, 256, 2, 20),
    (64, 64, 1, 20),
    (256, 64, 1, 20),
)
_KEY = ("board", "precision", "inputs", "outputs", "stride", "size")
_SOURCE = ("estimated", "scripts/conv_peak.py --write")


def main() -> None:
    """Parse the command line."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--boards", default="rpi3,rk3566,rpi5")
    parser.add_argument("--precisions", default="f32,f16")
    parser.add_argument("--write", action="store_true", help="into docs/results")
    options = parser.parse_args()
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "convolutions.onnx"
        onnx.save(_model(), model)
        for board in options.boards.split(","):
            for precision in options.precisions.split(","):
                if precision != "f16" or load_board(board).computes_half:
                    rows += _rows(board, precision, _estimate(model, board, precision))
    print(csv_text(rows))
    if options.write:
        record("conv_peak.csv", rows, _KEY, _SOURCE)


def _model() -> onnx.ModelProto:
    """One convolution per shape, each with an input and an output of its own."""
    made, inputs, outputs = Network(), [], []
    for number, (channels, filters, stride, size) in enumerate(_SHAPES):
        places = [1, channels, size * stride, size * stride]
        inputs.append(helper.make_tensor_value_info(f"x{number}", TensorProto.FLOAT, places))
        made.product(f"x{number}", channels, filters, 3, stride)
        made.nodes[-1].name = f"shape{number}"
        made.nodes[-1].output[0] = f"shape{number}"
        shape = [1, filters, size, size]
        outputs.append(helper.make_tensor_value_info(f"shape{number}", TensorProto.FLOAT, shape))
    graph = helper.make_graph(made.nodes, "convolutions", inputs, outputs, made.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _estimate(model: Path, board: str, precision: str) -> dict[str, Any]:
    """The document of `edgekit estimate`."""
    command = ["edgekit", "estimate", str(model), "--board", board]
    command += ["--precision", precision, "--threads", "1", "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return dict(json.loads(done.stdout))


def _rows(board: str, precision: str, document: dict[str, Any]) -> list[dict[str, str]]:
    """A row per shape: its operator's share of the peak, and the causes of most of its cycles."""
    found = {o["name"].partition(".")[0]: o for o in document["operators"] if o["multiply_adds"]}
    rows = []
    for number, (channels, filters, stride, size) in enumerate(_SHAPES):
        operator = found[f"shape{number}"]
        causes = sorted(operator["bound"].items(), key=lambda item: -item[1])[:3]
        shares = (f"{name} {cycles / operator['cycles']:.0%}" for name, cycles in causes)
        rows.append(
            {
                "board": board,
                "core": document["core"],
                "precision": precision,
                "inputs": str(channels),
                "outputs": str(filters),
                "stride": str(stride),
                "size": str(size),
                "kernel": operator["kernel"],
                "peak_percent": f"{100 * operator['of_peak']:.0f}",
                "cycles_by_cause": ", ".join(shares),
            }
        )
    return rows


if __name__ == "__main__":
    main()
