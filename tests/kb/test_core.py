"""Timing models of cores: validation of their files, and the tables passed to the plugin."""

from __future__ import annotations

import pytest

from edgekit.host.simulator.core_text import core_text
from edgekit.host.simulator.target import cpu_of
from edgekit.kb.targets import core as cores
from edgekit.kb.targets.board import load_board

A53 = (cores.FOLDER / "a53.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", cores.core_names())
def test_every_core_has_figures_for_every_class_and_a_source_for_every_group(name: str):
    core = cores.load_core(name)
    table = cores.operation_table(core)
    assert {c for c, _, _ in table} == set(cores.instruction_classes())
    lines = core_text(core).splitlines()
    assert lines[0] == f"core {name}" and lines[-1] == "end"
    assert sum(line.startswith("op ") for line in lines) == len(table)


def test_a_class_without_rows_has_the_figures_of_what_it_is_like():
    text = A53.replace("operations = [", 'operations = [\n { on = "v_dot", latency = 9 },')
    table = cores.operation_table(cores.parse_core("x", text))
    assert table["v_mmla", 0, 0].latency == 9  # same as v_dot
    assert table["v_mul", 0, 0].latency == table["v_mla", 0, 0].latency == 4


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("width = 2", "width = -2", "issue.width: expected a figure of 0 or more, found -2"),
        ("width = 2", "width = 2.5", "issue.width: expected a whole number, found 2.5"),
        ("width = 2", "width = true", "issue.width: expected a figure, found True"),
        ("width = 2\n", "", "issue: expected width, found none"),
        ("width = 2", "width = 2\nwidht = 2", "issue: expected known keys, found widht"),
        ('order = "in"', 'order = "sideways"', "order: expected in or out, found 'sideways'"),
        ('unit = "mac"', 'unit = "mack"', "no unit 'mack'"),
        ('on = "div"', 'on = "divide"', "'divide' selects no class"),
        ('on = "div"', 'on = "div@77"', "'div@77': expected one of"),
        ('issue = "alone"', 'issue = "lonely"', "expected any or first or last or alone"),
        (
            "bytes = 524288",
            "bytes = 524287",
            "expected a cache of full sets, found 524287 bytes in 16 ways",
        ),
        ('misses = "', 'mishaps = "', "expected sources of misses, found none"),
        ("takes = 2", "takes = 3", "takes 3 ports of unit 'vector'"),
        ("order =", "order", "core 'x': "),
    ],
)
def test_a_wrong_figure_is_refused(old: str, new: str, said: str):
    assert old in A53
    with pytest.raises(cores.CoreError, match="core 'x'") as caught:
        cores.parse_core("x", A53.replace(old, new))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_unknown_core_names_those_there_are():
    with pytest.raises(cores.CoreError, match=r"expected a core \(.*a53.*found 'z80'"):
        cores.load_core("z80")


def test_a_core_inherits_what_it_does_not_state():
    a76, a78 = cores.load_core("a76"), cores.load_core("a78")
    assert (a78.tlb, a78.ports, a78.order) == (a76.tlb, a76.ports, a76.order)
    assert a78.operations[: len(a76.operations)] == a76.operations
    assert (
        a78.units["load"].ports == ("l0", "l1", "l2") and a78.units["vector"] == a76.units["vector"]
    )
    assert a76.validation and not a78.validation  # a check of one core proves nothing of another


@pytest.mark.parametrize(
    ("core", "cpu"),
    [
        ("a57", "cortex-a57"),
        ("a55", "cortex-a76"),
        ("a73", "cortex-a72"),
        ("a78", "cortex-a76"),
        ("a720", "max,sve=off"),
    ],
)
def test_a_core_is_emulated_as_one_that_qemu_has(core: str, cpu: str):
    assert cpu_of(load_board("a57"), core) == cpu


def test_a_core_that_inherits_from_one_that_is_not_there():
    with pytest.raises(cores.CoreError, match=r"expected a core \(.*found 'z80'"):
        cores.parse_core("x", 'inherits = "z80"')
