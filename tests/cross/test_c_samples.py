"""A C program on each board samples its inferences per operator."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from edgekit.device.runtime.agent.batch import bodies
from edgekit.device.runtime.agent.c_samples import take_samples
from edgekit.device.runtime.agent.integrity import write_record
from edgekit.device.runtime.agent.spool import Spool
from edgekit.device.runtime.agent.store import Links, Store
from edgekit.host import compile_model
from edgekit.host.compiler.toolchain.application import write_application
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, QEMU
from tests.support.toolchains import compile_for

pytestmark = pytest.mark.cross
_MODEL = Path(__file__).parents[2] / "models" / "okay_nabu.tflite"
_PROGRAM = """
#include <stdio.h>
#include "ek_app.h"

int main(int count, char **argument) {
    static char x[IN], y[OUT];
    char error[512] = "", release[EK_APP_RELEASE_BYTES];
    ek_app *app = ek_app_open(argument[count - 1], NULL, 2, error, sizeof error);
    for (int i = 0; app && i < 30; ++i)
        if (ek_app_run(app, (const void *const[]){x}, (void *const[]){y}, release))
            return puts(ek_app_error(app)), 1;
    ek_app_close(app);
    return puts(error), !app;
}
"""


@pytest.mark.parametrize(
    "name", ["a57", *(pytest.param(b, marks=pytest.mark.exhaustive) for b in ("a7", "rv64gcv"))]
)
def test_c_programs_are_sampled(name, tmp_path):
    board, root = load_board(name), tmp_path / "board"
    bundle = compile_model(_MODEL, board=name)
    store, manifest = Store(root), bundle.manifest
    store.create()
    folder = store.releases / manifest.id
    for path, data in {**bundle.files, "manifest.json": manifest.to_json()}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    write_record(folder, manifest)
    store.set_links(Links(manifest.id, None))

    write_application(tmp_path, board)
    (tmp_path / "program.c").write_text(_PROGRAM)
    sizes = [f"-DIN={manifest.inputs[0].bytes}", f"-DOUT={manifest.outputs[0].bytes}"]
    links = (f"-I{tmp_path}", f"-L{tmp_path}", "-ledgekit-app", f"-Wl,-rpath,{tmp_path}")
    compile_for(board, tmp_path / "program.c", tmp_path / "program", *sizes, *links)
    emulator, libraries = QEMU[board.arch]
    run = [emulator, "-cpu", CPUS[name], "-L", libraries, str(tmp_path / "program"), str(root)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr

    take_samples(Store(root))
    found = [json.loads(body) for body in bodies(Spool(root / "spool").fetch(1 << 20).data)]
    assert [(b["subject"]["release"], b["inferences"]) for b in found] == [(manifest.id, 30)]
    names = [operator.name for operator in manifest.operators]
    assert [row[0] for row in found[0]["operators"]] == names
