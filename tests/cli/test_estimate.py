"""`edgekit estimate`, with a fake emulator that reports given cycle counts."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgekit.host.cli.estimated import estimate_for, estimated_document, show_estimate
from edgekit.host.deploy.api import compile_model
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.errors import PartialError
from edgekit.host.simulator.emulator import Emulator, plugin_of
from edgekit.host.simulator.model import runner_of
from edgekit.host.simulator.report import error_document, proof_text, sentence
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, write_emulator, write_program
from tests.support.homes import home_over_the_cache
from tests.support.onnx_models import model, node, save, value

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs() -> None:
    """The programs that an estimate needs."""
    plugin_of(Emulator("qemu-aarch64", (7, 2)))
    runner_of("aarch64")


@pytest.fixture
def emulate(tmp_path, monkeypatch, programs):
    """emulate(document=..., ...): replaces qemu-aarch64 by a script with that answer."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return lambda **options: write_emulator(folder, **options)


@pytest.fixture(scope="module")
def bundle(face_model, tmp_path_factory) -> Path:
    with home_over_the_cache(tmp_path_factory.mktemp("home")) as folder:
        compile_model(face_model, "rpi4").write(folder / "face.ekb")
        return folder / "face.ekb"


def operators_of(bundle: Path) -> int:
    return len(Bundle.read(bundle).manifest.operators)


def proof_of(threads: int):
    """What validation found for float networks on rpi4; the figures change."""
    return target_of(load_board("rpi4")).proof("float", threads)


def error_in(document: dict) -> dict:
    return {name: document[name] for name in ("validated", "error")}


def test_a_model_is_told_in_milliseconds_and_per_operator(edgekit, bundle, emulate):
    count = operators_of(bundle)
    emulate(document=answer(laps=[5, *[1000] * count], cycles=1000 * count + 80))
    found = edgekit("estimate", bundle, "--board", "rpi4", "--json").document
    assert found["schema"] == "edgekit.bench.model/1"
    assert (found["estimated"], found["emulated"]) == (True, False)
    assert error_in(found) == error_document(proof_of(4))
    total = 1000 * count + 5
    assert found["estimated_ms"]["median"] == pytest.approx(total / 1800e3, rel=1e-12)
    assert len(found["operators"]) == count
    assert {o["cycles"] for o in found["operators"]} == {1000}
    assert [o["share"] for o in found["operators"]] == pytest.approx([1000 / total] * count)


def test_a_time_is_never_without_its_error(edgekit, bundle, emulate):
    emulate(document=answer(laps=[0, 18_000_000, *[0] * (operators_of(bundle) - 1)]))
    out = edgekit("estimate", bundle, "--board", "rpi4").out
    assert f"{sentence(10.0, 'rpi4', proof_of(4))}, 4 threads" in out
    assert "bound by issue 100%" in out and "estimated µs" in out


def test_a_second_time_starts_no_emulator(edgekit, face_model, bundle, emulate, tmp_path):
    emulate(does=f"echo run >> {tmp_path}/runs")
    first = edgekit("estimate", face_model, "--board", "rpi4", "--json").document
    assert edgekit("estimate", face_model, "--board", "rpi4", "--json").document == first
    assert edgekit("estimate", bundle, "--board", "rpi4", "--json").document == first
    assert (tmp_path / "runs").read_text() == "run\n"
    edgekit("estimate", bundle, "--board", "rpi4", "--threads", "2")
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_more_threads_than_cores_are_refused(edgekit, face_model):
    done = edgekit("estimate", face_model, "--board", "rpi4", "--threads", "5")
    assert done.code == 2
    assert done.complaint.endswith("expected at most 4, as many as rpi4 has cores, found 5")


def test_overlapping_operators_have_no_times(edgekit, bundle, emulate):
    emulate(document=answer(laps=[1, 2, 3]))
    assert edgekit("estimate", bundle, "--board", "rpi4", "--json").document["operators"] == []
    assert (
        "times per operator are not available" in edgekit("estimate", bundle, "--board", "rpi4").out
    )


def test_a_program_is_shown_by_region_and_lap(edgekit, emulate, home):
    emulate(document=answer(laps=(1800, 3600), cycles=5400))
    program = write_program(home / "program")
    found = edgekit("estimate", "--board", "rpi4", "--json", "--", program, "-x").document
    assert found["schema"] == "edgekit.estimate.program/1"
    assert found["program"] == [str(program), "-x"]
    assert [lap["estimated_ms"] for lap in found["regions"][0]["laps"]] == [0.001, 0.002]
    out = edgekit("estimate", "--board", "rpi4", "--", program).out
    assert proof_text(proof_of(1)) in out and "  lap 2" in out


def test_estimates_of_a_core_say_if_they_were_not_validated(edgekit, emulate, home):
    emulate(name="qemu-arm")
    command = ("--board", "a7", "--", write_program(home / "program", "armv7l"))
    found = edgekit("estimate", "--json", *command).document
    assert error_in(found) == {"validated": False, "error": None}
    assert "error    not validated" in edgekit("estimate", *command).out


def test_a_bundle_of_another_board_is_refused(edgekit, bundle, emulate):
    emulate()
    outcome = edgekit("estimate", bundle, "--board", "rpi3")
    assert outcome.code == 2
    assert "expected a bundle for rpi3, found one for rpi4" in outcome.complaint


def test_options_of_programs_are_refused_for_models(edgekit, face_model, emulate):
    outcome = edgekit("estimate", face_model, "--board", "rpi4", "--entire-program")
    assert outcome.code == 2 and "found a model" in outcome.complaint


def test_a_board_that_has_no_model_of_its_core_is_refused_at_once(edgekit, face_model):
    outcome = edgekit("estimate", face_model, "--board", "rv64gcv-zvl512b")
    assert outcome.code == 2
    assert "expected a board whose core has a timing model" in outcome.complaint


def test_without_an_emulator_the_package_is_named(edgekit, bundle, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = edgekit("estimate", bundle, "--board", "rpi4")
    assert outcome.code == 2 and "apt-get install qemu-user" in outcome.complaint


def beside(bundle: Path, profile: str = "rpi4", emulated: bool = True):
    """The estimate that deploy and bench show next to a release's timing on a board."""
    release = Bundle.read(bundle)
    timing = SimpleNamespace(release=release.manifest.id, threads=1)
    device = SimpleNamespace(emulated=emulated, profile=profile)
    return device, estimate_for(device, timing, release)


def test_a_virtual_board_tells_what_a_real_core_would_take(bundle, emulate, capfd):
    emulate(document=answer(cycles=18_000_000))
    device, found = beside(bundle)
    show_estimate(device, found)
    assert sentence(10.0, "rpi4", proof_of(1)) in capfd.readouterr().out
    assert error_in(estimated_document(found)) == error_document(proof_of(1))


def test_what_would_take_long_is_only_offered(bundle, emulate, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "new"))  # no program is built
    emulate()
    device, found = beside(bundle)
    show_estimate(device, found)
    assert found is None
    assert "edgekit estimate --board rpi4" in capfd.readouterr().out


def test_a_failing_estimate_fails_no_deploy(bundle, emulate):
    emulate(does="exit 1")
    assert beside(bundle)[1] is None


def test_real_boards_and_unknown_cores_get_no_estimate(bundle, emulate):
    assert beside(bundle, emulated=False)[1] is None
    assert beside(bundle, profile="rv64gcv-zvl512b")[1] is None


def test_of_several_shapes_the_one_asked_for_is_estimated_else_the_first(
    edgekit, face_model, home, emulate
):
    shapes = ("--input-shape", "input=1,128,128,3", "--input-shape", "input=1,64,64,3")
    made = edgekit("compile", face_model, "--board", "rpi4", *shapes, "-o", home / "two.ekb")
    assert made.code == 0, made.err
    emulate()
    out = edgekit("estimate", home / "two.ekb", "--board", "rpi4").out
    assert "inputs   input=1,128,128,3, one of 2 sets of shapes" in out
    second = ("estimate", home / "two.ekb", "--board", "rpi4", *shapes[2:])
    assert "inputs   input=1,64,64,3, one of 2" in edgekit(*second).out
    assert edgekit(*second, "--json").document["shapes"] == {"input": [1, 64, 64, 3]}
    refused = edgekit("estimate", home / "two.ekb", "--board", "rpi4", "--input-shape", "input=1,9")
    assert refused.code == 2
    assert "expected input=1,128,128,3 or input=1,64,64,3" in refused.complaint
    refused = edgekit("estimate", home / "two.ekb", "--board", "rpi4", *shapes)
    assert refused.code == 2 and "one by one" in refused.complaint


@pytest.fixture
def product(home) -> Path:
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((64, 64)).astype(np.float32)}
    made = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [8, 64])], ["y"], constants)
    for seed in (1, 2):
        x = np.random.default_rng(seed).standard_normal((9, 8, 64)).astype(np.float32)
        x[..., :seed] *= 50
        np.savez(home / f"{seed}.npz", x=x)
    return save(made, home)


def test_operators_are_compared_with_the_peak_of_the_core(edgekit, product, emulate):
    """8 x 64 x 64 multiply-adds, of which rpi4 makes four a cycle."""
    emulate(document=answer(laps=[0, 16_384], cycles=16_384))
    asked = ("estimate", product, "--board", "rpi4", "--threads", "1")
    (found,) = edgekit(*asked, "--json").document["operators"]
    assert (found["multiply_adds"], found["of_peak"]) == (32_768, 0.5)
    assert "edgekit lab tune model" in found["advice"]
    assert f"try      {found['advice']} (" in edgekit(*asked).out


def test_a_page_has_the_boards_that_have_a_time_and_why_others_have_none(edgekit, product, emulate):
    emulate()
    done = edgekit("estimate", product, "--board", "rpi4,rv64gcv-zvl512b", "--output", "all.html")
    assert done.code == PartialError.exit_code
    page = Path("all.html").read_text()
    assert "<h2>rpi4</h2>" in page and "a72 at 1800 MHz" in page
    assert (
        "<h2>rv64gcv-zvl512b</h2>" in page
        and "expected a board whose core has a timing model" in page
    )
    refused = edgekit("estimate", product, "--board", "rpi4", "--output", "all.pdf")
    assert refused.code == 2 and "expected a file .html, found all.pdf" in refused.complaint


_SPLIT = ("--weights", "int8", "--group-size", "32")


def test_what_compile_takes_estimate_takes(edgekit, product, emulate, home, tmp_path):
    """Cached estimates are keyed by the samples' content, not by their file name."""
    emulate(does=f"echo run >> {tmp_path}/runs")
    shutil.copy("1.npz", "samples.npz")
    asked = ("estimate", product, "--board", "rpi4", "--json")
    sizes = []
    for options in ((), _SPLIT, (*_SPLIT, "--samples", "samples.npz"), ("--samples", "1.npz")):
        for _ in range(2):
            found = edgekit(*asked, *options)
            assert found.code == 0, found.err
        compiled = edgekit("compile", product, "--board", "rpi4", *options, "--json").document
        assert found.document["weights_bytes"] == compiled["weights_bytes"]
        sizes.append(compiled["weights_bytes"])
    assert sizes[0] > 3 * sizes[1] and (tmp_path / "runs").read_text() == "run\n" * 4
    shutil.copy("2.npz", "samples.npz")
    assert edgekit(*asked, *_SPLIT, "--samples", "samples.npz").code == 0
    assert (tmp_path / "runs").read_text() == "run\n" * 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("folder", [False, True])
def test_samples_go_along_to_several_boards(edgekit, product, emulate, home, folder):
    emulate()
    shown = "1.npz"
    if folder:
        shown = "shown"
        (home / shown).mkdir()
        with np.load("1.npz") as each:
            for i, x in enumerate(each["x"]):
                np.savez(home / shown / f"{i}.npz", x=x)
    options = (*_SPLIT, "--samples", shown, "--json")
    found = edgekit("estimate", product, "--board", "rpi4,rpi5", *options)
    assert found.code == 0, found.err
    assert [each["code"] for each in found.document["estimates"]] == [0, 0]
    done = edgekit("estimate", product, "--board", "rpi4,rpi5", *_SPLIT, "--samples", "no.npz")
    assert done.code == 2 and "--samples: expected a file or a folder, found nothing" in done.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--group-size", "32"), "--group-size: expected --weights int"),
        ((*_SPLIT[:3], "48"), "expected 32, 64 or 128, found 48"),
        (
            (*_SPLIT, "--min-cosine", "0.9"),
            "--min-cosine: expected --weights int4, int3 or int2 and",
        ),
        (("--state", "x"), "--state: expected INPUT=OUTPUT"),
    ],
)
def test_options_that_do_not_fit_are_refused_as_by_compile(edgekit, product, options, said):
    for command in ("estimate", "compile"):
        done = edgekit(command, product, "--board", "rpi4", *options)
        assert done.code == 2 and said in done.complaint


def test_samples_of_a_bundle_are_refused(edgekit, bundle, emulate):
    done = edgekit("estimate", bundle, "--board", "rpi4", *_SPLIT)
    assert done.code == 2 and "--samples, --group-size" in done.complaint


def test_models_at_work_together_are_estimated_again(edgekit, bundle, emulate):
    emulate(document=answer(laps=[5, *[1000] * operators_of(bundle)]))
    asked = ("estimate", bundle, bundle, "--board", "rpi4", "--together")
    found = edgekit(*asked, "--threads", "1", "--json").document
    assert found["schema"] == "edgekit.estimate.together/1"
    for each in found["models"]:
        assert each["together_ms"] == pytest.approx(each["alone_ms"])  # whatever the core
        assert (each["threads"], 0 < each["cache_bytes"] <= 1 << 20) == (1, True)
    out = edgekit(*asked, "--threads", "1").out
    assert "slower by" in out and "0.0%" in out
    refused = edgekit(*asked, "--threads", "3")
    assert "a core for each thread, found 6 threads of 2 models on 4 cores" in refused.complaint
    one = edgekit("estimate", bundle, "--board", "rpi4", "--together")
    assert "expected two models or more, found 1" in one.complaint
    several = edgekit(*asked, "--peers")
    assert "expected one board and only --threads or --cluster" in several.complaint
