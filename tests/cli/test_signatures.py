"""Models with several signatures: one release, from which each is chosen by name."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.application import InputError as BoardInputError
from edgekit.device.runtime.application import open as open_on_board
from edgekit.host import compile_model, connect
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import InputError
from tests.cli.test_app import UnixConnection
from tests.support.signature_models import SIGNATURES, codec, expected, inputs_of
from tests.support.toolchains import program_compiler

pytestmark = pytest.mark.slow


@pytest.fixture
def model(home: Path) -> Path:
    path = home / "codec.tflite"
    path.write_bytes(codec())
    return path


@pytest.fixture
def board(edgekit: Any, model: Path, deploy_once: Any) -> Path:
    """The root of the board `local`, on which all signatures are deployed."""

    def deploy() -> None:
        done = edgekit("deploy", model)
        assert done.code == 0
        assert "signatures encode, decode, step; --signature compiles some of them" in done.err

    return Path(deploy_once(deploy))


def _close(found: Any, name: str, inputs: Any) -> None:
    wanted = expected(name, inputs)
    assert set(found) == set(wanted)
    for output, value in wanted.items():
        np.testing.assert_allclose(found[output], value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_signature_is_chosen_at_run(edgekit: Any, home: Path, board: Path, name: str) -> None:
    inputs = inputs_of(name)
    np.savez(home / "in.npz", **inputs)
    files = ("--input", home / "in.npz", "--output", home / "out.npz")
    document = edgekit("run", "--signature", name, *files, "--json").document
    _close(dict(np.load(home / "out.npz")), name, inputs)
    assert [spec["name"] for spec in document["outputs"]] == [*expected(name, inputs)]
    frames = edgekit("run", "--stream", "--signature", name, "--input", home / "in.npz")
    _close(json.loads(frames.out)["outputs"], name, inputs)


@pytest.mark.parametrize("given", [(), ("--signature", "train")])
def test_run_needs_one_of_the_signatures(
    edgekit: Any, home: Path, board: Path, given: tuple[str, ...]
) -> None:
    np.savez(home / "in.npz", **inputs_of("encode"))
    done = edgekit("run", *given, "--input", home / "in.npz", "--output", "-")
    found = given[1] if given else "none"
    assert done.code == 2
    assert f"--signature with one of encode, decode, step, found {found}" in done.complaint


def test_a_session_runs_all_signatures(board: Path) -> None:
    with connect("local").open() as session:
        for name in (*SIGNATURES, "encode"):
            _close(session.run(inputs_of(name), name)[0], name, inputs_of(name))
            _close(session.run(inputs_of(name))[0], name, inputs_of(name))  # by their names
        with pytest.raises(InputError, match=r"encode \(x=1,8\) or decode \(code=1,4\) or step"):
            session.run({"z": np.zeros(3, np.float32)})
    _close(connect("local").run(inputs_of("step"), signature="step")[0], "step", inputs_of("step"))


def test_a_program_on_the_board_runs_all_signatures(board: Path) -> None:
    with open_on_board(root=board) as model:
        assert tuple(model.signatures) == SIGNATURES
        assert [spec.name for spec in model.signatures["step"].inputs] == ["h", "x"]
        assert [spec.name for spec in model.signatures["step"].outputs] == ["h", "code"]
        for name in SIGNATURES:
            _close(model.run(inputs_of(name), signature=name), name, inputs_of(name))
            _close(model.run(inputs_of(name)), name, inputs_of(name))
        with pytest.raises(BoardInputError, match="encode, decode, step, found train"):
            model.run(inputs_of("encode"), signature="train")


_PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "ek_app.h"

int main(int count, char **argument) {
    char error[512];
    ek_app *app = ek_app_open_signature(argument[1], NULL, argument[2], 1, error, sizeof error);
    if (!app)
        return puts(error), 1;
    float in[2][8] = {{0}}, out[2][8];
    for (int i = 3; i < count; ++i)
        in[(i - 3) / 8][(i - 3) % 8] = strtof(argument[i], NULL);
    const void *ins[] = {in[0], in[1]};
    void *outs[] = {out[0], out[1]};
    if (ek_app_run(app, ins, outs, NULL))
        return puts(ek_app_error(app)), 1;
    for (int i = 0; i < 8; ++i)
        printf("%g ", out[0][i]);
    ek_app_close(app);
    return 0;
}
"""


def test_a_program_in_c_opens_a_signature(edgekit: Any, home: Path, board: Path) -> None:
    assert edgekit("app", "library", home / "app").code == 0
    (home / "app.c").write_text(_PROGRAM)
    command = [*program_compiler(), str(home / "app.c"), f"-I{home / 'app'}"]
    command += [f"-L{home / 'app'}", "-ledgekit-app", f"-Wl,-rpath,{home / 'app'}"]
    subprocess.run([*command, "-o", str(home / "program")], check=True)

    def run(name: str, *inputs: Any) -> str:
        numbers = [str(v) for array in inputs for v in array.ravel()]
        words = [str(home / "program"), str(board), name, *numbers]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    for name, output in (("encode", "code"), ("decode", "x"), ("step", "h"), ("", "code")):
        inputs = inputs_of(name or "encode")
        wanted = expected(name or "encode", inputs)[output].ravel()
        found = np.array(run(name, *inputs.values()).split(), np.float32)
        np.testing.assert_allclose(found[: wanted.size], wanted, rtol=1e-3, atol=1e-4)
    assert "expected signature train, found none" in run("train")
    assert "expected signature ode, found none" in run("ode")


@pytest.mark.usefixtures("bare_init")
def test_the_server_of_the_template_runs_all_signatures(
    edgekit: Any, home: Path, board: Path
) -> None:
    edgekit("app", "new", "serve", home / "server")
    assert edgekit("app", "install", home / "server").code == 0
    try:
        connection = UnixConnection(board / "app" / "data" / "serve.sock")
        connection.request("GET", "/")
        about = json.loads(connection.getresponse().read())
        assert [*about["signatures"]] == [*SIGNATURES]
        for path, name in (("/run", "encode"), ("/run/decode", "decode"), ("/run/step", "step")):
            inputs = inputs_of(name)
            connection.request("POST", path, b"".join(x.tobytes() for x in inputs.values()))
            body = np.frombuffer(connection.getresponse().read(), np.float32)
            wanted = np.concatenate([y.ravel() for y in expected(name, inputs).values()])
            np.testing.assert_allclose(body, wanted, rtol=1e-4, atol=1e-5)
        connection.request("POST", "/run/train", bytes(32))
        assert connection.getresponse().status == 400
        connection.close()
    finally:
        edgekit("app", "stop")


def test_inspect_status_and_bench_name_them(
    edgekit: Any, home: Path, board: Path, model: Path
) -> None:
    shown = ["encode (x=1,8)", "decode (code=1,4)", "step (h=1,8 x=1,8)"]
    out = edgekit("status").out
    assert all(f"signature {text}" in out for text in shown)
    document = edgekit("status", "--json").document
    assert document["current"]["signatures"] == [*SIGNATURES]
    found = edgekit("inspect", model, "--json").document
    assert [one["signature"] for one in found["signatures"]] == [*SIGNATURES]
    assert [slot["name"] for slot in found["signatures"][2]["outputs"]] == ["h", "code"]
    assert edgekit("inspect", model, "--signature", "step", "--json").document["compiles"]
    times = edgekit("bench", "model", model, "--runs", "3", "--json").document
    assert times["signature"] == "encode"
    assert [one["signature"] for one in times["variants"]] == ["decode", "step"]


def test_compile_takes_some_of_them(edgekit: Any, home: Path, model: Path) -> None:
    words = ("compile", model, "-o", home / "m.ekb")
    done = edgekit(*words, "--signature", "step", "--signature", "encode", "--json")
    assert done.document["signatures"] == ["step", "encode"]
    assert "--signature compiles" not in done.err
    bundle = Bundle.read(home / "m.ekb")
    first, second = bundle.manifest.every_variant()
    assert [spec.name for spec in first.outputs] == ["h", "code"]
    assert first.memory.weights_bytes == second.memory.weights_bytes  # they share all weights
    done = edgekit(*words, "--signature", "train")
    assert done.code == 2
    assert "--signature: expected one of encode, decode, step, found train" in done.complaint
    done = edgekit(*words, "--input-shape", "x=2,8", "--input-shape", "h=2,8")
    assert done.code == 0  # each signature takes the shapes of its inputs
    shapes = [v.shapes for v in Bundle.read(home / "m.ekb").manifest.every_variant()]
    assert shapes == [{"x": (2, 8)}, {"code": (1, 4)}, {"h": (2, 8), "x": (2, 8)}]


def test_one_signature_leaves_the_release_as_it_is(home: Path) -> None:
    made = []
    for names in ((), ("encode",)):
        path = home / "codec.tflite"
        path.write_bytes(codec(names=names))
        made.append(compile_model(path, "local"))
    plain, one = made
    assert dict(one.files) == dict(plain.files)
    for bundle in made:
        assert b'"signature"' not in bundle.manifest.to_json()
    named = compile_model(home / "codec.tflite", "local", signatures=["encode"])
    assert named.manifest.signature == "encode"
    assert [spec.name for spec in named.manifest.inputs] == ["x"]


def test_a_signature_that_does_not_compile_is_named(edgekit: Any, home: Path) -> None:
    from tests.compiler.frontends.conftest import Files
    from tests.support.signature_models import graphs

    files = Files()
    tensors = [files.tensor("x", [3]), files.tensor("y", [3])]
    odd = files.graph(tensors, [files.op("CUSTOM:Odd", [0], [1])], [0], [1])
    made = [files.signature("encode", 0, {"x": 0}, {"code": 2}),
            files.signature("train", 3, {"x": 0}, {"y": 1})]  # fmt: skip
    path = home / "m.tflite"
    path.write_bytes(files.model(*graphs(files), odd, signatures=made))
    done = edgekit("compile", path)
    assert done.code == 2
    assert "(signature train; --signature compiles others alone)" in done.complaint
    assert edgekit("compile", path, "--signature", "encode").code == 0
