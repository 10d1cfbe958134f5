"""Rows of docs/results/boards.csv: which are estimated again, and what is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

from edgekit.device.runtime.agent.specs import OperatorSpec
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.board_peers import ENGINES, PeerEstimate, PeerJob
from edgekit.host.lab.bench.board_rows import (
    BoardRow,
    BoardSetup,
    Steps,
    ask_ours,
    ask_peers,
    kept_row,
    take_recorded,
)
from edgekit.host.simulator.model import ModelEstimate, OperatorEstimate
from edgekit.host.simulator.run import SimulatedCost
from edgekit.kb.targets.board import BoardProfile

_PLACE = BoardSetup("rpi4")


def ours(ms: float, kind: str = "float") -> ModelEstimate:
    cost = SimulatedCost(int(ms * 1e6), 1, {})
    memory = (0, 0, 0)
    about = ("m", "release", "rpi4", "a72", 1000.0, 1, kind)
    return ModelEstimate(*about, cost, (), *memory, shapes={}, variants=1, proof=None)


def computed_by(kernel: str) -> ModelEstimate:
    operator = OperatorEstimate(OperatorSpec("c", "conv2d", kernel), SimulatedCost(1, 1, {}))
    return replace(ours(1), operators=(operator,))


def peers(**ms: float) -> dict[str, PeerEstimate]:
    """Estimates in milliseconds by engine name; other engines are missing."""
    missing = {name: PeerEstimate(name, missing="runs other models") for name in ENGINES}
    ran = {n: PeerEstimate(n, "1", "", SimulatedCost(1, 1, {}), float(t)) for n, t in ms.items()}
    return missing | ran


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Records estimated engines, including ours, in order; each peer takes 2 ms. `steps` do it."""
    names: list[str] = []
    files = {"model.so": b"first", "weights.bin": b""}
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))

    def peer(name: str, *_: object) -> PeerEstimate:
        names.append(name)
        return peers(**{name: 2})[name]

    def estimate(*_: object) -> tuple[ModelEstimate, float]:
        names.append("edgekit")
        return ours(1), 0.0

    compiled: list[CompileOptions] = []

    def bundle(model: Path, board: BoardProfile, options: CompileOptions) -> SimpleNamespace:
        compiled.append(options)
        return SimpleNamespace(manifest=None, files=files)

    steps = Steps(peer, bundle, estimate, lambda: "plugin")
    return SimpleNamespace(names=names, files=files, compiled=compiled, steps=steps)


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(b"....TFL3")
    return path


def test_answers_that_are_kept_are_not_asked_for_again(asked, model):
    for _ in range(2):
        ask_peers(model, _PLACE, str, asked.steps)
        row = ask_ours(model, _PLACE, asked.steps)
    assert asked.names == [*ENGINES, "edgekit"]
    assert row == kept_row(model, _PLACE) and row.best == 2.0


@pytest.mark.parametrize(
    ("kernel", "kind", "precision"),
    [
        ("ek_f32_conv_8x8_f16_all_neon", "float", "f32"),
        ("ek_f16_conv_8x16_neonhalf", "float", "f16"),
        ("ek_s8_conv_lines1_4x4_narrow_half_neon", "int8", "int8"),  # half a step along k
    ],
)
def test_only_kernels_that_compute_in_half_precision_make_a_row_half(
    asked, model, kernel, kind, precision
):
    made = replace(computed_by(kernel), kind=kind)
    row = ask_ours(model, _PLACE, replace(asked.steps, ours=lambda *_: (made, 0.0)))
    assert row.record()["precision"] == precision


@pytest.mark.parametrize(("error", "precisions"), [(0.01, ["auto"]), (0.03, ["auto", "f32"])])
def test_half_precision_that_is_off_does_not_count(asked, model, error, precisions):
    """Seen: FastestDet, off by 2.7% on the inputs that other engines were refused for."""
    steps = replace(asked.steps, ours=lambda *_: (computed_by("ek_f16_conv_8x16_neonhalf"), error))
    for _ in range(2):
        ask_ours(model, _PLACE, steps)
    assert [each.precision for each in asked.compiled] == [*precisions, "auto"]


@pytest.mark.parametrize(
    ("overflows", "error", "precisions"),
    [
        (False, 0.01, ["f16"]),
        (True, 0.01, ["f16", "auto"]),
        (False, 0.03, ["f16", "auto", "f32"]),
    ],
)
def test_ours_is_asked_for_half_precision_like_engines(asked, model, overflows, error, precisions):
    def bundle(model: Path, board: BoardProfile, options: CompileOptions) -> SimpleNamespace:
        made = asked.steps.bundle(model, board, options)
        if overflows and options.precision == "f16":
            raise InputError("expected values up to 65504")
        return made

    def estimate(*_: object) -> tuple[ModelEstimate, float]:
        if asked.compiled[-1].precision == "f32":
            return ours(1), 0.0
        return computed_by("ek_f16_conv_8x16_neonhalf"), error

    row = ask_ours(model, BoardSetup("rpi5"), replace(asked.steps, bundle=bundle, ours=estimate))
    assert [each.precision for each in asked.compiled] == precisions
    assert row.record()["precision"] == ("f32" if precisions[-1] == "f32" else "f16")


def test_our_time_does_not_count_either_where_outputs_are_wrong(asked, model):
    """Seen: models with 8-bit weights were held to nothing; each bound is as for other engines."""
    steps = replace(asked.steps, ours=lambda *_: (ours(1, "int8"), 0.031))
    for _ in range(2):
        row = ask_ours(model, _PLACE, steps)
        assert row.ours is None and not row.known
        assert row.failure.endswith(
            "within 2% of the reference's largest value, found 3.10% in int8"
        )
    assert ask_ours(model, _PLACE, replace(steps, ours=asked.steps.ours)) == row
    asked.files["model.so"] = b"mended"
    assert ask_ours(model, _PLACE, asked.steps).ours is not None


def test_a_run_that_was_stopped_goes_on_with_the_next_engine(asked, model):
    def stopped(name: str, *rest: object) -> PeerEstimate:
        if name == "mnn":
            raise KeyboardInterrupt
        return asked.steps.peer(name, *rest)

    with pytest.raises(KeyboardInterrupt):
        ask_peers(model, _PLACE, str, replace(asked.steps, peer=stopped))
    ask_peers(model, _PLACE, str, asked.steps)
    assert asked.names == list(ENGINES)


def test_only_ours_is_asked_again_where_the_library_changed(asked, model):
    ask_peers(model, _PLACE, str, asked.steps)
    ask_ours(model, _PLACE, asked.steps)
    asked.files["model.so"] = b"second"
    ask_peers(model, _PLACE, str, asked.steps)
    ask_ours(model, _PLACE, asked.steps)
    assert asked.names == [*ENGINES, "edgekit", "edgekit"]


def test_times_of_engines_from_another_machine_are_not_asked_for(
    asked, model, tmp_path, monkeypatch
):
    records = ask_peers(model, _PLACE, str, asked.steps).engine_records()
    assert [each["engine"] for each in records] == list(ENGINES)
    asked.names.clear()
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "other"))
    take_recorded(model, _PLACE, records[1:], asked.steps)
    row = ask_peers(model, _PLACE, str, asked.steps)
    assert asked.names == ["litert"]
    assert row.engine_records() == [*records[1:], records[0]]


def test_our_time_from_another_machine_counts_while_the_library_is_the_same(
    asked, model, tmp_path, monkeypatch
):
    ask_peers(model, _PLACE, str, asked.steps)
    row = ask_ours(model, _PLACE, asked.steps)
    asked.names.clear()
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "other"))
    take_recorded(model, _PLACE, row.engine_records(), asked.steps)
    assert ask_ours(model, _PLACE, asked.steps).record() == row.record()
    assert asked.names == []
    asked.files["model.so"] = b"second"
    ask_ours(model, _PLACE, asked.steps)
    assert asked.names == ["edgekit"]


def test_recorded_times_count_whatever_float_weights_are(asked, tmp_path, monkeypatch):
    """Seen: networks with random weights, of which another machine rounded some differently."""
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])

    def save(operator: str, weight: float) -> Path:
        add = onnx.helper.make_node(operator, ["x", "w"], ["y"])
        weights = onnx.numpy_helper.from_array(np.full(2, weight, np.float32), "w")
        graph = onnx.helper.make_graph([add], "g", [x], [y], [weights])
        onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
        return tmp_path / "m.onnx"

    records = ask_peers(save("Add", 1.0), _PLACE, str, asked.steps).engine_records()
    for operator, known in (("Add", list(ENGINES)), ("Mul", [])):
        monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / operator))
        model = save(operator, 1.5)
        take_recorded(model, _PLACE, records, asked.steps)
        assert list(kept_row(model, _PLACE).peers) == known


def test_recorded_times_of_another_model_do_not_count(asked, model, tmp_path, monkeypatch):
    records = ask_peers(model, _PLACE, str, asked.steps).engine_records()
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "other"))
    model.write_bytes(b"....TFL3 with more")
    take_recorded(model, _PLACE, records, asked.steps)
    assert not kept_row(model, _PLACE).peers


@pytest.mark.parametrize(("threads", "allowed"), [(1, "auto"), (4, "f32")])
def test_ours_is_compiled_for_the_threads_and_precision_of_its_row(asked, model, threads, allowed):
    ask_ours(model, BoardSetup("rpi4", threads, allowed), asked.steps)
    assert [(each.threads, each.precision) for each in asked.compiled] == [(threads, allowed)]


def test_rows_of_each_precision_are_apart(asked, model):
    ask_peers(model, _PLACE, str, asked.steps)
    assert not kept_row(model, replace(_PLACE, allowed="f32")).peers


@pytest.mark.parametrize(("half", "precision"), [(1, "f16"), (3, "f32"), (None, "f32")])
def test_where_half_is_allowed_the_faster_precision_counts(asked, model, half, precision):
    tried = []

    def peer(name: str, job: PeerJob, *_: object) -> PeerEstimate:
        tried.append(job.precisions)
        if job.precisions == ("f16",):
            return replace(peers(**{name: half} if half else {})[name], precision="f16")
        return replace(peers(**{name: 2})[name], precision="f32")

    place = BoardSetup("rpi5")
    found = ask_peers(model, place, str, replace(asked.steps, peer=peer)).peers["mnn"]
    assert (found.precision, found.milliseconds) == (precision, min(half or 2, 2))
    plain = kept_row(model, replace(place, allowed="f32")).peers
    assert {each.milliseconds for each in plain.values()} == {2}
    assert tried == [("f16",), ("f32",)] * len(ENGINES)


def test_a_model_that_does_not_compile_says_why(asked, model):
    def fails(*_: object) -> None:
        raise InputError("m.tflite: expected operators that are known, found FOO")

    row = ask_ours(model, _PLACE, replace(asked.steps, bundle=fails))
    assert "m.tflite: expected operators" in row.failure


def test_a_record_has_each_engine_that_ran_and_the_ratio_of_the_fastest():
    found = peers(litert=4, mnn=0.5)
    found["mnn"] = replace(found["mnn"], precision="f16")
    quantized = PeerEstimate("edgekit", "1", milliseconds=1.0, precision="int8")
    record = BoardRow("b", "rpi4", 4, ours=quantized, peers=found).record()
    assert record == {
        "board": "rpi4",
        "threads": "4",
        "allowed": "auto",
        "model": "b",
        "type": "int8",
        "precision": "int8",
        "edgekit_ms": "1",
        "litert_ms": "4",
        "onnxruntime_ms": "",
        "mnn_ms": "0.5",
        "ncnn_ms": "",
        "in_half": "mnn",
        "fastest_ratio": "0.50",
    }


@pytest.mark.parametrize(("eight", "precision"), [(1, "int8"), (3, "f32")])
def test_networks_run_in_8_bits_where_asked(asked, model, tmp_path, eight, precision):
    """Engines run the quantized files, or the network itself if they are faster in floats."""
    forms = {suffix: tmp_path / f"quantized{suffix}" for suffix in (".onnx", ".tflite")}
    for path in forms.values():
        path.write_bytes(b"....TFL3" if path.suffix == ".tflite" else b"")
    jobs: list[tuple[object, ...]] = []

    def peer(name: str, job: PeerJob, *_: object) -> PeerEstimate:
        jobs.append((job.model, dict(job.forms), job.precisions, job.bound))
        ms = eight if job.precisions == ("int8",) else 2
        return replace(peers(**{name: ms})[name], precision=job.precisions[0])

    compiled: list[Path] = []

    def bundle(path: Path, *_: object) -> SimpleNamespace:
        compiled.append(path)
        return SimpleNamespace(manifest=None, files=asked.files)

    steps = replace(asked.steps, peer=peer, bundle=bundle, forms=lambda _: forms)
    steps = replace(steps, bound=lambda *_: 0.05, ours=lambda *_: (ours(1, "int8"), 0.04))
    place = replace(_PLACE, allowed="int8")
    found = ask_peers(model, place, str, steps).peers["mnn"]
    assert (found.precision, found.milliseconds) == (precision, min(eight, 2))
    assert jobs[0] == (forms[".onnx"], forms, ("int8",), 0.05)
    assert jobs[1] == (model, {model.suffix: model}, ("f32",), 0.02)
    assert ask_ours(model, place, steps).known and compiled == [forms[".onnx"]]
