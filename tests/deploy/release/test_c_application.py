"""C programs on a board that run a deployed model through libedgekit-app."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.specs import PlacementSpec
from edgekit.host import compile_model
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, sign_bundle
from tests.support.c_application import RIGHT, SOURCES, build_program
from tests.support.patience import AMPLE
from tests.support.tiny_bundles import compile_shared
from tests.support.toolchains import program_compiler

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
MODELS = Path(__file__).parents[3] / "models"
OTHER = 'TINY_NAME="other"'


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_program(tmp_path_factory.mktemp("application"))


class Program:
    """The running program; each line on its stdin triggers one step."""

    def __init__(self, path: Path, root: Path, *steps: str) -> None:
        pipe = subprocess.PIPE
        waiting = [word for step in steps for word in ("wait", step)]
        self._process = subprocess.Popen(
            [path, root, *waiting], stdin=pipe, stdout=pipe, text=True, bufsize=1
        )

    def step(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate(timeout=AMPLE)


@pytest.fixture
def start(program: Path, board_root: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def begin(*steps: str) -> Program:
        started.append(Program(program, board_root, *steps))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def test_program_follows_releases(
    start: Callable[..., Program], tiny_device: Device, tiny: TinyBundle
) -> None:
    first = tiny().manifest.id
    running = start("run", "run", "refresh")
    assert running.step() == f"{first} {RIGHT}"
    second = tiny_device.deploy(tiny(OTHER)).release.id
    assert running.step() == f"{second} {RIGHT}"
    tiny_device.rollback()
    assert running.step() == "1"


def test_reported_failure_goes_back(
    start: Callable[..., Program], device: Device, tiny: TinyBundle
) -> None:
    first, second = (device.deploy(tiny(*d)).release.id for d in ((), (OTHER,)))
    running = start("run", "fail", "run", "fail")
    assert running.step() == f"{second} {RIGHT}"
    assert running.step() == "1"
    assert running.step() == f"{first} {RIGHT}"
    failure = device.status().last_failure
    assert failure is not None
    assert (failure["release"], failure["reason"]) == (second, "no faces")


def test_release_that_cannot_be_loaded_goes_back(
    start: Callable[..., Program], tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    first = tiny().manifest.id
    running = start("run", "refresh", "run")
    assert running.step() == f"{first} {RIGHT}"
    second = tiny_device.deploy(tiny(OTHER)).release.id
    library = board_root / "releases" / second / "model.so"
    data = bytearray(library.read_bytes())
    data[-1] ^= 1
    library.write_bytes(data)
    assert running.step().startswith(f"-1 release {second} is damaged: model.so: expected it")
    assert running.step() == f"{first} {RIGHT}"
    current = tiny_device.status().current
    assert current is not None
    assert current.id == first


@pytest.mark.parametrize("replaced", ["model.so", "weights.bin"])
def test_what_was_verified_is_what_is_loaded(
    replaced: str, program: Path, device: Device, tiny: TinyBundle, board_root: Path, tmp_path: Path
) -> None:
    """An attacker replaces files right after they are verified."""
    good, other = tiny(), tmp_path / "other"
    release = device.deploy(good).release.id
    other.mkdir()
    files = {"model.so": tiny("TINY_WRONG").files["model.so"], "weights.bin": bytes(8)}
    for name, content in files.items():
        (other / name).write_bytes(content if name == replaced else good.files[name])
    compile_shared(SOURCES / "swap_before_load.c", tmp_path / "swap.so")
    environment = {"LD_PRELOAD": str(tmp_path / "swap.so"), "OTHER": str(other),
                   "RELEASE": str(board_root / "releases" / release)}  # fmt: skip
    done = subprocess.run(
        [program, board_root, "run", "refresh"], env=environment, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[:1] == [f"{release} {RIGHT}"]
    assert not list(other.iterdir())
    assert subprocess.run([program, board_root, "run"], capture_output=True).returncode == 1


def test_page_for_users_compiles_and_runs(program: Path, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "applications.md"
    text, _ = re.findall(r"```c\n(.*?)```", page.read_text(), re.DOTALL)
    source, folder = tmp_path / "page.c", program.parent
    source.write_text(text)
    command = [*program_compiler(), "-Wall", "-Werror", str(source)]
    command += ["-I", str(folder), "-L", str(folder), "-ledgekit-app", f"-Wl,-rpath,{folder}"]
    subprocess.run([*command, "-o", str(tmp_path / "page")], check=True)
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [tmp_path / "page"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"expected a deployed model in {tmp_path}/.edgekit, found none")


def test_nothing_deployed_is_said(program: Path, board_root: Path) -> None:
    done = subprocess.run([program, board_root], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.startswith(f"expected a deployed model in {board_root}, found none")


@pytest.mark.parametrize("kind", ["abstract", "file"])
def test_program_gives_signs_of_life(
    start: Callable[..., Program],
    tiny_device: Device,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)  # socket paths have a length limit
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind("" if kind == "abstract" else "signs")
        name = heard.getsockname()
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name[1:].decode() if kind == "abstract" else name)
        monkeypatch.setenv("WATCHDOG_USEC", "86400000000")
        running = start("run", "run", "alive")
        for _ in range(3):
            running.step()
        heard.setblocking(False)
        signs = []
        with contextlib.suppress(BlockingIOError):
            while True:
                signs.append(heard.recv(999))
        assert signs == [b"WATCHDOG=1", b"STATUS=looks for faces\nWATCHDOG=1"]


@pytest.fixture
def placed(tiny: TinyBundle, trusted: SigningKey, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """A release that sets two threads. Its outputs are the thread count and the numbers of cores
    that its caller and its threads may use."""
    monkeypatch.setenv("TINY_PLACED", "1")
    monkeypatch.setenv("THREADS", "0")
    bundle = tiny()
    specs = (PlacementSpec("all", "", 2, 50.0, 90.0),)
    manifest = replace(bundle.manifest, placements=specs).with_id()
    return sign_bundle(replace(bundle, manifest=manifest), trusted)


def ran(program: Path, root: Path) -> list[str]:
    done = subprocess.run([program, root, "run"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()[1:4]


def test_program_runs_on_as_many_threads_as_the_release_says(
    program: Path, board_root: Path, device: Device, tiny: TinyBundle, placed: Bundle
) -> None:
    every = str(len(os.sched_getaffinity(0)))
    device.deploy(placed)
    assert ran(program, board_root)[0] == str(min(2, int(every)))
    device.deploy(tiny(OTHER))  # sets no placement
    assert ran(program, board_root) == ["1", every, "0"]


def test_models_of_a_program_share_their_threads(
    program: Path,
    board_root: Path,
    device: Device,
    trusted: SigningKey,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = compile_model(MODELS / "okay_nabu.tflite", board="local")
    device.deploy(sign_bundle(model, trusted))
    monkeypatch.setenv("THREADS", "3")
    done = subprocess.run(
        [program, board_root, "again", "again"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == ["3 3 3"] * 2


@pytest.fixture
def run_placed(
    program: Path,
    board_root: Path,
    device: Device,
    placed: Bundle,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[str], list[str]]:
    """run(path): runs the program with that release and the given PATH."""
    device.deploy(placed)

    def run(path: str) -> list[str]:
        monkeypatch.setenv("PATH", path)
        return ran(program, board_root)

    return run


def test_program_keeps_threads_and_caller_on_the_cores_that_the_agent_names(
    run_placed: Callable[[str], list[str]], placed: Bundle, tmp_path: Path
) -> None:
    core = min(os.sched_getaffinity(0))
    agent = tmp_path / "python3"
    agent.write_text(
        "#!/bin/sh\n"
        f'echo "$@" > {tmp_path / "asked"}\n'
        f'echo \'{{"threads": 3, "cluster": "big", "cores": [{core}], "workers": []}}\'\n'
    )
    agent.chmod(0o755)
    assert run_placed(f"{tmp_path}:{os.environ['PATH']}") == ["3", "1", "1"]
    asked = (tmp_path / "asked").read_text()
    assert asked.endswith(f"placement --release {placed.manifest.id}\n")


def test_program_runs_on_one_thread_if_nobody_can_be_asked(
    run_placed: Callable[[str], list[str]], tmp_path: Path
) -> None:
    assert run_placed(str(tmp_path))[0] == "1"
