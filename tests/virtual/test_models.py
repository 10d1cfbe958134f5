"""Every model deployed to virtual boards matches its local outputs and returns timings."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.host import compile_model, connect
from edgekit.host.cli.application import new
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.compiled import compiled
from edgekit.host.deploy.release import ApplicationState
from edgekit.host.fleet.profiles import ProfileStore, agreements, pull
from edgekit.host.lab.zoo.models import extended_zoo, zoo_options
from edgekit.host.virtual import down, up
from edgekit.kb.targets.board import load_board
from tests.cli.test_hearing import _melody, _wav, _words
from tests.support.c_application import build_program, dense_model
from tests.support.places import few_or_all

pytestmark = pytest.mark.boards

_MODELS = Path(__file__).parents[2] / "models"
_ZOO = extended_zoo(_MODELS)
_TOLERANCE = 1e-4  # relative to the maximum: summation order differs between cores
_HYBRID_TOLERANCE = 5e-2  # an activation on a rounding boundary may go either way
_MOST_LOOKS = 100  # each one starts a program on the board
_CLIENT = """
import http.client, socket
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("app/data/serve.sock")
connection, answers = Connection("board"), set()
for _ in range(20):
    connection.request("POST", "/run", bytes(128 * 128 * 3 * 4))
    answer = connection.getresponse()
    answers.add((answer.status, len(answer.read())))
print(answers)
"""
_SATELLITE = """
import asyncio, json, sys
sys.path.insert(0, "wyoming.zip")
from wyoming.audio import wav_to_chunks, AudioStop
from wyoming.client import AsyncClient
from wyoming.info import Describe, Info
from wyoming.wake import Detect, Detection
import wave
async def ask():
    async with AsyncClient.from_uri("tcp://127.0.0.1:10400") as client:
        await client.write_event(Describe().event())
        (program,) = Info.from_event(await client.read_event()).wake
        print(json.dumps([model.name for model in program.models]))
        await client.write_event(Detect(names=None).event())
        with wave.open("heard/said.wav") as sound:
            for part in wav_to_chunks(sound, 1280, start_event=True):
                await client.write_event(part.event())
        await client.write_event(AudioStop().event())
        for _ in range(2):
            print(json.dumps(Detection.from_event(await client.read_event()).name))
asyncio.run(ask())
"""
_HYBRID = {"kws_ref_model_float32"}


@pytest.fixture(scope="module", params=["a57", "rv64v"])
def device(request: pytest.FixtureRequest, shared_home: Path) -> Iterator[Device]:
    """A running board, one at a time because the host may have only two cores."""
    up(request.param)
    try:
        yield connect(request.param)
    finally:
        down(request.param)


def _check(device: Device, model: Path) -> None:
    shapes = zoo_options(model).shapes
    graph = import_model(model, shapes)
    rng = np.random.default_rng(1)
    inputs = {name: random_input(graph.tensors[name], rng) for name in graph.inputs}
    expected = evaluate(graph, inputs).outputs
    bundle = compile_model(model, board=device.profile, input_shapes=shapes)
    outputs, timings = device.deploy(bundle).run(inputs)
    assert set(outputs) == set(expected)
    for name, want in expected.items():
        assert outputs[name].dtype == want.dtype and outputs[name].shape == want.shape
        if want.dtype != np.float32:
            np.testing.assert_array_equal(outputs[name], want)
        else:
            relative = _HYBRID_TOLERANCE if model.stem in _HYBRID else _TOLERANCE
            limit = relative * float(np.abs(want).max())
            np.testing.assert_allclose(outputs[name], want, rtol=0, atol=limit)
    assert len(timings.operators) == len(bundle.manifest.operators)
    assert all(operator.median_us >= 0 for operator in timings.operators)
    assert device.emulated


def test_a_small_model_computes_the_same_as_here(device):
    _check(device, _MODELS / "okay_nabu.tflite")


@pytest.mark.long
@pytest.mark.parametrize("model", [*_ZOO.models, *_ZOO.onnx], ids=lambda path: path.stem)
def test_all_models_compute_the_same_as_here(device, model):
    _check(device, model)


@pytest.mark.parametrize("device", ["a57"], indirect=True)
def test_applications_of_the_templates_work(device, tmp_path):
    model = _MODELS / "face_detection_short_range.tflite"
    face = Image.open(_MODELS / "astronaut.png").convert("RGB").resize((480, 480)).tobytes()
    with device.temporary() as board:
        board.transport.put(bytes(len(face)) + face, "pictures.rgb", deadline=60)
        words = '["--size", "480x480", "--command", "cat ../../pictures.rgb"]'
        camera = _template("camera", tmp_path, words)
        board.install(camera, compile_model(model, board=device.profile, task="guess"))
        state = _ended(board)
        assert (state.state, state.boot) == ("ended", "")
        lines = board.application_log()
        assert any(re.match(r"picture 1: face, 0\.[89]", line) for line in lines), lines

        board.install(_template("serve", tmp_path, "[]"))
        _started(board)
        done = board.transport.run(["python3", "-c", _CLIENT], deadline=120)
        outputs = (896 * (16 + 1) + 100 * 7) * 4
        assert done.stdout.decode() == f"{{(200, {outputs})}}\n", done.stderr
        assert board.stop_application().state == "stopped"

        sounds = np.load(Path(__file__).parents[1] / "support" / "wake_word.npz")
        said = [sounds["open_the_door"], sounds["okay_nabu"], np.zeros(16000, "<i2")]
        board.transport.put(np.concatenate(said).tobytes(), "said.raw", deadline=60)
        ear = _template("microphone", tmp_path, '["--command", "cat ../../said.raw"]')
        word = compile_model(_MODELS / "okay_nabu.tflite", board=device.profile)
        board.install(ear, word)
        assert _ended(board).state == "ended"
        heard = [line for line in board.application_log() if line.startswith("heard at ")]
        assert len(heard) == 1, heard


@pytest.mark.exhaustive
@pytest.mark.parametrize("device", ["a57"], indirect=True)
def test_templates_that_hear_words_work(device, tmp_path):
    model = compile_model(_words(tmp_path), board=device.profile, task="keyword")
    _wav(tmp_path / "said.wav", _melody())
    with device.temporary() as board:
        sound = (tmp_path / "said.wav").read_bytes()
        board.transport.put(sound, "heard/said.wav", deadline=60)
        board.install(_template("watch", tmp_path, '["--folder", "../../heard", "--once"]'), model)
        assert _ended(board).state == "ended"
        done = board.transport.run(["cat", "heard/said.wav.json"], deadline=60)
        heard = json.loads(done.stdout)["heard"]
        assert [found["label"] for found in heard] == ["low", "high"]

        board.install(_template("wyoming", tmp_path, "[]"))
        _started(board)
        board.transport.put(_client_of_wyoming(), "wyoming.zip", deadline=60)
        done = board.transport.run(["python3", "-c", _SATELLITE], deadline=120)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        assert answers == [["_silence_", "low", "high"], "low", "high"], done.stderr
        assert board.stop_application().state == "stopped"


@pytest.mark.parametrize("device", few_or_all(("a57", "rv64v"), ["a57"]), indirect=True)
def test_an_inference_of_a_c_program_is_repeated_in_float(device, tmp_path):
    model, samples = dense_model(tmp_path)
    options = CompileOptions(samples=samples, shadow=1, field_ranges=True)
    made = compiled(model, load_board(device.profile), options)
    device.deploy(sign_bundle(made.bundle))
    program = build_program(tmp_path / "c", board=device.profile)
    for file in (program, program.with_name("libedgekit-app.so")):
        device.transport.put(file.read_bytes(), f"c/{file.name}", deadline=120)
    command = "chmod +x c/program; c/program . run run run"
    done = device.transport.run(["sh", "-c", command], deadline=120)
    assert len(done.stdout.splitlines()) == 3, done
    store, found = ProfileStore(tmp_path / "profiles"), []
    for _ in range(_MOST_LOOKS):  # the batch is written after the program has ended
        if pull(device, store).stored.new and (found := agreements(store)):
            break
    assert [(one.inferences, one.agreed) for one in found] == [(1, 1)]


def _client_of_wyoming() -> bytes:
    """The package on the host, for the board."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for part in metadata.files("wyoming") or ():
            if part.suffix == ".py" or part.name == "METADATA":
                packed.write(part.locate(), str(part))
    return file.getvalue()


def _started(board: Device) -> None:
    """Waits until the program has said something."""
    for _ in range(_MOST_LOOKS):
        if board.start_application().said:
            return


def _ended(board: Device) -> ApplicationState:
    """The application's state once it has ended by itself, or after many polls."""
    state = board.start_application()
    for _ in range(_MOST_LOOKS):
        if state.state == "ended":
            break
        state = board.application_status()
    return state


def _template(name: str, folder: Path, arguments: str) -> Path:
    """The application written by `edgekit app new`, with other arguments."""
    target = folder / name
    new(name, target)
    about = target / "app.toml"
    own = f"arguments = {arguments}"
    about.write_text(re.sub("^arguments = .*", own, about.read_text(), flags=re.MULTILINE))
    return target
