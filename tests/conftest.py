"""Fixtures that several folders share: bundles of a hand-written model, a device to put them on."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from edgekit.device.runtime.agent.signing import enroll
from edgekit.device.runtime.agent.store import Store
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, build_bundle, sign_bundle, signing_key
from edgekit.host.deploy.transport import LocalTransport
from edgekit.kb.targets.board import load_board
from tests.support.compiler_cache import home_with_shared_cache
from tests.support.tiny_bundles import tiny_artifact as tiny_artifact_in

TinyArtifact = Callable[..., Artifact]
TinyBundle = Callable[..., Bundle]


def pytest_configure() -> None:
    """What must not depend on where the tests were started.

    A job started in the background may ignore Ctrl-C, and so would all that tests start. How long
    one example takes says more of what else the machine does than of the code. `scripts/test --all`
    sets EDGEKIT_TEST_ALL: hypothesis looks for new examples.
    """
    os.environ.setdefault("EDGEKIT_NO_FETCH", "1")  # the network is for the scripts
    # Programs that tests compile themselves link the C libraries that the toolchain has built.
    for variable, name in (("GLOBAL", "zig"), ("LOCAL", "zig-local")):
        folder = cache_folder() / "objects" / name
        os.environ.setdefault(f"ZIG_{variable}_CACHE_DIR", str(folder))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    slow = [HealthCheck.too_slow]
    searching = settings(deadline=None, suppress_health_check=slow)
    settings.register_profile("search", searching)
    # The same examples in every run: a change is what makes a test fail, not the day.
    settings.register_profile("repeat", searching, derandomize=True, max_examples=50)
    settings.load_profile("search" if "EDGEKIT_TEST_ALL" in os.environ else "repeat")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live to the end: searching them for garbage takes a tenth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the long suites did, whether all went well or not."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)]
    counts = [value for r in reports for key, value in r.user_properties if key == "count"]
    if counts:
        terminalreporter.section("long suites")
        for line in counts:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> TinyArtifact:
    """y = 2x + 1 of tests/device/tiny_model.c, compiled with the given -D options."""

    @functools.cache
    def build(*defines: str) -> Artifact:
        return tiny_artifact_in(tmp_path_factory.mktemp("tiny"), *defines)

    return build


@pytest.fixture(scope="session")
def trusted(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    """The key that signs the bundles of the tests."""
    return signing_key(tmp_path_factory.mktemp("trusted") / "keys")


@pytest.fixture(scope="session")
def tiny(tiny_artifact: TinyArtifact, trusted: SigningKey) -> TinyBundle:
    """A signed bundle for this machine of the tiny model with the given -D options."""

    @functools.cache
    def build(*defines: str, counter: int = 0) -> Bundle:
        bundle = build_bundle(tiny_artifact(*defines), load_board("local"), counter)
        return sign_bundle(bundle, trusted)

    return build


@pytest.fixture(scope="session")
def used_board(
    tmp_path_factory: pytest.TempPathFactory, trusted: SigningKey, tiny: TinyBundle
) -> Path:
    """The directory of a board that the tiny model was deployed to and run on, for copies."""
    folder = tmp_path_factory.mktemp("used")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_HOME", str(folder / "home"))
        store = Store(folder / "board")
        store.create()
        enroll(store, trusted.public.line)
        device = Device(LocalTransport(store.root))
        device.deploy(tiny())
        device.run({"x": np.zeros(4, np.float32)})
    return store.root


@pytest.fixture(scope="session")
def bytecode(used_board: Path) -> Path:
    """What a board keeps of the runtime's bytecode once it was deployed to and used."""
    return Store(used_board).bytecode


@pytest.fixture
def board_root(
    tmp_path: Path, trusted: SigningKey, bytecode: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The directory of a board on this machine that trusts the tests' key, and has started the
    runtime before."""
    monkeypatch.setenv("EDGEKIT_HOME", str(home_with_shared_cache(tmp_path / "home")))
    store = Store(tmp_path / "board")
    store.create()
    enroll(store, trusted.public.line)
    shutil.copytree(bytecode, store.bytecode, dirs_exist_ok=True)
    return store.root


@pytest.fixture
def device(board_root: Path) -> Device:
    """This machine as a board, with nothing deployed."""
    return Device(LocalTransport(board_root))


@pytest.fixture
def tiny_device(used_board: Path, board_root: Path, device: Device) -> Device:
    """This machine as a board that runs the tiny model: a copy, since deploying takes a second."""
    shutil.copytree(used_board, board_root, symlinks=True, dirs_exist_ok=True)
    return device


Arrays = dict[str, Any]


@pytest.fixture(scope="session")
def litert_session() -> Callable[..., Callable[[Mapping[str, Any]], Arrays]]:
    """content → a function from inputs to outputs, by name, with LiteRT's reference kernels.

    `fast`: with those it uses itself, for operators that have no other, or a wrong one.
    Inputs of other shapes than the file's resize it.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    def load(content: bytes, fast: bool = False) -> Callable[[Mapping[str, Any]], Arrays]:
        kind = OpResolverType.BUILTIN if fast else OpResolverType.BUILTIN_REF
        interpreter = Interpreter(model_content=content, experimental_op_resolver_type=kind)
        interpreter.allocate_tensors()

        def run(inputs: Mapping[str, Any]) -> Arrays:
            for detail in interpreter.get_input_details():
                if tuple(detail["shape"]) != inputs[detail["name"]].shape:
                    shape = list(inputs[detail["name"]].shape)
                    interpreter.resize_tensor_input(detail["index"], shape)
                    interpreter.allocate_tensors()
            for detail in interpreter.get_input_details():
                interpreter.set_tensor(detail["index"], inputs[detail["name"]])
            interpreter.invoke()
            outputs = interpreter.get_output_details()
            return {d["name"]: interpreter.get_tensor(d["index"]) for d in outputs}

        return run

    return load


@pytest.fixture(scope="session")
def litert(litert_session: Callable[..., Any]) -> Callable[..., Arrays]:
    """One run of a file: (content, inputs by name) → outputs by name."""
    return lambda content, inputs, fast=False: litert_session(content, fast)(inputs)
