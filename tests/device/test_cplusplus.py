"""C++ programs use the interfaces in C: a model's, the kernel library's, the application's."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.kernels import C_FILES, C_LIBRARY
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.toolchain.application import write_application
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.kb.targets.board import load_board

CXX = (sys.executable, "-m", "ziglang", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror")
# No C++ library: its compilation would take the most time, and a board may have none. The compiler
# has its own library for this target and optimization, as the toolchain builds for it.
PLAIN = (
    *(*CXX, "-target", load_board("local").target, "-O3", "-fno-sanitize=undefined"),
    *("-nostdlib++", "-fno-exceptions", "-fno-rtti"),
)
INTERFACES = ("ek.h", "gemm/gemm.h", "sparse/sparse.h", "outlier/outlier.h", "nna/nna.h")
APPLICATION = [f"application/{name}" for name in C_FILES if name.endswith(".h")]
PROGRAM = """
#include "ek.h"
#include "ek_app.h"
#include <stdio.h>

int main(int, char **arguments) {
    char error[512];
    ek_app *app = ek_app_open(arguments[1], nullptr, 1, error, sizeof error);
    printf("%d %d %s\\n", ek_abi(), app != nullptr, error);
}
"""


@pytest.mark.parametrize("header", [*INTERFACES, *APPLICATION])
def test_cplusplus_calls_functions_by_their_c_names(header: str, tmp_path: Path) -> None:
    code = re.sub(r"/\*.*?\*/", "", (kernels_folder() / header).read_text(), flags=re.DOTALL)
    names = re.findall(r"^[a-z][^#;{}]*?\b(ek_\w+)\([^;{}]*\);", code, re.MULTILINE)
    assert len(names) > 1
    source, made = tmp_path / "all.cpp", tmp_path / "all.o"
    calls = ", ".join(f"reinterpret_cast<any *>({name})" for name in names)
    source.write_text(
        f'#include "{header}"\nusing any = void();\n'
        f"extern any *const every[];\nany *const every[] = {{{calls}}};\n"
    )
    command = [*PLAIN, "-c", str(source), "-I", str(kernels_folder()), "-o", str(made)]
    subprocess.run(command, check=True)
    symbols = made.read_bytes()
    assert b"\0_Z" not in symbols
    assert all(b"\0" + name.encode() + b"\0" in symbols for name in names)


@pytest.mark.slow
def test_cplusplus_program_links_with_model_and_application_library(
    tiny_artifact: Callable[..., Artifact], tmp_path: Path
) -> None:
    write_application(tmp_path, load_board("local"))
    (tmp_path / "model.so").write_bytes(tiny_artifact().library)
    source, program = tmp_path / "app.cpp", tmp_path / "app"
    source.write_text(PROGRAM)
    libraries = [str(tmp_path / name) for name in (C_LIBRARY, "model.so")]
    folders = ["-I", str(tmp_path), "-I", str(kernels_folder()), f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*PLAIN, str(source), *folders, *libraries, "-o", str(program)], check=True)
    found = subprocess.run([program, tmp_path], check=True, capture_output=True, text=True)
    assert re.fullmatch(r"1 0 .*expected a deployed model in .*, found none.*\n", found.stdout)
