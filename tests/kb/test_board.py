"""Board profiles: all load, inherit, and match the tables they name."""

from __future__ import annotations

import os
import subprocess
import tomllib

import pytest

from edgekit.host.cli.app import explain
from edgekit.host.compiler.tables.gemm_file import board_table
from edgekit.host.compiler.toolchain.zig import zig_compiler
from edgekit.kb.targets.board import (
    FOLDER,
    ProfileError,
    UnknownBoardError,
    board_names,
    load_board,
    load_profile,
    nearest,
)
from edgekit.kb.targets.clusters import clusters_of
from edgekit.kb.targets.isa import ByteProduct, isa_names


@pytest.mark.parametrize("name", board_names())
def test_a_profile_names_what_exists(name):
    board = load_board(name)
    assert board.simd in isa_names() and board.description and board.units
    assert board.l1d_bytes <= board.l2_bytes and board.cores >= 1
    of_length = f"rvv{board.vlen_bits}"
    assert (
        board.simd.removesuffix("ime") == of_length if board.vlen_bits else "rvv" not in board.simd
    )
    assert board.vlen_bits <= 128 or board.cpu.endswith(f"+zvl{board.vlen_bits}b")
    if name != "local":
        assert board.memory_bytes
        assert board.core or board.vlen_bits > _longest_of_a_known_core()
        timed = board.timing[0].core if board.timing else ""
        wrong = f"{name}: expected the core that [timing.cpu] names, {timed}, found {board.core}"
        assert timed.removesuffix("ime") in board.core, wrong


def _longest_of_a_known_core():
    """Longest vector registers of any known core, in bits."""
    return max(board.vlen_bits for board in map(load_board, board_names()) if board.core)


def test_the_boards_of_the_contract_are_there():
    wanted = {"local", "a7", "a53", "a55", "a57", "a72", "a76", "rv64gc", "rv64gcv"}
    assert wanted <= set(board_names())


def test_dot_product_kernels_ask_for_the_feature():
    for name in board_names():
        board = load_board(name)
        product = board.isa.i8
        for feature, used in (
            ("asimddp", product.is_signed_dot),
            ("i8mm", product is ByteProduct.MMLA),
        ):
            wrong = f"{name}: {board.simd} uses {product}, its features have or lack {feature}"
            assert (feature in board.features) == used, wrong


def test_inheritance_overrides_one_key_at_a_time():
    base, board = load_profile("generic-aarch64"), load_board("a57")
    assert board.target == base.target and board.features == base.features
    assert board.cpu != base.cpu and base.abstract and not board.abstract


@pytest.mark.parametrize("name", ["nosuch", "../a57", "", "generic-aarch64"])
def test_an_unknown_profile_is_one_line(name):
    with pytest.raises(UnknownBoardError) as error:
        load_board(name)
    assert "\n" not in str(error.value)


_OWN = 'description = "Mine"\ninherits = "base"\n'
_BASE = (
    'description = "b"\narch = "aarch64"\ntarget = "aarch64-linux-gnu.2.28"\n'
    'cpu = "generic"\nsimd = "neon"\n'
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('description = "Mine"', "expected arch, target, cpu, simd, or a profile to inherit from"),
        ('arch = "aarch64"', "expected a description, found none"),
        (_OWN.replace("base", "bas"), r"another profile \(base, mine\), found 'bas'"),
        (_OWN.replace("base", "mine"), "another profile .*, found itself"),
        (_OWN + "colour = 3", r"expected known keys \(.*cores.*\), found colour"),
        (_OWN + 'memory_bytes = "1G"', "memory_bytes to be a whole number, 0 or more, found '1G'"),
        (_OWN + "cores = -4", "cores to be a whole number, 0 or more, found -4"),
        (_OWN + "cpu = 53", "cpu to be a text, found 53"),
        (_OWN + "in_order = 1", "in_order to be true or false, found 1"),
        (_OWN + 'aliases = "Mine"', "aliases to be a list of texts, found 'Mine'"),
        (_OWN + "timing = 3", "timing to be a table, found 3"),
        (_OWN + 'simd = "sse9"', "simd to be one of .*neon.*, found 'sse9'"),
        (_OWN + '[timing.cpu]\ncore = "z80"', "timing.cpu.core to be one of .*a53.*, found 'z80'"),
        (_OWN + "cores 3", "Expected '='"),
    ],
)
def test_a_wrong_file_says_what_to_mend(tmp_path, text, said):
    (tmp_path / "base.toml").write_text(_BASE)
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ProfileError, match=f"board profile 'mine': .*{said}") as error:
        load_board("mine", tmp_path)
    assert "\n" not in str(error.value)
    assert explain(error.value)[0].endswith("; mend it in kb/targets/boards")


def test_a_file_with_a_name_that_is_not_one_says_so(tmp_path):
    (tmp_path / "my_board.toml").write_text(_BASE)
    with pytest.raises(ProfileError, match="'my_board': expected letters, digits and -"):
        load_board("my_board", tmp_path)


BOUGHT = {
    "rpi-zero2w": "cortex-a53",
    "rpi3": "cortex-a53",
    "rpi4": "cortex-a72",
    "rpi5": "cortex-a76",
    "rk3566": "cortex-a55",
    "rk3399": "cortex-a72",
    "rk3588": "cortex-a76",
    "jetson-nano": "cortex-a57",
    "orin": "cortex-a78ae",
    "visionfive2": "sifive-u74",
    "bpi-f3": "spacemit-x60",
    "odroid-n2": "cortex-a73",
    "rk3308": "cortex-a35",
    "orion-o6": "cortex-a720",
    "k230": "xuantie-c908",
    "k3": "spacemit-x100",
}


@pytest.mark.parametrize(("name", "core"), BOUGHT.items())
def test_boards_that_people_own_name_their_core_and_where_their_sizes_are_from(name, core):
    board = load_board(name)
    assert board.core == core and board.source and board.compatible


def test_a_board_is_known_by_one_profile_only():
    known = [chip for name in board_names() for chip in load_board(name).compatible]
    assert len(known) == len(set(known))
    for name in board_names()[1:]:
        for alias in tomllib.loads((FOLDER / f"{name}.toml").read_text()).get("aliases", ()):
            meant = load_board(alias).name
            assert meant == name, f"move the alias {alias} from {meant}.toml to {name}.toml"


@pytest.mark.parametrize(
    ("name", "core"), [("rpi4", "a72"), ("rpi3", "a53"), ("jetson-nano", "a57"), ("a57", "a57")]
)
def test_a_board_uses_the_tables_of_its_core(name, core):
    board = load_board(name)
    assert board.core_profile == core and board.platform == load_board(core).platform
    assert board_table(board).rows == board_table(load_board(core)).rows != ()


@pytest.mark.parametrize("name", ["rk3399", "rk3588"])
def test_models_are_compiled_for_the_core_they_run_on_by_default(name):
    board = load_board(name)
    fast = load_board(clusters_of(board)[0].core)
    assert (board.platform, board.in_order) == (fast.platform, False)
    assert board_table(board).rows == board_table(fast).rows
    assert (board.l1d_bytes, board.l2_bytes) == (fast.l1d_bytes, fast.l2_bytes)


@pytest.mark.parametrize("name", ["rk3399", "rk3588", "odroid-n2"])
def test_code_for_one_cluster_has_only_instructions_of_the_others(name, tmp_path):
    board = load_board(name)
    cores = [load_board(cluster.core) for cluster in clusters_of(board)]
    assert len({core.simd for core in cores} | {board.simd}) == 1
    assert all(set(board.features) <= set(core.features) for core in cores)
    made = {core.cpu: _instruction_sets(core, tmp_path) for core in (board, *cores)}
    assert all(made[board.cpu] <= sets for sets in made.values()) and made[board.cpu]


def _instruction_sets(board, cache):
    """The target CPU that the C compiler reports."""
    asked = ["cc", "-target", board.target, f"-mcpu={board.cpu}", "-E", "-dM", "-x", "c", "-"]
    folders = {f"ZIG_{kind}_CACHE_DIR": str(cache) for kind in ("GLOBAL", "LOCAL")}
    shown = subprocess.run(
        [zig_compiler()[0], *asked],
        env=os.environ | folders,
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    return {line for line in shown.stdout.splitlines() if "__ARM_FEATURE" in line}


def test_vectors_of_256_bits_are_kept_apart_from_the_core_s_own_profile():
    board, core = load_board("bpi-f3"), load_board("rv64gcv")
    assert (board.vlen_bits, core.vlen_bits) == (256, 128)
    assert board.core_profile == "rv64gcv" and board.cpu != core.cpu


def test_lanes_and_registers_follow_the_length_of_vectors():
    found = {b.vlen_bits: b.isa for b in map(load_board, ("rv64gcv", "bpi-f3", "rv64gcv-zvl512b"))}
    assert {bits: (isa.vl, isa.of_half.vl, isa.registers) for bits, isa in found.items()} == {
        128: (8, 16, 16),
        256: (8, 16, 32),
        512: (16, 32, 32),
    }


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("rpi44", "rpi4"),
        ("Raspbery Pi 4", "rpi4"),
        ("rpi", "rpi5"),
        ("pi", "rpi5"),
        ("jetson", "jetson-nano"),
        ("visionfive", "visionfive2"),
        ("Oragne Pi 5", "rk3588"),
    ],
)
def test_a_wrong_name_gets_the_nearest_ones(wrong, right):
    assert nearest(wrong).startswith(f" (nearest: {right}")
    with pytest.raises(UnknownBoardError, match=right):
        load_board(wrong)


@pytest.mark.parametrize(
    ("name", "profile"),
    [
        ("RPI4", "rpi4"),
        ("pi5", "rpi5"),
        ("raspberry pi 4", "rpi4"),
        ("Raspberry Pi Zero 2 W", "rpi-zero2w"),
        ("bcm2711", "rpi4"),
        ("Jetson Nano", "jetson-nano"),
        ("VisionFive2", "visionfive2"),
        ("rk3588", "rk3588"),
        ("A57", "a57"),
        ("Raspberry Pi 4 Model B", "rpi4"),
        ("Raspberry Pi 5 (8GB)", "rpi5"),
        ("rpi3b+", "rpi3"),
        ("pi 02w", "rpi-zero2w"),
        ("cm4", "rpi4"),
        ("Orange Pi 5", "rk3588"),
        ("orangepi-5-plus", "rk3588"),
        ("Jetson Orin Nano", "orin"),
        ("i.MX8M Plus", "a53"),
        ("K1", "bpi-f3"),
    ],
)
def test_a_common_name_is_enough(name, profile):
    assert load_board(name).name == profile


@pytest.mark.parametrize("name", ["", "4", "i4", "pi", "class", "of 256 bits", "../a57"])
def test_an_end_of_several_names_or_a_short_one_is_none(name):
    with pytest.raises(UnknownBoardError):
        load_board(name)


def test_a_name_like_no_other_gets_none():
    assert nearest("quantum") == "" == nearest("", ["a57"])


def test_a_base_says_that_it_is_one_and_for_what():
    with pytest.raises(UnknownBoardError, match=r"only a base for .*a57.*rpi4"):
        load_board("arm64")
