"""Previews a deploy without writing anything, here or on the board.

The board's part arrives on standard input and runs from memory: a board without a previous deploy
has no runtime yet, and a preview must not install one.
"""

from __future__ import annotations

import zlib

from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.bundle.pyz import CHECK_PYTHON, runtime_pyz
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.application import deployed_application, unsigned_with
from edgekit.host.deploy.release.deploy import check_probe, plan_of
from edgekit.host.deploy.release.runtime import (
    QUICK_SECONDS,
    SLOWEST_BYTES_PER_SECOND,
    BoardCalls,
    document_of,
)
from edgekit.host.deploy.release.types import DeployPlan
from edgekit.host.deploy.transport import Completed
from edgekit.host.errors import TransferError

_CHUNK = 1 << 16
# Reads a compressed .pyz of the given size and imports its modules from memory; the rest of
# standard input belongs to the command.
_FROM_MEMORY = """
import io, zipfile, zlib
from importlib.machinery import ModuleSpec
packed = sys.stdin.buffer.read(int(sys.argv.pop(1)))
archive = zipfile.ZipFile(io.BytesIO(zlib.decompress(packed)))
names = frozenset(archive.namelist())

class Memory:
    def find_spec(self, name, path=None, target=None):
        place = name.replace(".", "/")
        for file, package in ((place + "/__init__.py", True), (place + ".py", False)):
            if file in names:
                return ModuleSpec(name, self, origin=file, is_package=package)
        return ModuleSpec(name, None, is_package=True) if place + "/" in names else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        file = module.__spec__.origin
        exec(compile(archive.read(file), file, "exec"), module.__dict__)

sys.meta_path.insert(0, Memory())
from edgekit.device.runtime.agent.commands import main
sys.exit(main())
"""


def plan_deploy(
    board: BoardCalls,
    bundle: Bundle,
    allow_downgrade: bool = False,
    application: bool = True,
) -> DeployPlan:
    """Returns the plan of a `deploy`, and raises the same errors. The bundle need not be signed."""
    options = ["--allow-downgrade"] if allow_downgrade else []
    keeps = application and not bundle.manifest.application
    answer = _run_preview(board, bundle, *options, *(["--unless-application"] if keeps else []))
    if keeps and answer["application"]:
        if kept := deployed_application(board, answer["current"]):
            bundle = unsigned_with(bundle, kept)
        answer = _run_preview(board, bundle, *options)
    check_probe(board.name, answer["probe"], bundle.manifest)
    return plan_of(answer, bundle.manifest)


def _run_preview(board: BoardCalls, bundle: Bundle, *options: str) -> Document:
    runtime, manifest = zlib.compress(runtime_pyz(), 9), bundle.manifest.to_json()
    program = f"exec({CHECK_PYTHON + _FROM_MEMORY!r})"  # one line: consoles take no more
    own = [board.transport.python, "-I", "-S", "-c", program, str(len(runtime))]
    arguments = ["--root", board.root, "preview", str(len(manifest)), *options]
    data = runtime + manifest
    deadline = QUICK_SECONDS + len(data) / SLOWEST_BYTES_PER_SECOND
    stream = board.transport.open([*own, *arguments], deadline=QUICK_SECONDS)
    try:
        stream.send(data, deadline=deadline)
        said = b""
        while part := stream.receive(_CHUNK, deadline=deadline):
            said += part
    except BaseException:
        stream.close(deadline=0)
        raise
    ended = stream.close(deadline=QUICK_SECONDS)
    answer = document_of(board.name, "preview", Completed(ended.exit_code, said, ended.stderr))
    found = answer["plan"]
    waits = found is None and answer["application"] and "--unless-application" in options
    if not waits and (found is None or found["release"] != bundle.manifest.id):
        raise TransferError(
            f"board '{board.name}': expected a plan for release {bundle.manifest.id}, "
            "found none; try again"
        )
    return answer
