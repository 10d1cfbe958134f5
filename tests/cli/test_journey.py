"""From a model to timings on board `local`, through the command line alone."""

from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SMALL = "okay_nabu"
BENCH_KEYS = {
    "schema",
    "board",
    "model",
    "threads",
    "latency_ms",
    "operators",
    "arena_bytes",
    "weights_bytes",
    "peers",
}


@pytest.fixture(autouse=True)
def models(home: Path, face_model: Path) -> None:
    (home / "models").symlink_to(face_model.parent)


@pytest.fixture
def small_bundle(edgekit: Any, home: Path) -> Path:
    """A bundle of a small model for this machine."""
    done = edgekit("compile", f"models/{SMALL}.tflite", "-o", "small.ekb")
    assert done.code == 0, done.err
    return home / "small.ekb"


def check_bench(document: Any) -> None:
    assert document["schema"] == "edgekit.bench.model/1"
    assert set(document) >= BENCH_KEYS
    latency = document["latency_ms"]
    assert set(latency) == {"median", "p10", "p90", "n"}
    assert 0 < latency["p10"] <= latency["median"] <= latency["p90"]
    for operator in document["operators"]:
        assert set(operator) >= {"name", "op", "kernel", "median_us", "share"}
    assert sum(o["share"] for o in document["operators"]) == pytest.approx(1)


def test_compile_names_the_bundle_after_model_and_board(edgekit: Any, home: Path) -> None:
    done = edgekit("compile", f"models/{SMALL}.tflite", "--board", "a57", "--json")
    assert done.code == 0, done.err
    document = done.document
    assert document["schema"] == "edgekit.compile/1"
    assert (document["board"], document["bundle"]) == ("a57", f"{SMALL}-a57.ekb")
    assert (home / document["bundle"]).stat().st_size == document["bundle_bytes"]
    assert document["release"] in edgekit("compile", f"models/{SMALL}.tflite", "--board", "a57").out


def test_explain_holds_every_operator(edgekit: Any, home: Path) -> None:
    done = edgekit("compile", f"models/{SMALL}.tflite", "--explain", "why.json", "--json")
    explained = json.loads((home / "why.json").read_text())
    assert explained["schema"] == "edgekit.explain/1"
    with_kernel = [o for o in explained["operators"] if o["kernel"]]
    assert len(with_kernel) == done.document["operators"]
    parts = [name for part in explained["subgraphs"] for name in part["operators"]]
    names = [o["name"] for o in explained["operators"]]
    assert explained["order"] == parts == names
    assert set(explained["key_nodes"]) <= set(names)
    assert (explained["objective"], explained["random_seed"]) == ("time", 0)
    assert {o["unit"] for o in explained["operators"]} == {"cpu"}
    assert all(o["cost_us"] >= 0 for o in explained["operators"])


def test_the_order_of_a_bundle_is_chosen_already(edgekit: Any, small_bundle: Path) -> None:
    done = edgekit("deploy", small_bundle, "--precision", "f16", "--dry-run")
    assert done.code == 2
    assert "--precision" in done.complaint and "compile the model again" in done.complaint


def test_list_operators(edgekit: Any) -> None:
    lines = edgekit("compile", "--list-operators").out.splitlines()
    formats = ("Caffe ", "ONNX ")
    assert lines == sorted(lines, key=lambda line: (*map(line.startswith, formats), line))
    assert {"CONV_2D", "DEPTHWISE_CONV_2D", "VAR_HANDLE"} <= set(lines)
    document = edgekit("compile", "--list-operators", "--json").document
    assert document["schema"] == "edgekit.operators/1"
    of_onnx = [f"ONNX {name}" for name in document["onnx_operators"]]
    of_caffe = [f"Caffe {name}" for name in document["caffe_operators"]]
    assert document["operators"] + of_onnx + of_caffe == lines
    assert {"ONNX Conv", "Caffe Convolution"} <= set(lines)


def test_a_bundle_is_not_compiled_again(edgekit: Any, small_bundle: Path) -> None:
    done = edgekit("compile", small_bundle)
    assert done.code == 2
    assert "edgekit deploy" in done.complaint


def test_deploy_and_back(edgekit: Any, small_bundle: Path, face_model: Path) -> None:
    first = edgekit("deploy", face_model, "--json")
    assert first.code == 0, first.err
    assert first.document["schema"] == "edgekit.deploy/1"
    assert first.document["changed"] is True
    assert first.document["health"]["max_difference"]
    check_bench(first.document["bench"])

    planned = edgekit("deploy", small_bundle, "--dry-run", "--json").document
    assert (planned["schema"], planned["unchanged"]) == ("edgekit.deploy.plan/1", False)
    assert edgekit("status", "--json").document["current"]["id"] == first.document["release"]

    second = edgekit("deploy", small_bundle, "--json").document
    assert (second["release"], second["previous"]) == (
        planned["release"],
        first.document["release"],
    )
    assert second["sent_bytes"] == planned["send_bytes"]
    again = edgekit("deploy", small_bundle, "--json").document
    assert (again["changed"], again["sent_bytes"]) == (False, 0)

    back = edgekit("rollback", "--json").document
    assert back["schema"] == "edgekit.rollback/1"
    assert back["current"]["id"] == first.document["release"]
    status = edgekit("status", "--json").document
    assert status["schema"] == "edgekit.status/1"
    assert status["current"] == back["current"]
    assert status["previous"]["id"] == second["release"]


@pytest.mark.slow
def test_deploy_tells_people_what_they_want_to_know(edgekit: Any, small_bundle: Path) -> None:
    lines = edgekit("deploy", small_bundle).out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["release", "health", "latency"]
    assert "µs median" in lines[2]
    table = lines[[line.split()[0] for line in lines].index("operator") :]
    assert table[0].split() == ["operator", "kind", "kernel", "µs", "share"]
    shares = [float(line.split()[-2]) for line in table[1:]]
    assert shares == sorted(shares, reverse=True)
    assert SMALL in edgekit("status").out


@pytest.mark.slow
def test_dry_run_shows_what_the_deploy_then_does(edgekit: Any, small_bundle: Path) -> None:
    planned = edgekit("deploy", small_bundle, "--dry-run", "--json").document
    assert [f["path"] for f in planned["files"] if f["sent"]] == planned["send"]
    assert 0 < planned["send_bytes"] < planned["disk_needed_bytes"] < planned["disk_free_bytes"]
    assert 0 < planned["memory_needed_bytes"] < planned["memory_available_bytes"]
    shown = edgekit("deploy", small_bundle, "--dry-run").out.splitlines()
    rows = {line.split()[0]: line.split() for line in shown}
    assert rows["release"][1] == planned["release"]
    assert [rows[s][-1] for s in planned["states"]] == ["do"] * 8
    assert all(rows[path][1] == "send" for path in planned["send"])

    done = edgekit("deploy", small_bundle, "--json")
    entered = [line.split()[-2] for line in done.err.splitlines() if "deploying" in line]
    assert entered == planned["states"]
    (runtime,) = (f["bytes"] for f in planned["files"] if f["path"] == "runtime.pyz")
    # The deploy installs the runtime before it can query it, so the release omits it.
    assert done.document["sent_bytes"] == planned["send_bytes"] - runtime

    shown = edgekit("deploy", small_bundle, "--dry-run").out.splitlines()
    rows = {line.split()[0]: line.split() for line in shown}
    assert "nothing to do" in shown[0]
    assert [rows[s][-1] for s in planned["states"]] == ["do"] * 2 + ["skip"] * 6
    assert all(rows[path][1] == "skip" for path in planned["send"])


@pytest.mark.exhaustive
def test_deploy_takes_the_model_from_the_settings(edgekit: Any, home: Path) -> None:
    (home / "edgekit.toml").write_text(f'model = "models/{SMALL}.tflite"\n')
    assert edgekit("deploy", "--dry-run", "--json").document["unchanged"] is False


@pytest.mark.slow
def test_bundle_for_another_machine_is_refused(edgekit: Any, home: Path) -> None:
    assert edgekit("compile", f"models/{SMALL}.tflite", "--board", "rv64gc").code == 0
    done = edgekit("deploy", f"{SMALL}-rv64gc.ekb")
    assert (done.code, done.out) == (5, "")
    assert "riscv64" in done.complaint


def test_boards_without_an_address_are_refused_before_work(edgekit: Any, face_model: Path) -> None:
    done = edgekit("deploy", face_model, "--board", "a57")
    assert (done.code, done.out) == (2, "")
    assert "a57" in done.complaint


@pytest.mark.slow
def test_run_takes_and_gives_arrays_by_name(edgekit: Any, home: Path, face_model: Path) -> None:
    np.savez(home / "x.npz", input=np.zeros((1, 128, 128, 3), np.float32))
    files = ("--input", "x.npz", "--output", "y.npz")
    done = edgekit("run", face_model, *files, "--json")
    assert done.code == 0, done.err
    assert done.document["schema"] == "edgekit.run/1"
    with np.load(home / "y.npz") as outputs:
        assert outputs["regressors"].shape == (1, 896, 16)
        assert outputs["classificators"].dtype == np.float32
        first = {name: outputs[name] for name in outputs.files}
    again = edgekit("run", *files)
    assert again.code == 0
    assert done.document["release"] in again.out
    with np.load(home / "y.npz") as outputs:
        for name, array in first.items():
            np.testing.assert_array_equal(outputs[name], array)


@pytest.mark.slow
def test_run_refuses_wrong_inputs(edgekit: Any, home: Path, face_model: Path) -> None:
    assert edgekit("deploy", face_model).code == 0
    wrong: list[tuple[dict[str, Any], str]] = [
        ({name: np.zeros((1, 128, 128, 3), np.float32) for name in ("wrong", "b")}, "wrong"),
        ({"input": np.zeros((1, 3), np.float32)}, "128"),
        ({"input": np.zeros((1, 128, 128, 3), np.complex64)}, "f32"),
        ({"input": np.array([object()])}, "x.npz"),
        ({}, "input"),
    ]
    for arrays, expected in wrong:
        np.savez(home / "x.npz", **arrays)
        done = edgekit("run", "--input", "x.npz", "--output", "y.npz")
        assert (done.code, done.out) == (2, "")
        assert expected in done.complaint
        assert not (home / "y.npz").exists()


@pytest.mark.parametrize("content", [None, b"", b"hello", b"PK\x03\x04"])
def test_run_refuses_what_is_not_npz(edgekit: Any, home: Path, content: bytes | None) -> None:
    if content is not None:
        (home / "x.npz").write_bytes(content)
    done = edgekit("run", "--input", "x.npz", "--output", "y.npz")
    assert done.code == 2
    assert "x.npz" in done.complaint


def test_run_without_a_release_says_how_to_deploy(edgekit: Any, home: Path) -> None:
    np.savez(home / "x.npz", input=np.zeros(1))
    done = edgekit("run", "--input", "x.npz", "--output", "y.npz")
    assert done.code == 2
    assert "edgekit deploy" in done.complaint


def test_rollback_without_a_previous_release(edgekit: Any) -> None:
    done = edgekit("rollback")
    assert (done.code, done.out) == (2, "")
    assert "previous" in done.complaint


@pytest.mark.exhaustive
def test_bench_leaves_alone_what_is_deployed(edgekit: Any, small_bundle: Path) -> None:
    assert edgekit("bench", "model").code == 2
    done = edgekit("bench", "model", small_bundle, "--runs", "50", "--threads", "2", "--json")
    assert done.code == 0, done.err
    check_bench(done.document)
    assert done.document["latency_ms"]["n"] == 50
    assert (done.document["threads"], done.document["peers"]) == (2, {})
    assert edgekit("status", "--json").document["current"] is None
    assert edgekit("deploy", small_bundle).code == 0
    check_bench(edgekit("bench", "model", "--runs", "50", "--json").document)


@pytest.mark.slow
def test_bench_of_several_models_tells_of_failures_and_goes_on(
    edgekit: Any, home: Path, small_bundle: Path
) -> None:
    (home / "broken.tflite").write_bytes(b"\0" * 64)
    done = edgekit("bench", "model", "broken.tflite", small_bundle, "--runs", "20", "--json")
    assert done.code == 2
    assert done.document["schema"] == "edgekit.bench.models/1"
    assert [m["model"] for m in done.document["models"]] == [SMALL]
    assert [m["model"] for m in done.document["failed"]] == ["broken.tflite"]
    for document in done.document["models"]:
        check_bench(document)
    text = edgekit("bench", "model", small_bundle, small_bundle, "--runs", "20").out
    assert [line.split()[0] for line in text.splitlines()] == ["model", SMALL, SMALL]


@pytest.mark.exhaustive
@pytest.mark.peers
@pytest.mark.slow
def test_bench_with_peers(edgekit: Any, face_model: Path) -> None:
    done = edgekit("bench", "model", face_model, "--runs", "20", "--peers", "--json")
    assert done.code == 0, done.err
    litert = done.document["peers"]["litert"]
    assert litert["latency_ms"]["median"] > 0
    assert litert["ratio"] > 0


def test_peers_need_the_model_itself(edgekit: Any, small_bundle: Path) -> None:
    done = edgekit("bench", "model", small_bundle, "--peers")
    assert done.code == 2
    assert ".tflite" in done.complaint


@pytest.mark.parametrize("target", ["nosuch/x.ekb", "nosuch/", "/proc/x.ekb"])
def test_unwritable_output(edgekit: Any, target: str) -> None:
    done = edgekit("compile", f"models/{SMALL}.tflite", "-o", target)
    assert (done.code, done.out) == (2, "")
    assert target in done.complaint


def test_the_model_is_not_overwritten(edgekit: Any, home: Path, face_model: Path) -> None:
    copy = home / "m.tflite"
    copy.write_bytes(face_model.read_bytes())
    for option in ("-o", "--explain"):
        done = edgekit("compile", "m.tflite", option, "./m.tflite")
        assert done.code == 2
        assert "found the model" in done.complaint
    assert copy.read_bytes() == face_model.read_bytes()


def limit_file_size() -> None:
    """Makes writes beyond 64 KiB fail in this process, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


@pytest.mark.slow
def test_disk_full_leaves_nothing_behind(
    edgekit_process: Any, small_bundle: Path, home: Path
) -> None:
    before = sorted(home.iterdir())
    done = edgekit_process(
        "compile", f"models/{SMALL}.tflite", "-o", "full.ekb", preexec_fn=limit_file_size
    )
    assert (done.code, done.out) == (2, "")
    assert "full.ekb" in done.complaint
    assert sorted(home.iterdir()) == before
