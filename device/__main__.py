"""The runtime's commands: one JSON document on stdout, errors too, never a traceback."""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NoReturn, Optional, Tuple

from edgekit.device.errors import DeviceError, InputError

if TYPE_CHECKING:
    from edgekit.device.session import Session

Document = Dict[str, Any]

_MOST_THREADS = 256  # a slip of the keyboard must not stall the board


class _Parser(argparse.ArgumentParser):
    """Usage errors become the same document as all others."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see: {self.prog} --help")


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs one command; returns the exit code of spec 00."""
    try:
        options = _parser().parse_args(arguments)
        run: Callable[[argparse.Namespace], Document] = options.run
        document, code = run(options), 0
    except DeviceError as error:
        document, code = _error(error.kind, str(error), error.details), error.exit_code
    except KeyboardInterrupt:
        document, code = _error("interrupted", "interrupted"), 130
    except OSError as error:
        document, code = _os_error(error)
    except Exception as error:
        document, code = _error("bug", f"{type(error).__name__}: {error}"), 1
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
    return code


def _error(kind: str, message: str, details: Optional[Dict[str, str]] = None) -> Document:
    return {"error": {"kind": kind, "message": " ".join(message.split()), **(details or {})}}


def _os_error(error: OSError) -> Tuple[Document, int]:
    where = f"{error.filename}: " if error.filename else ""
    found = error.strerror or error
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = f"{where}expected room on the disk, found: {found}; free some space on the board"
        return _error("incompatible", text), 5
    return _error("transfer", f"{where}expected to read or write it, found {found}"), 6


def _probe(options: argparse.Namespace) -> Document:
    from edgekit.device.probe import probe

    return {"schema": "edgekit.probe/1", **asdict(probe(options.root))}


def _plan(options: argparse.Namespace) -> Document:
    """Everything a host asks before it sends files, in one answer: starting Python is slow."""
    from edgekit.device.probe import probe
    from edgekit.device.release import plan
    from edgekit.device.signing import trust
    from edgekit.device.store import Store

    store, session = Store(options.root), _session(options)
    if session:
        session.enter(options.take_over)
    try:
        found = plan(store, options.release, options.allow_downgrade, options.sent)
    except BaseException:
        if session:
            session.end()
        raise
    if session:
        session.end() if found and found.unchanged else session.keep(options.release)
    return {
        "schema": "edgekit.plan/2",
        "probe": asdict(probe(options.root)),
        "trust": asdict(trust(store)),
        "plan": found and asdict(found),
    }


def _apply(options: argparse.Namespace) -> Document:
    from edgekit.device.release import apply
    from edgekit.device.session import alone
    from edgekit.device.store import Store

    store = Store(options.root)
    with alone(store, _session(options)):
        outcome = apply(store, options.release, _checker(options), _say, options.allow_downgrade)
    return {"schema": "edgekit.apply/1", **asdict(outcome)}


def _leave(options: argparse.Namespace) -> Document:
    """The end of a deploy that goes no further; what it had begun to switch is undone."""
    from edgekit.device.release import settle
    from edgekit.device.store import Store

    session = _session(options)
    if session:
        session.abandon()
    settle(Store(options.root))
    return {"schema": "edgekit.leave/1"}


def _enroll(options: argparse.Namespace) -> Document:
    from edgekit.device.signing import enroll, enroll_unsigned
    from edgekit.device.store import Store

    store = Store(options.root)
    with store.lock():
        found = enroll_unsigned(store) if options.unsigned else enroll(store, options.key)
    return {"schema": "edgekit.enroll/1", **asdict(found)}


def _session(options: argparse.Namespace) -> Optional[Session]:
    from edgekit.device.session import Session
    from edgekit.device.store import Store

    if not options.session:
        return None
    return Session(Store(options.root), options.session, options.owner)


def _activate(options: argparse.Namespace) -> Document:
    from edgekit.device.release import activate
    from edgekit.device.store import Store

    outcome = activate(Store(options.root), options.release, _checker(options), _say)
    return {"schema": "edgekit.apply/1", **asdict(outcome)}


def _rollback(options: argparse.Namespace) -> Document:
    from edgekit.device.release import rollback
    from edgekit.device.store import Store

    return {"schema": "edgekit.apply/1", **asdict(rollback(Store(options.root)))}


def _status(options: argparse.Namespace) -> Document:
    from edgekit.device.release import status
    from edgekit.device.store import Store

    return {"schema": "edgekit.status/1", **asdict(status(Store(options.root)))}


def _health(options: argparse.Namespace) -> Document:
    from edgekit.device.release import UnhealthyError, current_release
    from edgekit.device.store import Store

    manifest, folder = current_release(Store(options.root))
    try:
        found = _checker(options)(folder)
    except UnhealthyError as error:
        raise DeviceError(
            f"release {manifest.id} is unhealthy: {error}; go back with rollback, or deploy again"
        ) from None
    return {"schema": "edgekit.health/1", "release": manifest.id, "health": found}


def _golden(options: argparse.Namespace) -> Document:
    from edgekit.device.golden import check_golden, limit_life
    from edgekit.device.store import read_manifest

    limit_life(options.seconds)
    manifest = read_manifest(options.folder)
    found = check_golden(options.folder, manifest)
    return {"schema": "edgekit.health/1", "release": manifest.id, "health": found}


def _run(options: argparse.Namespace) -> Document:
    from edgekit.device.bench import run_times
    from edgekit.device.library import open_model
    from edgekit.device.npz import npz_bytes, read_npz
    from edgekit.device.release import current_release
    from edgekit.device.store import Store
    from edgekit.device.variants import variant_for

    manifest, folder = current_release(Store(options.root))
    inputs = read_npz(options.input)
    variant = variant_for(manifest.every_variant(), inputs)
    model = open_model(folder, manifest, options.threads, variant)
    outputs, times = model.run(inputs)
    options.output.write_bytes(npz_bytes(outputs))
    return {
        "schema": "edgekit.run/1",
        "release": manifest.id,
        "model": manifest.model.name,
        "threads": model.threads,
        **run_times(variant.operators, times),
    }


def _bench(options: argparse.Namespace) -> Document:
    from edgekit.device.bench import BenchPlan, bench
    from edgekit.device.golden import golden_inputs
    from edgekit.device.library import open_model
    from edgekit.device.npz import read_npz
    from edgekit.device.probe import conditions
    from edgekit.device.release import current_release
    from edgekit.device.store import Store
    from edgekit.device.variants import numbered, variant_for

    manifest, folder = current_release(Store(options.root))
    variants = manifest.every_variant()
    given = read_npz(options.input) if options.input else None
    number = options.variant
    variant = numbered(variants, number) if given is None else variant_for(variants, given)
    inputs = golden_inputs(folder, variant) if given is None else given
    before = conditions()
    start = time.perf_counter_ns()
    model = open_model(folder, manifest, options.threads, variant)
    model.set_inputs(inputs)
    model.bench(1)
    load_ms = (time.perf_counter_ns() - start) / 1e6
    found = bench(model, inputs, BenchPlan(options.count, options.warmup, options.seconds))
    return {
        "schema": "edgekit.bench.model/1",
        "release": manifest.id,
        "model": manifest.model.name,
        "load_ms": load_ms,
        **found,
        "shapes": variant.shapes,
        "arena_bytes": variant.memory.arena_bytes,
        "weights_bytes": variant.memory.weights_bytes,
        "conditions": {"before": asdict(before), "after": asdict(conditions())},
    }


def _count(options: argparse.Namespace) -> Document:
    from edgekit.device.count import count, fix_layout
    from edgekit.device.golden import golden_inputs
    from edgekit.device.library import open_model
    from edgekit.device.release import current_release
    from edgekit.device.store import Store

    fix_layout()
    manifest, folder = current_release(Store(options.root))
    inputs = golden_inputs(folder, manifest.every_variant()[0])
    found = count(open_model(folder, manifest), inputs, options.repeats)
    return {
        "schema": "edgekit.count/1",
        "release": manifest.id,
        "model": manifest.model.name,
        **asdict(found),
    }


def _gemm_bench(options: argparse.Namespace) -> Document:
    """Answers go to stderr one by one, so that a lost link loses none that was given."""
    from edgekit.device.gemm_bench import bench_file
    from edgekit.device.gemm_find import find_library
    from edgekit.device.gemm_library import GemmLibrary

    found = (options.library, None) if options.library else find_library()
    answered = bench_file(options.requests, GemmLibrary(*found), _say_answer)
    return {"schema": "edgekit.gemm-bench/1", "answered": answered}


def _spmv_bench(options: argparse.Namespace) -> Document:
    from edgekit.device.gemm_find import find_library
    from edgekit.device.sparse_bench import bench
    from edgekit.device.sparse_library import SparseLibrary

    return bench(options.request, SparseLibrary(options.library or find_library()[0]))


def _say_answer(answer: Document) -> None:
    sys.stderr.write(f"gemm {json.dumps(answer)}\n")
    sys.stderr.flush()


def _checker(options: argparse.Namespace) -> Callable[[Path], Document]:
    from edgekit.device.golden import check_in_subprocess

    return lambda folder: check_in_subprocess(folder, options.seconds)


def _say(state: str) -> None:
    """States go to stderr as they begin, for whoever watches; a lost link stops nothing."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"state {state}\n")
        sys.stderr.flush()


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1 << 20:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, found {text!r}")
    return int(text)


def _threads(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"expected 1 to {_MOST_THREADS}, found {text!r}")
    return int(text)


def _release_id(text: str) -> str:
    from edgekit.device.manifest import is_release_id

    if not is_release_id(text):
        raise argparse.ArgumentTypeError(f"expected 16 hex digits, found {text[:40]!r}")
    return text


def _folder(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise argparse.ArgumentTypeError("expected a home directory, found none") from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="runtime.pyz", description="Releases and runs edgekit models here.")
    parser.add_argument(
        "--root",
        type=_folder,
        default="~/.edgekit",
        help="directory of the releases (~/.edgekit)",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=_Parser)

    def command(
        name: str, run: Callable[[argparse.Namespace], Document], what: str
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=what, description=what)
        sub.set_defaults(run=run)
        return sub

    command("probe", _probe, "what this board is")
    command("status", _status, "what runs")
    command("rollback", _rollback, "swap the current and the previous release")
    sub = command("enroll", _enroll, "say whose releases this board takes")
    whose = sub.add_mutually_exclusive_group(required=True)
    whose.add_argument("--key", help="trust this public key, as OpenSSH writes it")
    whose.add_argument("--unsigned", action="store_true", help="take bundles with no signature")
    _add_session(command("leave", _leave, "end a deploy before its time"))
    for name, run, what in (
        ("plan", _plan, "which files of a sent manifest are missing"),
        ("apply", _apply, "put a sent release into service"),
        ("activate", _activate, "put an installed release into service"),
        ("health", _health, "check the golden output of the current release"),
    ):
        sub = command(name, run, what)
        if name != "health":
            sub.add_argument("release", type=_release_id, help="id of the release")
        sub.add_argument("--allow-downgrade", action="store_true")
        sub.add_argument("--seconds", type=_positive, default=60, help="limit of the health check")
        if name in ("plan", "apply"):
            _add_session(sub)
        if name == "plan":
            sub.add_argument("--sent", action="store_true", help="its manifest was just sent")
    sub = command("golden", _golden, "the health check itself, in this process")
    sub.add_argument("--folder", type=Path, required=True)
    sub.add_argument("--seconds", type=_positive, default=60)
    sub = command("run", _run, "one inference of the current release")
    sub.add_argument("--input", type=Path, required=True, help=".npz, arrays named as in the model")
    sub.add_argument("--output", type=Path, required=True, help=".npz to write")
    sub.add_argument("--threads", type=_threads, default=1)
    sub = command("bench", _bench, "latency of the current release")
    sub.add_argument("--input", type=Path, help=".npz; the golden input if left out")
    sub.add_argument("--variant", type=int, default=0, help="of the golden inputs, from 0")
    sub.add_argument("--threads", type=_threads, default=1)
    sub.add_argument("--count", type=_positive, default=0, help="runs; by time if left out")
    sub.add_argument("--warmup", type=_positive, default=3)
    sub.add_argument("--seconds", type=_positive, default=2, help="time to spend")
    sub = command("count", _count, "instructions of an inference of the current release")
    sub.add_argument("--repeats", type=_positive, default=5)
    sub = command("gemm-bench", _gemm_bench, "times of GEMM methods, or their instructions")
    sub.add_argument("--requests", type=Path, required=True, help="JSON lines")
    sub.add_argument("--library", type=Path, help="libedgekit-kernels.so of this board")
    sub = command("spmv-bench", _spmv_bench, "times of a sparse matrix in several block forms")
    sub.add_argument("--request", type=Path, required=True, help="JSON")
    sub.add_argument("--library", type=Path, help="libedgekit-kernels.so of this board")
    return parser


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--session", default="", help="a name of this deploy alone")
    parser.add_argument("--owner", default="unknown", help="who deploys, for others to read")
    parser.add_argument("--take-over", default="", help="a deploy that is known to be over")


if __name__ == "__main__":
    sys.exit(main())
