"""Programs on a board that run a deployed model through edgekit_runtime."""

from __future__ import annotations

import array
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime import application
from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.release import rollback
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import PlacementRequest
from edgekit.device.runtime.agent.store import Store, committed, manifest_of
from edgekit.device.runtime.application import watch
from edgekit.device.runtime.application.follow import load
from edgekit.device.runtime.application.loaded import Loaded
from edgekit.device.runtime.errors import TooLittleMemoryError, TransferError
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle, SigningKey, build_bundle, sign_bundle
from edgekit.kb.targets.board import load_board
from tests.support.patience import AMPLE

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]
Factor = Callable[[int], Bundle]
X = np.array([1, 2, 3, -4], np.float32)
THREADS = 4
CHANGES = 20


@pytest.fixture
def model(tiny_device: Device, board_root: Path) -> Iterator[application.Model]:
    with application.open(root=board_root) as opened:
        yield opened


@pytest.fixture
def factor(tiny_artifact: Callable[..., Artifact], trusted: SigningKey) -> Factor:
    """build(n): a release of y = n x + 1."""

    def build(n: int) -> Bundle:
        made = tiny_artifact(f'TINY_NAME="{"odd" if n % 2 else "even"}"')  # two libraries
        weights = np.array([n, 1], np.float32)
        golden = made.golden.__class__(
            made.golden.inputs, tuple(n * x + 1 for x in made.golden.inputs), (1e-3,)
        )
        found = Artifact(
            made.model_name,
            made.model_sha256,
            made.library,
            weights.tobytes(),
            made.description,
            golden,
            made.explain,
        )
        return sign_bundle(build_bundle(found, load_board("local"), 0), trusted)

    return build


def test_model_in_service_runs(model: application.Model, device: Device) -> None:
    outputs = model.run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    current = device.status().current
    assert current is not None
    assert outputs.release == model.release == current.id
    assert [(s.name, s.dtype, s.shape) for s in model.inputs] == [("x", "f32", (4,))]


def test_outputs_go_where_they_are_wanted(model: application.Model) -> None:
    given = np.zeros(4, np.float32)
    assert model.run({"x": X}, {"y": given})["y"] is given
    np.testing.assert_array_equal(given, 2 * X + 1)


def test_arrays_of_the_standard_library_do(model: application.Model) -> None:
    given = array.array("f", bytes(16))
    model.run({"x": array.array("f", X)}, {"y": given})
    assert given.tolist() == (2 * X + 1).tolist()
    for value in (X.tobytes(), bytearray(X.tobytes()), memoryview(array.array("f", X))):
        found = model.run({"x": value})["y"]
        assert isinstance(found, memoryview)
        assert found.tolist() == (2 * X + 1).tolist()


@pytest.mark.parametrize(
    "odd",
    [
        np.repeat(X, 2)[::2],
        X.astype(">f4"),
        np.frombuffer(b"-" + X.tobytes(), np.uint8)[1:].view(np.float32),
    ],
    ids=["strided", "big-endian", "misaligned"],
)
def test_arrays_that_no_model_can_read_are_copied(model: application.Model, odd: object) -> None:
    np.testing.assert_array_equal(model.run({"x": odd})["y"], 2 * X + 1)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"z": X}, "expected inputs x, found z"),
        ({"x": X[:3]}, r"input 'x': expected f32 \[4\], found f32 \[3\]"),
        ({"x": X.astype(np.int32)}, r"input 'x': expected f32 \[4\], found s32 \[4\]"),
        ({"x": b"123"}, r"input 'x': expected f32 \[4\], found u8 \[3\]"),
        ({"x": [1, 2, 3, 4]}, "'x': expected an array, found list"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    model: application.Model, inputs: dict[str, object], said: str
) -> None:
    with pytest.raises(application.InputError, match=said):
        model.run(inputs)


def test_outputs_that_cannot_be_written_are_named(model: application.Model) -> None:
    fixed = np.zeros(4, np.float32)
    fixed.setflags(write=False)
    for value in (fixed, np.zeros(8, np.float32)[::2]):
        with pytest.raises(application.InputError, match="output 'y': expected a writable"):
            model.run({"x": X}, {"y": value})
    with pytest.raises(application.InputError, match="expected outputs y, found z"):
        model.run({"x": X}, {"z": np.zeros(4, np.float32)})


def test_nothing_deployed_is_said(board_root: Path) -> None:
    with pytest.raises(application.InputError, match="expected a deployed model, found none"):
        application.open(root=board_root)
    with pytest.raises(application.InputError, match="deployed as 'wake', found none"):
        application.open("wake", root=board_root)


def test_models_beside_each_other(
    model: application.Model, device: Device, factor: Factor, board_root: Path
) -> None:
    device.named("wake").deploy(factor(3))
    with application.open("wake", root=board_root) as wake:
        np.testing.assert_array_equal(wake.run({"x": X})["y"], 3 * X + 1)
        np.testing.assert_array_equal(model.run({"x": X})["y"], 2 * X + 1)


def test_next_inference_after_a_deploy_is_of_the_new_release(
    model: application.Model, device: Device, factor: Factor
) -> None:
    first = model.release
    for n in (3, 4, 5):  # this deletes the first release from the disk
        release = device.deploy(factor(n)).release.id
        outputs = model.run({"x": X})
        np.testing.assert_array_equal(outputs["y"], n * X + 1)
        assert outputs.release == release != first
    device.rollback()
    assert model.refresh()
    assert not model.refresh()
    np.testing.assert_array_equal(model.run({"x": X})["y"], 4 * X + 1)


def test_uncommitted_release_is_not_followed(
    model: application.Model, device: Device, factor: Factor, board_root: Path
) -> None:
    before = model.release
    device.deploy(factor(3))
    store = Store(board_root)
    store.write_note(store.pending, {"current": before, "previous": None})
    assert committed(store) == before
    np.testing.assert_array_equal(model.run({"x": X})["y"], 2 * X + 1)
    store.remove_note(store.pending)
    np.testing.assert_array_equal(model.run({"x": X})["y"], 3 * X + 1)


@pytest.mark.exhaustive
def test_four_threads_lose_and_mix_nothing_over_changes_of_release(
    device: Device, factor: Factor, board_root: Path
) -> None:
    factors = {device.deploy(factor(n)).release.id: n for n in (2, 3)}
    results: list[list[tuple[str, list[float]]]] = [[] for _ in range(THREADS)]
    store, stop = Store(board_root), threading.Event()

    def work(number: int, model: application.Model) -> None:
        while not stop.is_set():
            found = model.run({"x": X * (number + 1)})
            results[number].append((found.release, found["y"].tolist()))

    with application.open(root=board_root, parallel=THREADS) as model:
        threads = [threading.Thread(target=work, args=(i, model)) for i in range(THREADS)]
        for thread in threads:
            thread.start()
        for _ in range(CHANGES):
            current = rollback(store).release
            model.refresh()
            assert model.release == current
            assert model.run({"x": X}).release == current
        stop.set()
        for thread in threads:
            thread.join()
    for number, found in enumerate(results):
        assert all(y == (factors[r] * X * (number + 1) + 1).tolist() for r, y in found)
    assert {release for found in results for release, _ in found} == factors.keys()


def test_reported_failure_goes_back(
    model: application.Model, device: Device, factor: Factor
) -> None:
    good = model.release
    bad = device.deploy(factor(3)).release.id
    assert model.run({"x": X}).release == bad
    assert model.report_failure("no faces\nall day")
    assert model.run({"x": X}).release == good
    status = device.status()
    assert status.current is not None
    assert status.current.id == good
    assert status.last_failure is not None
    assert status.last_failure["release"] == bad
    assert status.last_failure["reason"] == "no faces all day"
    assert not model.report_failure("too late", release=bad)
    assert model.release == good


def test_release_that_cannot_be_loaded_goes_back_while_the_old_one_runs(
    model: application.Model, device: Device, factor: Factor, board_root: Path
) -> None:
    good = model.release
    bad = device.deploy(factor(3)).release.id
    library = board_root / "releases" / bad / "weights.bin"
    library.write_bytes(b"12345678")
    assert model.run({"x": X}).release == good
    current = device.status().current
    assert current is not None
    assert current.id == good


def test_a_library_of_another_model_is_not_kept_open(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    release, store = tiny().manifest.id, Store(board_root)
    manifest = manifest_of(ReleaseFiles(store.releases / release))
    other = replace(manifest, memory=replace(manifest.memory, arena_bytes=128))
    descriptors = Path("/proc/self/fd")
    before = len([*descriptors.iterdir()])
    with pytest.raises(TransferError, match="expected tensors and sizes as in the manifest"):
        Loaded(store, ReleaseFiles(store.releases / release), other, PlacementRequest(), 1)
    assert len([*descriptors.iterdir()]) == before


@pytest.mark.parametrize("fits", [True, False])
def test_old_release_goes_first_where_memory_does_not_hold_two(
    tiny_device: Device, factor: Factor, board_root: Path, fits: bool
) -> None:
    held: list[Loaded] = []
    new = ""

    def load_if_room(
        store: Store, release: str, request: PlacementRequest, parallel: int
    ) -> Loaded:
        if not held[-1].closed or (release == new and not fits):
            raise TooLittleMemoryError("expected memory, found none")
        held.append(load(store, release, request, parallel))
        return held[-1]

    store = Store(board_root)
    with application.Model(store, PlacementRequest(), 1, load_next=load_if_room) as model:
        held.append(model._require_loaded())
        new = tiny_device.deploy(factor(3)).release.id
        factor_now = 3 if fits else 2
        np.testing.assert_array_equal(model.run({"x": X})["y"], factor_now * X + 1)
        assert (model.release == new) == fits
        assert [loaded.closed for loaded in held] == [True, False]


def test_state_belongs_to_the_model_until_reset(
    device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    device.deploy(tiny("TINY_STATE"))
    with application.open(root=board_root, parallel=2) as model:
        first = model.run({"x": X})["y"]
        np.testing.assert_array_equal(model.run({"x": X})["y"], first + 1)
        model.reset()
        np.testing.assert_array_equal(model.run({"x": X})["y"], first)


def test_inferences_of_a_program_are_sampled(
    model: application.Model, device: Device, board_root: Path
) -> None:
    release = model.release
    for _ in range(30):
        model.run({"x": X})
    assert not list((board_root / "spool").glob("*.batch"))
    model.close()
    (file,) = (board_root / "spool").glob("*.batch")
    (body,) = bodies(file.read_bytes())
    assert "twice" in body.decode() and '"inferences":30' in body.decode().replace(" ", "")
    assert release in body.decode()


def program(board_root: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs a program on the board that uses only files of the release."""
    path = board_root / "current" / "runtime.pyz"
    start = (
        f"import os, sys; sys.path.insert(0, os.path.realpath({str(path)!r}))\n"
        f"import edgekit_runtime\nmodel = edgekit_runtime.open(root={str(board_root)!r})\n"
    )
    command = [sys.executable, "-I", "-S", "-c", start + text]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=AMPLE)


RUN = "print(model.run({'x': b'\\0' * 16})['y'].tolist())\n"


def test_program_needs_nothing_but_python(model: application.Model, board_root: Path) -> None:
    done = program(board_root, RUN + "print('numpy' in sys.modules)")
    assert (done.stdout, done.stderr) == ("[1.0, 1.0, 1.0, 1.0]\nFalse\n", "")


@pytest.mark.parametrize(
    ("end", "back"),
    [
        ("raise ValueError('no face')", [True]),
        pytest.param("os.abort()", [False, True], marks=pytest.mark.exhaustive),
        ("sys.exit(1)", [False, False]),
        pytest.param("raise KeyboardInterrupt", [False, False], marks=pytest.mark.exhaustive),
    ],
    ids=["exception", "killed", "exit", "Ctrl-C"],
)
def test_new_release_that_ends_programs_goes_back(
    device: Device, factor: Factor, board_root: Path, end: str, back: list[bool]
) -> None:
    good, bad = (device.deploy(factor(n)).release.id for n in (2, 3))
    for gone in back:
        program(board_root, RUN + end)
        if not gone:
            assert Store(board_root).links().current == bad
    program(board_root, "")
    assert Store(board_root).links().current == (good if back[-1] else bad)


def test_release_that_ran_for_long_enough_is_watched_no_more(
    device: Device, factor: Factor, board_root: Path
) -> None:
    device.deploy(factor(2))
    bad = device.deploy(factor(3)).release.id
    store = Store(board_root)
    with application.Model(store, PlacementRequest(), 1, watch_seconds=-1.0) as model:
        model.run({"x": X})
    assert watch.Watch(Store(board_root)).proved(bad)
    for _ in range(watch.DEATHS + 1):
        program(board_root, RUN + "os.abort()")
    assert Store(board_root).links().current == bad
    assert len(os.listdir(board_root / "watch")) == 1  # noqa: PTH208


def test_a_process_leaves_one_note_however_often_it_fails_to_open_a_release(
    device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    weights = board_root / "releases" / device.deploy(tiny()).release.id / "weights.bin"
    intact = weights.read_bytes()
    weights.write_bytes(b"12345678")
    for _ in range(3):
        with pytest.raises(TransferError, match="damaged"):
            application.open(root=board_root)
    assert len([*(board_root / "watch").iterdir()]) == 1
    weights.write_bytes(intact)
    application.open(root=board_root).close()
    assert not [*(board_root / "watch").iterdir()]


def test_page_for_users_runs_as_it_stands(
    model: application.Model, board_root: Path, tmp_path: Path
) -> None:
    page = Path(__file__).parents[3] / "docs" / "applications.md"
    text, _ = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    (tmp_path / ".edgekit").symlink_to(board_root)
    command = [sys.executable, "-I", "-S", "-c", text]
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == f"x f32 (4,)\n{model.release} ['y']\n"


def test_closed_model_says_so(model: application.Model) -> None:
    model.close()
    with pytest.raises(application.InputError, match="it was closed; open it again"):
        model.run({"x": X})
