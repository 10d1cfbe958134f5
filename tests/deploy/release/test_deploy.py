"""Deploying and rolling back bundles, with a real library in real processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.runtime.agent import states
from edgekit.device.runtime.agent.integrity import write_record
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.release import DeployProgress, deploy
from edgekit.host.deploy.transport import LocalTransport
from edgekit.host.errors import (
    EdgekitError,
    IncompatibleError,
    InputError,
    RolledBackError,
    TransferError,
)

TinyBundle = Callable[..., Bundle]
X = np.array([1, 2, 3, -4], np.float32)
OTHER = 'TINY_NAME="other"'


def test_deployed_model_computes(device: Device, tiny: TinyBundle) -> None:
    deployed = device.deploy(tiny())
    outputs, timings = deployed.run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)
    assert outputs["y"].flags.writeable
    assert [o.name for o in timings.operators] == ["twice", "plus"]
    assert timings.release == deployed.release.id
    assert timings.latency_ms > 0


def test_release_says_what_was_done(device: Device, tiny: TinyBundle) -> None:
    bundle = tiny()
    release = device.deploy(bundle).release
    assert (release.changed, release.previous, release.model) == (True, None, "tiny")
    # The runtime precedes the release: it answered which files are missing.
    files = {path: data for path, data in bundle.files.items() if path != "runtime.pyz"}
    assert release.sent_bytes == sum(len(data) for data in files.values())
    assert tuple(release.state_ms) == states.ON_BOARD
    assert release.health["max_difference"] == [0.0]


def test_progress_walks_the_table(device: Device, tiny: TinyBundle) -> None:
    steps: list[DeployProgress] = []
    device.deploy(tiny(), progress=steps.append)
    seen = list(dict.fromkeys(step.state for step in steps))
    assert seen == [state.name for state in states.STATES]
    sent = [step.done for step in steps if step.total]
    assert sent == sorted(sent)
    assert sent[-1] == next(step.total for step in steps if step.total)


def test_the_table_leads_to_an_end() -> None:
    names = [state.name for state in states.STATES]
    for state, following in zip(states.STATES, [*names[1:], states.COMMITTED], strict=True):
        assert state.success == following
        assert state.failure in states.TERMINAL
        assert state.deadline_seconds > 0


def test_again_changes_and_sends_nothing(device: Device, tiny: TinyBundle, tmp_path: Path) -> None:
    device.deploy(tiny())
    link = tmp_path / "board" / "current"
    before = link.lstat()
    release = device.deploy(tiny()).release
    assert (release.changed, release.sent_bytes) == (False, 0)
    after = link.lstat()  # reading it changes its atime
    assert (after.st_ino, after.st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    assert not any((tmp_path / "board" / "incoming").iterdir())


def test_only_what_differs_is_sent(tiny_device: Device, tiny: TinyBundle) -> None:
    plan = tiny_device.plan(tiny(OTHER))
    assert plan.send == ("model.so",)
    assert not plan.unchanged
    assert tiny_device.deploy(tiny(OTHER)).release.sent_bytes == plan.send_bytes


def test_bundle_from_a_file(device: Device, tiny: TinyBundle, tmp_path: Path) -> None:
    path = tmp_path / "tiny.ekb"
    tiny().write(path)
    assert device.deploy(path).release.changed
    assert not device.deploy(str(path)).release.changed


def test_status_and_rollback(device: Device, tiny: TinyBundle) -> None:
    assert device.status().current is None
    first, second = device.deploy(tiny()).release, device.deploy(tiny(OTHER)).release
    assert second.previous == first.id
    found = device.rollback()
    assert found.current is not None
    assert found.previous is not None
    assert (found.current.id, found.previous.id) == (first.id, second.id)
    assert (found.current.model, found.previous.model) == ("tiny", "other")


@pytest.mark.parametrize(
    ("defines", "reason"),
    [
        ("TINY_CRASH", "killed by SIGABRT"),
        ("TINY_WRONG", "expected a difference of at most 0.001 .* found 0.5"),
        ('TINY_MISSING="flux"', "expected a CPU with flux"),
        *(
            pytest.param(define, reason, marks=pytest.mark.exhaustive)
            for define, reason in (
                ("TINY_HANG", "no answer within 1 s"),
                ("TINY_FAIL", "expected 0, found 3"),
                ("TINY_ABI=9", "expected ABI 1, found 9"),
            )
        ),
    ],
)
def test_unhealthy_release_goes_back_by_itself(
    tiny_device: Device, tiny: TinyBundle, defines: str, reason: str
) -> None:
    # Only a hang runs into the limit; other answers may take over a second on a busy machine.
    seconds = 1 if defines == "TINY_HANG" else 60
    old = tiny().manifest
    with pytest.raises(RolledBackError, match=f"board 'local': .*{reason}.*{old.id} runs again"):
        deploy(tiny_device, tiny(defines), health_seconds=seconds)
    status = tiny_device.status()
    assert status.current is not None
    assert status.current.id == old.id
    assert status.last_failure is not None
    outputs, _ = tiny_device.run({"x": X})
    np.testing.assert_array_equal(outputs["y"], 2 * X + 1)


def test_last_words_are_kept_and_shown(device: Device, tiny: TinyBundle) -> None:
    with pytest.raises(RolledBackError, match="killed by SIGABRT") as caught:
        device.deploy(tiny("TINY_CRASH", 'TINY_SAY="last words"'))
    assert caught.value.exit_code == 7
    assert caught.value.log == "last words\n"
    failure = device.status().last_failure
    assert failure is not None
    assert failure["log"] == "last words\n"


def test_bundle_for_another_board(device: Device, tiny: TinyBundle, tmp_path: Path) -> None:
    bundle = tiny()
    needs = bundle.manifest.board
    for other, message in (
        (replace(needs, machine="z80"), "found one for z80"),
        (replace(needs, features=("flux",)), "expected a CPU with flux"),
    ):
        foreign = replace(bundle, manifest=replace(bundle.manifest, board=other).with_id())
        with pytest.raises(IncompatibleError, match=message):
            device.deploy(foreign)
    assert not any((tmp_path / "board" / "incoming").iterdir())


def test_board_without_enough_memory(device: Device, tiny: TinyBundle) -> None:
    bundle = tiny()
    memory = replace(bundle.manifest.memory, arena_bytes=1 << 39)
    large = replace(bundle, manifest=replace(bundle.manifest, memory=memory).with_id())
    with pytest.raises(IncompatibleError, match="bytes of free memory"):
        device.deploy(large)


def test_older_bundle_needs_consent(device: Device, tiny: TinyBundle) -> None:
    device.deploy(tiny(counter=2))
    with pytest.raises(IncompatibleError, match="expected counter 2 or more, found 1"):
        device.deploy(tiny(counter=1))
    assert device.deploy(tiny(counter=1), allow_downgrade=True).release.changed


def test_interrupted_transfer_goes_on(device: Device, tiny: TinyBundle) -> None:
    bundle = tiny()

    def pull_the_plug(step: DeployProgress) -> None:
        if step.done > step.total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.deploy(bundle, progress=pull_the_plug)
    release = device.deploy(bundle).release
    assert release.changed
    assert release.sent_bytes < sum(len(data) for data in bundle.files.values())


def test_damaged_current_release_is_mended(
    tiny_device: Device, tiny: TinyBundle, tmp_path: Path
) -> None:
    weights = tmp_path / "board" / "current" / "weights.bin"
    weights.write_bytes(bytes(8))
    assert tiny_device.plan(tiny()).send == ("weights.bin",)
    assert tiny_device.deploy(tiny()).release.sent_bytes == 8
    np.testing.assert_array_equal(tiny_device.run({"x": X})[0]["y"], 2 * X + 1)


@pytest.mark.slow
@pytest.mark.parametrize("torn", ["manifest.json", "manifest.json.sig", "runtime"])
def test_what_a_dead_deploy_left_is_sent_again(
    device: Device, tiny: TinyBundle, board_root: Path, torn: str
) -> None:
    bundle = tiny()

    def die(step: DeployProgress) -> None:
        if step.state == "transfer":  # the manifest has been sent by then
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        device.deploy(bundle, progress=die)
    (runtime,) = (board_root / "runtime").iterdir()
    path = board_root / "incoming" / bundle.manifest.id / torn if torn != "runtime" else runtime
    path.write_bytes(path.read_bytes()[:100])
    assert device.deploy(bundle).release.changed


def test_damaged_manifest_of_what_runs_is_mended(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    (board_root / "current" / "manifest.json").write_bytes(b"{")
    tiny_device.deploy(tiny())
    np.testing.assert_array_equal(tiny_device.run({"x": X})[0]["y"], 2 * X + 1)


@pytest.mark.slow
def test_deploys_at_once_leave_one_whole_release(tiny: TinyBundle, board_root: Path) -> None:
    bundles = [tiny(f'TINY_NAME="m{i % 4}"') for i in range(8)]
    ends: list[object] = []

    def one(bundle: Bundle) -> None:
        try:
            ends.append(deploy(Device(LocalTransport(board_root)), bundle).id)
        except EdgekitError as error:
            ends.append(error)

    threads = [threading.Thread(target=one, args=(bundle,)) for bundle in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refused = [e for e in ends if not isinstance(e, str)]
    assert len(ends) == 8
    assert len(refused) < 8
    assert all(isinstance(e, TransferError) for e in refused)
    device = Device(LocalTransport(board_root))
    status = device.status()
    assert status.current is not None
    assert status.current.id in ends
    np.testing.assert_array_equal(device.run({"x": X})[0]["y"], 2 * X + 1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "expected inputs x, found none"),
        ({"y": X}, "expected inputs x, found y"),
        ({"x": X.astype(np.float64) * 1e300}, r"expected f32 \[4\], found f64 \[4\]: values"),
        ({"x": X.reshape(2, 2)}, r"expected f32 \[4\], found f32 \[2, 2\]"),
        ({"x": np.array(["a"])}, r"expected f32 \[4\], found <U1 \[1\]"),
    ],
)
def test_wrong_inputs(
    tiny_device: Device,
    tmp_path: Path,
    inputs: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]],
    message: str,
) -> None:
    with pytest.raises(InputError, match=message):
        tiny_device.run(inputs)
    io = tmp_path / "board" / "io"
    assert not io.exists() or not any(io.iterdir())


def test_nothing_deployed(device: Device) -> None:
    for act in (lambda: device.run({"x": X}), device.bench):
        with pytest.raises(InputError, match="expected a deployed model, found none"):
            act()
    with pytest.raises(InputError, match="expected a previous release, found none"):
        device.rollback()


def test_crash_while_running_is_one_line(
    tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    library = board_root / "current" / "model.so"
    library.write_bytes(tiny("TINY_CRASH").files["model.so"])
    write_record(board_root / "releases" / tiny().manifest.id, tiny().manifest)  # undamaged
    with pytest.raises(EdgekitError, match="killed by SIGABRT") as caught:
        tiny_device.run({"x": X})
    assert "\n" not in str(caught.value)


def test_bench(tiny_device: Device) -> None:
    found = tiny_device.bench({"x": X})
    assert found.model == "tiny"
    assert 0 <= found.p10_ms <= found.median_ms <= found.p90_ms
    assert found.runs >= 10
    assert sum(o.share for o in found.operators) == pytest.approx(1)
    assert tiny_device.bench(count=12, threads=2).runs == 12
