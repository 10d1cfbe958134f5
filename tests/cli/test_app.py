"""`edgekit app`: an application is written, installed with its model, watched and stopped."""

from __future__ import annotations

import json
import os
import re
import shutil
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.agent import service
from edgekit.device.runtime.agent.store import Store
from edgekit.host.deploy.api import connect
from edgekit.host.deploy.bundle import sign_bundle
from edgekit.host.deploy.release import enroll_host
from tests.support.applications import UnixConnection, state_of
from tests.support.applications import write_application as write
from tests.support.patience import until
from tests.support.places import few_or_all

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("bare_init")]
X = np.array([1, 2, 3, -4], np.float32)
CLIENTS = 4


def ask(board: Path, body: bytes, length: str = "") -> tuple[int, bytes, str | None]:
    """Sends one request to the server on the board, with that Content-Length; returns status, body
    and release."""
    connection = UnixConnection(board / "app" / "data" / "serve.sock")
    headers = {"Content-Length": length.encode("latin-1")} if length else {}
    connection.request("POST", "/run", body, headers)
    answer = connection.getresponse()
    found = answer.status, answer.read(), answer.getheader("X-Release")
    connection.close()
    return found


@pytest.mark.exhaustive
def test_board_too_slow_to_answer_in_time_is_starting(
    edgekit: Any, home: Path, deployed: Path
) -> None:
    edgekit("app", "install", write(home / "doors", ""))
    edgekit("app", "stop")
    runtime, started = deployed / "current" / "runtime.pyz", []
    found = service.start(Store(deployed), 0.0, runtime, started.append)
    assert (found["state"], found["name"]) == ("starting", "doors")
    assert len(started) == 1


@pytest.mark.exhaustive
def test_server_answers_until_it_is_stopped(edgekit: Any, home: Path, deployed: Path) -> None:
    assert edgekit("app", "new", "serve", home / "doors").code == 0
    installed = edgekit("app", "install", home / "doors", "--json").document
    assert (installed["state"], installed["name"]) == ("running", "doors")
    assert installed["said"].startswith("serving tiny on ")
    code, body, release = ask(deployed, X.tobytes())
    assert (code, release) == (200, installed["release"])
    np.testing.assert_array_equal(np.frombuffer(body, np.float32), 2 * X + 1)
    assert ask(deployed, b"123")[:2] == (400, b"expected 16 bytes for /run, found 3 for /run\n")

    assert edgekit("app", "status", "--json").document["pid"] == installed["pid"]
    assert edgekit("app", "stop", "--json").document["state"] == "stopped"
    with pytest.raises(ConnectionRefusedError):
        ask(deployed, X.tobytes())
    assert edgekit("app", "status").out.endswith("\n\nedgekit: doors was stopped\n")
    assert "was stopped" not in edgekit("app", "status", "--lines", "0").out
    assert edgekit("app", "start", "--json").document["state"] == "running"


@pytest.mark.parametrize("count", [50, pytest.param(2500, marks=pytest.mark.long)])
def test_server_answers_four_clients_at_once(
    edgekit: Any, home: Path, deployed: Path, count: int
) -> None:
    edgekit("app", "new", "serve", home / "doors")
    assert edgekit("app", "install", home / "doors").code == 0
    for odd in ("²", "-1", "9" * 5000):
        assert ask(deployed, b"", odd)[0] == 400

    def client(number: int) -> int:
        connection = UnixConnection(deployed / "app" / "data" / "serve.sock")
        right = 0
        for i in range(count):
            x = X * (number * count + i)
            connection.request("POST", "/run", x.tobytes())
            right += connection.getresponse().read() == (2 * x + 1).tobytes()
        connection.close()
        return right

    with ThreadPoolExecutor(CLIENTS) as pool:
        assert list(pool.map(client, range(CLIENTS))) == [count] * CLIENTS
    assert "Traceback" not in edgekit("app", "status", "--lines", "99").out


def test_camera_finds_the_face(edgekit: Any, home: Path, face_model: Path) -> None:
    face = Image.open(face_model.parent / "astronaut.png").convert("RGB").resize((200, 200))
    empty = bytes(200 * 200 * 3)
    (home / "pictures.rgb").write_bytes(empty + face.tobytes() + face.tobytes() + empty)
    assert edgekit("app", "new", "camera", home / "door").code == 0
    settings = home / "door" / "app.toml"
    arguments = f'arguments = ["--size", "200x200", "--command", "cat {home / "pictures.rgb"}"]'
    settings.write_text(re.sub("arguments = .*", arguments, settings.read_text()))
    assert edgekit("app", "install", home / "door", face_model).code == 0
    until(lambda: state_of(home.parent / "home" / "boards" / "local").state == "ended")
    lines = edgekit("app", "status", "--json").document["lines"]
    first, score, *box = re.findall(
        r"picture (\d): face, ([\d.]+), at (\d+) (\d+) (\d+) (\d+)$", lines[0]
    )[0]
    assert (first, lines[1]) == ("1", "picture 3: nothing")
    assert float(score) > 0.8
    np.testing.assert_allclose([*map(int, box)], [70, 32, 107, 69], atol=6)
    edgekit("app", "stop")


def test_server_finds_faces_without_options(
    edgekit: Any, home: Path, face_model: Path, deployed: Path
) -> None:
    assert edgekit("app", "new", "serve", home / "door").code == 0
    assert edgekit("app", "install", home / "door", face_model).code == 0
    connection = UnixConnection(deployed / "app" / "data" / "serve.sock")
    connection.request("POST", "/detect", (face_model.parent / "astronaut.png").read_bytes())
    answer = connection.getresponse()
    found = json.loads(answer.read())
    connection.close()
    assert answer.status == 200 and [box["label"] for box in found["boxes"]] == ["face"]
    edgekit("app", "stop")


def test_microphone_hears_the_wake_word_and_nothing_else(
    edgekit: Any, home: Path, face_model: Path
) -> None:
    sounds = np.load(Path(__file__).parents[1] / "support" / "wake_word.npz")
    noise = np.random.default_rng(0).normal(0, 300, 16000).astype("<i2")
    said = [noise, sounds["open_the_door"], noise, sounds["okay_nabu"], np.zeros(16000, "<i2")]
    with wave.open(str(home / "said.wav"), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes(np.concatenate(said).tobytes())
    assert edgekit("app", "new", "microphone", home / "ear").code == 0
    settings = home / "ear" / "app.toml"
    arguments = f'arguments = ["--wav", "{home / "said.wav"}"]'
    settings.write_text(re.sub("arguments = .*", arguments, settings.read_text()))
    model = face_model.with_name("okay_nabu.tflite")
    assert edgekit("app", "install", home / "ear", model).code == 0
    until(lambda: state_of(home.parent / "home" / "boards" / "local").state == "ended")
    heard = edgekit("app", "status", "--json").document["lines"]
    assert heard[1:] == ["edgekit: ear ended with exit code 0: " + heard[0]]
    begins = sum(map(len, said[:3])) / 16000
    assert begins < float(heard[0].split()[2]) < begins + 2
    edgekit("app", "stop")


def test_installed_application_goes_and_comes_with_its_release(
    edgekit: Any, home: Path, deployed: Path
) -> None:
    program = "import edgekit_runtime, signal\nedgekit_runtime.alive({!r})\nsignal.pause()\n"
    for said in ("one", "two"):
        write(home / said, program.format(said))
        assert edgekit("app", "install", home / said, "--json").document["said"] == said
    assert edgekit("rollback").code == 0
    assert edgekit("app", "start", "--json").document["said"] == "one"


WATCHFUL = """
import array, edgekit_runtime, sys, time
with edgekit_runtime.open() as model:
    while True:
        (y,) = model.run({"x": array.array("f", [1, 2, 3, -4])}).values()
        if bytes(y) != array.array("f", [3, 5, 7, -7]).tobytes():
            sys.exit("odd numbers")
        time.sleep(0.01)
"""


def test_deploy_of_a_model_keeps_the_application(
    edgekit: Any, home: Path, deployed: Path, tiny: Any
) -> None:
    installed = edgekit("app", "install", write(home / "watch", WATCHFUL), "--json").document
    sign_bundle(tiny('TINY_NAME="newer"')).write(home / "newer.ekb")
    planned = edgekit("deploy", home / "newer.ekb", "--dry-run", "--json").document
    done = edgekit("deploy", home / "newer.ekb", "--json").document
    assert done["release"] == planned["release"]
    assert (planned["application"], done["application"]) == ("watch", "watch")
    assert "app/main.py" not in planned["send"]
    until(lambda: state_of(deployed).release == done["release"])
    state = edgekit("app", "status", "--json").document
    assert (state["name"], state["pid"]) == ("watch", installed["pid"])
    again = edgekit("deploy", home / "newer.ekb")
    assert "app      watch stays, with this release\n" in again.out

    left = edgekit("deploy", home / "newer.ekb", "--no-application")
    assert "app      watch stops: this release has none\n" in left.out
    until(lambda: state_of(deployed).pid == 0)
    assert edgekit("app", "status", "--json").document["pid"] == 0


def test_deploy_of_a_model_with_which_the_application_fails_goes_back(
    edgekit: Any, home: Path, deployed: Path, tiny: Any
) -> None:
    before = edgekit("app", "install", write(home / "watch", WATCHFUL), "--json").document
    sign_bundle(tiny("TINY_STATE")).write(home / "odd.ekb")
    assert edgekit("deploy", home / "odd.ekb").code in (0, 7)
    store = Store(deployed)
    until(lambda: store.links().current == before["release"])
    until(lambda: store.read_note(store.failure) is not None)  # the rollback precedes the note
    reason = edgekit("status", "--json").document["last_failure"]["reason"]
    assert re.match(
        r"watch failed \d+ times in a row; most recently it ended .*odd numbers", reason
    )


def test_application_of_another_host_is_not_signed_again(
    edgekit: Any, home: Path, deployed: Path, tiny: Any
) -> None:
    edgekit("app", "install", write(home / "watch", WATCHFUL))
    shutil.rmtree(home.parent / "home" / "keys")
    enroll_host(connect("local"))
    sign_bundle(tiny('TINY_NAME="newer"')).write(home / "newer.ekb")
    done = edgekit("deploy", home / "newer.ekb")
    assert done.code == 2
    assert "expected a release with a signature of this host" in done.complaint
    assert "--no-application" in done.complaint
    assert edgekit("deploy", home / "newer.ekb", "--no-application").code == 0


EATER = """
import signal
held = bytearray(b"x" * (64 << 20))
signal.pause()
"""


@pytest.mark.parametrize(
    ("program", "settings", "reason"),
    [
        ("raise ValueError('no camera')", "", "ended with exit code 1: ValueError: no camera"),
        pytest.param(  # test_app_in_c has another signal
            *("import os; os.abort()", "", "was killed by SIGABRT"), marks=pytest.mark.exhaustive
        ),
        pytest.param(  # test_supervisor has it as well
            *(EATER, "memory_mib = 32", "bytes of memory, more than the allowed 33554432"),
            marks=pytest.mark.exhaustive,
        ),
    ],
    ids=["exception", "crash", "memory"],
)
def test_application_that_fails_gives_way_to_the_release_before(
    edgekit: Any, home: Path, deployed: Path, program: str, settings: str, reason: str
) -> None:
    before = edgekit("status", "--json").document["current"]["id"]
    done = edgekit("app", "install", write(home / "bad", program, settings))
    assert done.code == 7
    assert "was rolled back (bad failed 3 times in a row; most recently it" in done.complaint
    assert reason in done.complaint
    found = edgekit("status", "--json").document
    assert found["current"]["id"] == before
    assert reason in found["last_failure"]["reason"]
    shown = edgekit("app", "status").out
    assert f"failed   release {found['last_failure']['release']}: bad failed 3 times" in shown
    assert reason in shown
    assert edgekit("app", "install", write(home / "good", GOOD)).code == 0
    assert "failed" not in edgekit("app", "status", "--lines", "0").out


@pytest.mark.parametrize("template", few_or_all(["camera", "microphone"], ["camera"]))
def test_template_whose_program_is_missing_does_not_run(
    edgekit: Any, home: Path, template: str
) -> None:
    """As on a board without ffmpeg or arecord."""
    model = {"camera": "face_detection_short_range", "microphone": "okay_nabu"}[template]
    enroll_host(connect("local"))
    assert edgekit("app", "new", template).code == 0
    with (home / template / "app.toml").open("a") as settings:
        settings.write('\narguments = ["--command", "no-such-program"]\n')
    text = (home / template / "app.toml").read_text().replace("arguments = []", "")
    (home / template / "app.toml").write_text(text)
    models = Path(__file__).parents[2] / "models"
    done = edgekit("app", "install", template, models / f"{model}.tflite")
    assert done.code == 1
    assert "expected to run no-such-program, found: No such file or directory" in done.err
    edgekit("app", "stop")


def test_application_that_fails_once_it_said_ready_is_not_running(
    edgekit: Any, home: Path, deployed: Path
) -> None:
    program = "import edgekit_runtime; edgekit_runtime.alive(); raise OSError('no camera')"
    done = edgekit("app", "install", write(home / "bad", program))
    assert done.code == 7
    assert "OSError: no camera" in done.complaint


GOOD = "import edgekit_runtime, signal; edgekit_runtime.alive(); signal.pause()"


def test_application_that_hangs_is_ended(edgekit: Any, home: Path, deployed: Path) -> None:
    before = edgekit("status", "--json").document["current"]["id"]
    hangs = "import edgekit_runtime, signal; edgekit_runtime.alive(); signal.pause()"
    edgekit("app", "install", write(home / "bad", hangs, "watchdog_seconds = 1"))
    store = Store(deployed)
    until(lambda: store.links().current == before)
    until(lambda: store.read_note(store.failure) is not None)
    found = edgekit("status", "--json").document
    assert "most recently it sent no heartbeat for" in found["last_failure"]["reason"]


def test_application_that_ends_by_itself_is_left_alone(
    edgekit: Any, home: Path, deployed: Path
) -> None:
    done = edgekit("app", "install", write(home / "once", "print('done')"), "--json").document
    assert (done["state"], done["restarts"]) == ("ended", 0)
    assert edgekit("app", "start", "--json").document["state"] == "ended"
    assert edgekit("app", "status").out.splitlines().count("done") == 2


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({}, "expected an application with app.toml, found none"),
        ({"app.toml": ""}, "expected the program main.py, found none"),
        ({"app.toml": "watchdog = 3"}, "unknown field `watchdog`"),
        ({"app.toml": "entry = ["}, "expected the keys of an application, found"),
        ({"app.toml": "memory_mib = -1", "main.py": ""}, "memory_mib: expected 0 to"),
        ({"app.toml": "", "main.py": "", "a b": ""}, "expected files with names of letters"),
    ],
    ids=["no settings", "no program", "unknown key", "no TOML", "negative", "odd name"],
)
def test_folder_that_is_no_application_is_named(
    edgekit: Any, home: Path, deployed: Path, files: dict[str, str], complaint: str
) -> None:
    folder = home / "odd"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    done = edgekit("app", "install", folder)
    assert done.code == 2
    assert complaint in done.complaint


def test_library_for_c_programs_is_written(edgekit: Any, home: Path) -> None:
    done = edgekit("app", "library", home / "c", "--json")
    assert {"ek_app.h", "ek_gemm.h", "libedgekit-app.so"} < set(done.document["files"])
    assert all((home / "c" / name).stat().st_size for name in done.document["files"])
    assert edgekit("app", "library", home / "c", "--board", "nothing").code == 2


def test_a_missing_application_is_reported(edgekit: Any, home: Path) -> None:
    for command in ("status", "stop"):
        done = edgekit("app", command)
        assert done.code == 2
        assert "expected an application on this board, found none" in done.complaint
    write(home / "one", "")
    done = edgekit("app", "install", home / "one")
    assert done.code == 2
    assert "expected a deployed model, found none" in done.complaint
    assert edgekit("app", "new", "serve", home / "one").code == 2


def test_application_gets_its_priority_and_cores(edgekit: Any, home: Path, deployed: Path) -> None:
    first = min(os.sched_getaffinity(0))
    program = (
        "import edgekit_runtime, os, signal\n"
        "edgekit_runtime.alive(f'{os.getpriority(0, 0)} {sorted(os.sched_getaffinity(0))}')\n"
        "signal.pause()\n"
    )
    settings = f"watchdog_seconds = 0\npriority = 7\ncores = [{first}, 1023]"
    done = edgekit("app", "install", write(home / "nice", program, settings), "--json").document
    assert done["said"] == f"7 [{first}]"
    assert done["denied"] == f"cores {first},1023, lacks 1023"
    assert "denied   cores" in edgekit("app", "status").out
    found = {one["check"]: one for one in edgekit("doctor", "--json").document["findings"]}
    assert found["application"]["found"] == f"nice: {done['denied']}"
    assert "limits.conf" in found["application"]["fix"]
    wrong = edgekit("app", "install", write(home / "wrong", program, "priority = 20"))
    assert "expected the keys of an application" in wrong.complaint
    asked = 'scheduler = "rr"\npriority = 1'
    wrong = edgekit("app", "install", write(home / "late", program, asked))
    assert "priority: expected -20 to 0 for the scheduler rr, found 1" in wrong.complaint
