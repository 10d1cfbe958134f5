"""Old names of commands and options are answered with the new name."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest

from edgekit.host.cli.app import app
from edgekit.host.cli.meant import command_tree
from edgekit.host.cli.renamed import COMMANDS, GONE, OPTIONS


@pytest.mark.parametrize("old", COMMANDS)
def test_an_old_command_names_the_new_one_which_there_is(edgekit: Any, old: str) -> None:
    done = edgekit(*old.split(), "--json")
    assert (done.code, done.out) == (2, "")
    assert done.complaint == f"edgekit: 'edgekit {old}' is now 'edgekit {COMMANDS[old]}'"
    found: Any = command_tree(app)
    for word in takewhile(lambda each: each[0].islower(), COMMANDS[old].split()):
        found = found.commands[word]
    flags = {flag for parameter in found.params for flag in parameter.opts}
    assert {word for word in COMMANDS[old].split() if word.startswith("-")} <= flags


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("prune", "--all", "--all-layers"),
        ("lab kb build", "--alone", "--no-base"),
        ("fleet deploy", "--anew", "--restart"),
        ("deploy", "--as", "--name"),
        ("lab tune model", "--candidates", "--orders"),
        ("lab tune gemm", "--cluster", "--dask"),
        ("board up", "--counting", "--count-instructions"),
        ("quantize", "--data", "--samples"),
        ("profile report", "--from", "--store"),
        ("fleet enroll", "--kbit", "--max-kbit"),
        ("profile list", "--keep", "--max-size"),
        ("profile list", "--most", "--limit"),
        ("compile", "--quantize", "--samples"),
        ("estimate", "--root", "--sysroot"),
        ("lab tune gemm", "--rows", "--remeasure"),
        ("fleet deploy", "--stop-at", "--max-failures"),
        ("lab bench sparse", "--storage", "--dtype"),
        ("fleet serve", "--to", "--store"),
        ("board add", "--unsigned", "--allow-unsigned"),
        ("status", "--via", "--transport"),
        ("estimate", "--whole", "--entire-program"),
    ],
)
def test_an_old_option_names_the_new_one(edgekit: Any, command: str, old: str, new: str) -> None:
    assert (old, new) in OPTIONS
    done = edgekit(*command.split(), old, "x")
    assert (done.code, done.out) == (2, "")
    assert done.complaint == f"edgekit: {old} is now {new}; see edgekit {command} --help"


def test_every_old_option_is_tested() -> None:
    (mark,) = test_an_old_option_names_the_new_one.pytestmark
    assert sorted((old, new) for _, old, new in mark.args[1]) == sorted(OPTIONS)


@pytest.mark.parametrize("command", ["deploy", "run", "estimate", "bench model"])
@pytest.mark.parametrize("option", GONE)
def test_an_option_that_is_gone_says_so(edgekit: Any, command: str, option: str) -> None:
    done = edgekit(*command.split(), option, "x")
    assert (done.code, done.complaint) == (2, f"edgekit: {GONE[option]}")


def test_an_address_is_no_cluster_of_cores(edgekit: Any) -> None:
    done = edgekit("estimate", "--cluster", "tcp://10.0.0.1:8786")
    assert done.code == 2
    assert "--cluster tcp://10.0.0.1:8786 is now --dask tcp://10.0.0.1:8786" in done.complaint


def test_an_unknown_option_is_refused(edgekit: Any) -> None:
    assert "an option of this command, found --from" in edgekit("status", "--from", "x").complaint
