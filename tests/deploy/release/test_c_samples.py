"""C programs on a board write profiles of their inferences to the spool."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.c_samples import take_samples, waiting
from edgekit.device.runtime.agent.spool import MOST_BYTES, Spool
from edgekit.device.runtime.agent.store import Store
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.host.deploy.api import Device
from edgekit.host.deploy.bundle import Bundle
from tests.long.profile_spool import size_of
from tests.support.profile_batches import batch
from tests.support.toolchains import program_compiler

pytestmark = pytest.mark.slow

TinyBundle = Callable[..., Bundle]


def compiled(path: Path, *flags: str) -> Path:
    """Compiles tests/device/application.c together with the library's sources."""
    folder = kernels_folder()
    sources = sorted((folder / "application").glob("*.c"))
    source = Path(__file__).parents[2] / "device" / "application.c"
    command = [*program_compiler(), "-Wall", "-Wextra", "-Werror", *flags]
    command += [f"-I{folder}", f"-I{folder / 'application'}", str(source), *map(str, sources)]
    subprocess.run([*command, "-o", str(path), "-ldl", "-pthread"], check=True)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("samples") / "program")


def run(program: Path, root: Path, *steps: str) -> list[str]:
    """Runs the program and returns the lines it printed."""
    return subprocess.run(
        [program, root, *steps], check=True, capture_output=True, text=True
    ).stdout.splitlines()


def batches(root: Path) -> list[Any]:
    """Contents of the spool after collecting the samples of C programs."""
    take_samples(Store(root))
    return [json.loads(body) for body in bodies(Spool(root / "spool").fetch(1 << 20).data)]


def test_inferences_are_sampled_per_operator(
    program: Path, tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    release = tiny().manifest.id
    run(program, board_root, *["run"] * 30)
    (found,) = batches(board_root)
    assert (found["inferences"], found["lost"], found["boot"] != "") == (30, 0, True)
    assert [row[:2] for row in found["operators"]] == [["twice", "Mul"], ["plus", "Add"]]
    assert all(row[3] == found["whole"][0] > 0 for row in found["operators"])
    assert all(row[4] <= row[5] <= row[6] for row in found["operators"])
    subject = found["subject"]
    assert (subject["release"], subject["variant"], subject["threads"]) == (release, 0, 2)
    assert subject["model_sha256"] == tiny().manifest.model.sha256
    assert found["environment"]["resident_bytes"] > 0
    assert found["environment"].keys() == {
        *("cluster", "governor", "frequency_mhz", "temperature_c", "throttled", "others", "load"),
        *("available_bytes", "resident_bytes"),
    }
    assert waiting(board_root / "spool" / "samples") == []


def test_each_period_gives_a_batch_of_its_own(
    tiny_device: Device, board_root: Path, tmp_path: Path
) -> None:
    flags = ("-DEK_SAMPLES_PERIOD_NS=1000u", "-DEK_SAMPLES_BUDGET=1e9")
    run(compiled(tmp_path / "quick", *flags), board_root, *["run"] * 40)
    found = batches(board_root)
    assert len(found) > 1
    assert 30 < sum(b["inferences"] for b in found) <= 40
    assert len({b["uuid"] for b in found}) == len(found)
    assert [b["sequence"] for b in found] == list(range(1, len(found) + 1))


def test_each_release_that_ran_is_reported_even_if_removed(
    program: Path, tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    first = tiny().manifest.id
    run(program, board_root, *["run"] * 30)
    for name in ("second", "third"):
        tiny_device.deploy(tiny(f'TINY_NAME="{name}"'))
    assert first not in Store(board_root).installed()
    assert [b["subject"]["release"] for b in batches(board_root)] == [first]


def test_a_model_with_a_name_is_sampled_into_the_boards_spool(
    program: Path, device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    release = device.named("one").deploy(tiny()).release.id
    run(program, board_root / "named" / "one", *["run"] * 20)
    (found,) = batches(board_root)
    assert (found["subject"]["release"], found["inferences"]) == (release, 20)


def test_nothing_is_sampled_where_sampling_is_off(
    program: Path, tiny_device: Device, board_root: Path
) -> None:
    Spool(board_root / "spool").switch("off")
    run(program, board_root, *["run"] * 30)
    assert batches(board_root) == []


def test_what_waits_is_bounded_and_what_made_room_is_counted(
    program: Path, tiny_device: Device, board_root: Path
) -> None:
    folder = board_root / "spool" / "samples"
    folder.mkdir(parents=True)
    for number in range(1, 5):
        (folder / f"{number:012d}-{number:032x}.json").write_bytes(bytes(1 << 17))
    Spool(board_root / "spool").add(batch(1))
    run(program, board_root, *["run"] * 30)
    assert [int(path.name[:12]) for path in waiting(folder)] == [2, 3, 4, 5]
    assert size_of(folder) <= 1 << 19
    found = batches(board_root)
    assert [b["inferences"] for b in found] == [10, 30]
    assert Spool(board_root / "spool").fetch(1).quarantined == 3
    assert size_of(board_root / "spool") <= MOST_BYTES


@pytest.mark.parametrize("damage", ["flipped", "torn", "foreign", "odd", "gone"])
def test_damaged_samples_are_quarantined_and_counted(
    program: Path, tiny_device: Device, board_root: Path, damage: str
) -> None:
    run(program, board_root, *["run"] * 30)
    (path,) = waiting(board_root / "spool" / "samples")
    data = bytearray(path.read_bytes())
    if damage == "gone":
        release = Store(board_root).links().current or ""
        (board_root / "releases" / release).rename(board_root / "releases" / ("0" * 16))
    if damage == "flipped":
        data[100] ^= 1
    path.write_bytes(
        {
            "torn": bytes(data[:200]),
            "foreign": b'{"crc32": 0, "samples": }\n',
            "odd": b'{"crc32": 2745614147, "samples": {}}\n',
        }.get(damage, bytes(data))
    )
    assert batches(board_root) == []
    assert Spool(board_root / "spool").fetch(1).quarantined == 1
    assert len(list((board_root / "spool" / "quarantine").iterdir())) == 1
    if damage != "gone":
        run(program, board_root, *["run"] * 30)
        assert [b["quarantined"] for b in batches(board_root)] == [1]


def test_samples_that_a_kill_left_twice_are_one_batch(
    program: Path, tiny_device: Device, board_root: Path
) -> None:
    run(program, board_root, *["run"] * 30)
    (path,) = waiting(board_root / "spool" / "samples")
    data = path.read_bytes()
    assert len(batches(board_root)) == 1
    path.write_bytes(data)  # power failed after the batch was written
    assert len(batches(board_root)) == 1


def test_a_full_disk_stops_no_inference(
    program: Path, tiny_device: Device, tiny: TinyBundle, board_root: Path
) -> None:
    release = tiny().manifest.id
    (board_root / "spool" / "samples" / ".new").mkdir(parents=True)  # blocks all writes
    assert run(program, board_root, *["run"] * 30) == [f"{release} 3 5 7 9"] * 30
    assert batches(board_root) == []
