"""Programs under qemu-user with the plugin: parsing its report, and every failure mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import Emulator
from edgekit.host.simulator.run import SimulatorJob, SimulatorRun, run_cores, run_job
from edgekit.host.simulator.target import target_of
from edgekit.kb.targets.board import load_board
from tests.support.fake_emulator import answer, write_emulator, write_program

_PLUGIN = Path("plugin.so")


@pytest.fixture
def program(tmp_path) -> Path:
    return write_program(tmp_path / "program")


def run(folder: Path, program: Path, job: dict | None = None, **fake) -> SimulatorRun:
    emulator = Emulator(str(write_emulator(folder, **fake)), (7, 2))
    return run_job(
        emulator,
        target_of(load_board("rpi4")),
        SimulatorJob((str(program), "1"), quiet=True, **(job or {})),
        _PLUGIN,
    )


def refused(folder: Path, program: Path, job: dict | None = None, **fake) -> str:
    with pytest.raises(InputError) as error:
        run(folder, program, job, **fake)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_regions_and_laps_are_returned_as_the_plugin_reports_them(tmp_path, program):
    found = run(tmp_path, program, document=answer(laps=(100, 300), regions=2))
    assert [region.cost.cycles for region in found.regions] == [1800, 1800]
    assert [lap.cycles for lap in found.regions[0].laps] == [100, 300]
    assert found.regions[0].cost.bound == {"issue": 1800}


def test_the_plugin_gets_the_options_of_the_job(tmp_path, program):
    job = {"whole": True, "counter_laps": True}
    run(tmp_path, program, job, does=f'echo "$@" > {tmp_path}/said')
    said = (tmp_path / "said").read_text()
    assert said.startswith("-cpu cortex-a72 -R 0x1000000000 -plugin plugin.so,out=")
    assert "entire=1,laps=counter" in said and said.endswith(f"{program} 1\n")


def test_the_error_for_a_program_without_marks_says_how_to_set_them(tmp_path, program):
    message = refused(tmp_path, program, document=answer(regions=0))
    assert "expected the mark close(777001)" in message and "--entire-program" in message


def test_a_crash_names_its_signal(tmp_path, program):
    message = refused(tmp_path, program, does="echo at work >&2; kill -SEGV $$")
    assert "found it killed by SIGSEGV (at work)" in message


def test_an_exit_code_is_shown_with_the_last_line(tmp_path, program):
    message = refused(tmp_path, program, does="echo no file; exit 4")
    assert "expected exit code 0, found 4 (no file)" in message


def test_an_instruction_that_the_cpu_lacks_is_named_with_its_address(tmp_path, program):
    message = refused(tmp_path, program, does="kill -ILL $$")
    assert "expected instructions that a72 has, found 4e80fc00 sdot v0.4s" in message
    assert "at 0x400120" in message and "-mcpu=cortex-a72" in message


def test_an_instruction_that_only_the_core_lacks_is_named_with_its_feature(tmp_path, program):
    first = {"address": "0x400120", "bytes": "00fc804e", "feature": "dotprod"}
    document = answer()
    document["cores"][0]["unknown"] = {"count": 1, "first": first}
    message = refused(tmp_path, program, document=document)
    assert "found one of dotprod at 0x400120" in message


def test_what_takes_too_long_is_given_up(tmp_path, program):
    message = refused(tmp_path, program, {"seconds": 0.2}, does="sleep 60")
    assert "still running" in message and "--timeout" in message


def test_a_program_of_another_architecture_is_refused(tmp_path):
    program = write_program(tmp_path / "program", "riscv64")
    message = refused(tmp_path, program)
    assert "expected a program for aarch64 (rpi4), found one for riscv64" in message


def test_an_invalid_program_is_refused(tmp_path):
    script = tmp_path / "run.sh"
    script.write_text("#!/bin/sh\n")
    assert "expected a program for Linux (ELF), found b'#!/b'" in refused(tmp_path, script)
    assert "found no such file" in refused(tmp_path, tmp_path / "none")


def test_a_dynamic_program_needs_a_root(tmp_path):
    loader = "/lib/ld-linux-aarch64.so.1"
    program = write_program(tmp_path / "program", loader=loader)
    assert "or give a root: --sysroot DIR" in refused(tmp_path, program)
    message = refused(tmp_path, program, {"root": tmp_path / "root"})
    assert f"expected a system root with {loader}, found none" in message
    (tmp_path / "root" / "lib").mkdir(parents=True)
    (tmp_path / "root" / loader.lstrip("/")).touch()
    assert run(tmp_path, program, {"root": tmp_path / "root"}).regions


def test_a_plugin_that_said_nothing_is_a_bug(tmp_path, program):
    assert "expected the plugin's answer" in refused(tmp_path, program, does="exit 0")


def test_a_board_whose_core_has_no_model_is_refused():
    with pytest.raises(InputError, match="expected a board whose core has a timing model"):
        target_of(load_board("rv64gcv-zvl512b"))


def test_one_run_serves_several_models_of_a_core(tmp_path, program):
    document = answer()
    (first,) = document["cores"]
    second = {**first, "regions": [{**first["regions"][0], "cycles": 3600}]}
    emulator = Emulator(
        str(write_emulator(tmp_path, document={**document, "cores": [first, second]})), (7, 2)
    )
    cores = [target_of(load_board(name)).core for name in ("rpi3", "rk3399")]
    job = SimulatorJob((str(program),), quiet=True)
    found = run_cores(emulator, target_of(load_board("rpi3")), cores, job, _PLUGIN)
    assert [each.regions[0].cost.cycles for each in found] == [1800, 3600]
