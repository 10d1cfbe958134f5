"""Building: cached objects are not recompiled, and results are reproducible byte for byte."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from edgekit.host.common.checked_files import in_use
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.toolchain.process import run_watched
from edgekit.host.compiler.toolchain.zig import BuildError, Toolchain, TranslationUnit
from edgekit.host.errors import BusyError, InputError
from edgekit.kb.targets.board import load_board
from tests.support.onnx_models import model, node, save, value
from tests.support.places import few_or_all

pytestmark = pytest.mark.slow

_MODEL = Path(__file__).parents[3] / "models" / "face_detection_short_range.tflite"
_VIEWS = ("reshape", "concat", "split", "strided_slice")  # may be mere aliases
_PRODUCTS = ("conv2d", "depthwise_conv2d", "fully_connected", "row_chain")
_SOURCE = "int answer(void) { return 42; }"


def _objects(cache: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in cache.glob("*.o")}


def _new_cache(folder: Path) -> Path:
    """An empty object cache that shares the compiler's own cache, which takes long to fill."""
    folder.mkdir(exist_ok=True)
    shared = cache_folder() / "objects"
    for name in ("zig", "zig-local"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(shared / name)
    return folder


@pytest.fixture
def toolchain(tmp_path: Path) -> Toolchain:
    return Toolchain(load_board("local"), _new_cache(tmp_path))


def test_the_second_build_compiles_nothing(toolchain, tmp_path):
    first = toolchain.build([TranslationUnit("answer", _SOURCE)])
    before = _objects(tmp_path)
    assert toolchain.build([TranslationUnit("answer", _SOURCE)]) == first
    assert _objects(tmp_path) == before and len(before) == 1


def test_the_cache_is_not_emptied_under_a_compile(tmp_path, monkeypatch):
    from edgekit.host import cache

    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    objects = tmp_path / "cache" / "objects"
    objects.mkdir(parents=True)
    compiled = []

    def run(command, env, seconds):
        with pytest.raises(BusyError, match="expected nobody to use 'objects' of the cache, found"):
            cache.clean()
        made = Path(command[-1])
        made.write_bytes(b"library")
        compiled.append(made.name)
        return subprocess.CompletedProcess(command, 0, "", "")

    Toolchain(load_board("local"), objects, run=run).build([TranslationUnit("answer", _SOURCE)])
    assert compiled == ["out.o", "model.so"]
    assert [entry.kind for entry in cache.clean()] == ["objects"]
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_build_removes_the_work_folders_of_killed_ones(toolchain, tmp_path):
    (tmp_path / "work-dead").mkdir()
    (tmp_path / "work-dead" / "out.o").write_bytes(b"half")
    with in_use(tmp_path):  # another process that may be alive
        (tmp_path / "work-alive").mkdir()
        toolchain.build([TranslationUnit("answer", _SOURCE)])
        assert (tmp_path / "work-alive").is_dir()
    assert not (tmp_path / "work-dead").exists()
    toolchain.build([TranslationUnit("answer", _SOURCE)])
    left = [p.name for p in tmp_path.iterdir() if p.is_dir()]
    assert sorted(left) == ["locks", "zig", "zig-local"]


@pytest.mark.parametrize("suffix", [".o", ".so"])
@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "no hash"])
def test_damaged_cache_files_are_rebuilt(suffix, damage, toolchain, tmp_path):
    first = toolchain.build([TranslationUnit("answer", _SOURCE)])
    (made,) = tmp_path.glob(f"*{suffix}")
    right = made.read_bytes()
    (tmp_path / f"{made.name}.sha256").unlink() if damage == "no hash" else made.write_bytes(
        {"cut": right[:200], "empty": b"", "changed": right.replace(b"\x2a", b"\x2b")}[damage]
    )
    for other in {".o", ".so"} - {suffix}:
        next(tmp_path.glob(f"*{other}")).unlink()
    assert toolchain.build([TranslationUnit("answer", _SOURCE)]) == first
    assert made.read_bytes() == right


def test_a_full_disk_is_not_the_compilers_fault(tmp_path):
    zig = tmp_path / "zig-without-room"
    zig.write_text(
        "#!/bin/sh\necho 'error: unable to open a.o: No space left on device' >&2; exit 1"
    )
    zig.chmod(0o700)
    toolchain = Toolchain(load_board("local"), _new_cache(tmp_path), compiler=(str(zig), "1"))
    with pytest.raises(InputError, match="expected free disk space for compiled code, found none"):
        toolchain.build([TranslationUnit("answer", _SOURCE)])


@pytest.mark.exhaustive
def test_a_damaged_c_library_of_the_compiler_is_made_again(toolchain, tmp_path):
    first = toolchain.build([TranslationUnit("answer", _SOURCE)])
    for name in ("zig", "zig-local"):
        (tmp_path / name).unlink()  # the link to the shared one
        (tmp_path / name).write_bytes(b"no folder at all")
    next(tmp_path.glob("*.so")).unlink()
    assert toolchain.build([TranslationUnit("answer", _SOURCE)]) == first
    assert (tmp_path / "zig").is_dir()


@pytest.mark.parametrize(
    ("operator", "linked"),
    [("+", [False]), pytest.param("/", [False, True], marks=pytest.mark.exhaustive)],
)
def test_the_compilers_library_is_linked_where_it_is_called(operator, linked, tmp_path):
    """Building it takes longer than most models; 64-bit divisions of 32-bit ARM call it."""
    found = []

    def run(command, env, seconds):
        if "-shared" in command:
            found.append("-rtlib=none" not in command)
        return run_watched(command, env, seconds)

    source = f"long long answer(long long a, long long b) {{ return a {operator} b; }}"
    Toolchain(load_board("a7"), _new_cache(tmp_path), run=run).build(
        [TranslationUnit("answer", source)]
    )
    assert found == linked


def test_what_changes_the_code_changes_the_object(toolchain, tmp_path):
    toolchain.build([TranslationUnit("answer", _SOURCE)])
    toolchain.build([TranslationUnit("answer", _SOURCE.replace("42", "43"))])
    toolchain.build([TranslationUnit("answer", _SOURCE, (("X", "1"),))])
    toolchain.build([TranslationUnit("answer", _SOURCE, plain=True)])
    assert len(_objects(tmp_path)) == 4


def test_an_object_depends_on_the_headers_it_includes_and_on_no_others(toolchain, tmp_path):
    source, outer, inner, other = (tmp_path / n for n in ("a.c", "outer.h", "inner.h", "other.h"))
    source.write_text("#include CHOSEN\nint answer(void) { return ANSWER; }")
    outer.write_text('# include "inner.h"\n')
    unit = TranslationUnit("answer", source, (("CHOSEN", f'"{outer}"'),))
    objects = []
    for number, unrelated in ((42, 1), (42, 2), (43, 2)):
        inner.write_text(f"#define ANSWER {number}")
        other.write_text(f"#define OTHER {unrelated}")
        toolchain.build([unit])
        objects.append(len(_objects(tmp_path)))
    assert objects == [1, 1, 2]


_DOUBLED = "void doubled(float *x) { vf_store(x, 2 * vf_load(x)); }"


@pytest.mark.parametrize("name", ["local", "a57", "a7", "rv64gcv"])
def test_precompiled_headers_change_no_byte(name, toolchain, tmp_path):
    board = load_board(name)
    simd = f'"simd/{board.simd}.h"'
    texts = {"EK_SIMD": (("EK_SIMD", simd),), simd: ()}
    first, second = (
        Toolchain(board, tmp_path).build(
            [TranslationUnit("doubled", f"#include {header}\n{_DOUBLED}", macros)]
        )
        for header, macros in texts.items()
    )
    assert first == second
    assert len(list(tmp_path.glob("*.pch"))) == 1


_CLAMPED = """void clamped(float *x, const float *low, const float *high) {
    vf_store(x, vf_min(vf_max(vf_load(x), vf_load(low)), vf_load(high)));
}"""


@pytest.mark.parametrize("name", ["local", "a57", "a7", "rv64gc", "rv64gcv"])
def test_least_and_greatest_of_vectors_call_no_function(name, tmp_path):
    board = load_board(name)
    simd = (("EK_SIMD", f'"simd/{board.simd}.h"'),)
    unit = TranslationUnit("clamped", f"#include EK_SIMD\n{_CLAMPED}", simd)
    Toolchain(board, _new_cache(tmp_path)).build([unit])
    (made,) = _objects(tmp_path)
    assert not re.search(rb"fmax|fmin", made.read_bytes())


def test_headers_are_precompiled_once_and_where_the_cache_is(tmp_path):
    macros = (("EK_SIMD", '"simd/vector.h"'), ("EK_VL", "1"), ("EK_I8", "EK_I8_WIDE16"))
    units = [TranslationUnit(f"u{i}", f"#include EK_SIMD\nint u{i};", macros) for i in range(4)]
    first, last = _new_cache(tmp_path / "first"), tmp_path / "last"
    Toolchain(load_board("local"), first).build(units[:2])
    (made,) = first.glob("*.pch")
    written = made.stat().st_mtime_ns
    Toolchain(load_board("local"), first).build(units[:3])
    assert [p.stat().st_mtime_ns for p in first.glob("*.pch")] == [written]
    first.rename(last)
    Toolchain(load_board("local"), last).build(units)


def test_a_compiler_error_is_one_line(toolchain):
    with pytest.raises(BuildError) as error:
        toolchain.build([TranslationUnit("broken", "int answer(void) { return forty_two; }")])
    assert "\n" not in str(error.value) and "forty_two" in str(error.value)


@pytest.mark.parametrize("board", few_or_all(["local", "a57"], ["local"]))
def test_a_model_compiles_to_the_same_bytes_again(board):
    profile = load_board(board)
    first, second = (compile_artifact(_MODEL, profile) for _ in range(2))
    assert first.library == second.library and first.weights == second.weights
    assert first.description == second.description and first.explain == second.explain


def test_the_explanation_names_a_kernel_for_every_operator_that_computes():
    explain = compile_artifact(_MODEL, load_board("local")).explain
    assert explain["schema"] == "edgekit.explain/1"
    for operator in explain["operators"]:
        assert operator["kernel"] or operator["op"] in _VIEWS, operator
        is_product = operator["op"] in _PRODUCTS
        assert (operator["method"] is not None) == is_product, operator
        assert (operator["rule"] is not None) == is_product, operator
    names = {o["name"] for o in explain["operators"]}
    assert set(explain["order"]) == names
    assert all(set(edge) <= names for edge in explain["edges"])
    memory = explain["memory"]
    assert memory["lower_bound_bytes"] <= memory["arena_bytes"]


def _refused_on(memory: int, path: Path, match: str) -> None:
    small = dataclasses.replace(load_board("a7"), memory_bytes=memory)
    with pytest.raises(InputError, match=match):
        compile_artifact(path, small)


def test_a_board_too_small_for_the_arena_is_refused(tmp_path):
    """Two softmaxes along different axes: few tensors, none of which can be split."""
    nodes = [
        node("Softmax", ["x"], ["rows"], axis=1),
        node("Transpose", ["rows"], ["columns"], perm=[1, 0]),
        node("Softmax", ["columns"], ["y"], axis=1),
    ]
    path = save(model(nodes, [value("x", [200, 200])], ["y"], {}), tmp_path)
    _refused_on(100_000, path, "expected an arena of at most 87500 bytes")


@pytest.mark.parametrize(
    ("memory", "match"),
    [
        (1_550_000, "expected at most 1550000 bytes of arena and weights on a7"),
        pytest.param(
            100_000, "expected an arena of at most 87500 bytes", marks=pytest.mark.exhaustive
        ),
    ],
)
def test_a_board_too_small_for_the_model_is_refused(memory, match):
    _refused_on(memory, _MODEL, match)
