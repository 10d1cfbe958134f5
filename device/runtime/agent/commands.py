"""The runtime's commands: one JSON document on stdout, including for errors; never a traceback."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Callable, List, Optional

from edgekit.device.runtime.agent.app_commands import add_app_commands, run_and_resume
from edgekit.device.runtime.agent.arguments import (
    Parser,
    add_placement,
    add_session,
    folder,
    load_current,
    open_store,
    pinned_to_cores,
    positive,
    release_id,
)
from edgekit.device.runtime.agent.fetch_commands import add_fetch_commands
from edgekit.device.runtime.agent.measuring_commands import add_measuring_commands
from edgekit.device.runtime.agent.profile_commands import add_profile_commands
from edgekit.device.runtime.bytecode import keep_bytecode
from edgekit.device.runtime.errors import (
    DeviceError,
    Document,
    UnhealthyError,
    error_document,
    system_error_document,
)
from edgekit.device.runtime.record import asdict

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.arguments import AddCommand, Run
    from edgekit.device.runtime.agent.session import DeploySession

_ALL = ""


def main(arguments: Optional[List[str]] = None, run: Run = run_and_resume) -> int:
    """Runs one command; returns its exit code: 0, or the error's. `run` gets its options."""
    try:
        document, code = run(_parse(sys.argv[1:] if arguments is None else arguments)), 0
    except DeviceError as error:
        document, code = error_document(error.kind, str(error), error.details), error.exit_code
    except KeyboardInterrupt:
        document, code = error_document("interrupted", "interrupted"), 130
    except (ImportError, OSError) as error:
        document, code = system_error_document(error)
    except Exception as error:
        document, code = error_document("bug", f"{type(error).__name__}: {error}"), 1
    if document is None:  # a session has sent its answers itself
        return code
    try:
        print(json.dumps(document), flush=True)
    except OSError:
        os._exit(code)  # the command is complete; Python's own exit would fail
    return code


def _run_in_release(options: argparse.Namespace) -> Optional[Document]:
    """Runs a command with the current release's own runtime, after verifying its bytes: a damaged
    runtime cannot verify itself."""
    from edgekit.device.runtime.agent.manifest import RUNTIME

    root = ["--root", str(options.root)]
    inner = _parse([*root, *options.arguments])
    inner.current = manifest, files = load_current(options)
    if not manifest.file(RUNTIME).sha256.startswith(Path(sys.argv[0]).stem):
        own = [sys.executable, "-I", "-S", str(files.folder / RUNTIME)]
        keep_bytecode()
        os.execv(own[0], [*own, *root, *options.arguments])
    run: Run = inner.run
    return run(inner)


def _probe(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.probe import probe

    return {"schema": "edgekit.probe/1", **asdict(probe(options.root))}


def _plan(options: argparse.Namespace) -> Document:
    """Answers all questions that precede a transfer at once, because starting Python is slow.

    With `unless_application`, if the deployed release has an application, no plan is made and no
    session kept: the host asks again with a release that includes it.
    """
    from edgekit.device.runtime.agent.probe import probe
    from edgekit.device.runtime.agent.release import plan
    from edgekit.device.runtime.agent.signing import trust
    from edgekit.device.runtime.agent.status import application_in_service

    store, session = open_store(options), _open_session(options)
    if session:
        session.enter(options.take_over)
    try:
        application = application_in_service(store)
        waits = bool(application and options.unless_application)
        sent = (options.release, options.allow_downgrade, options.sent)
        found = None if waits else plan(store, *sent)
    except BaseException:
        if session:
            session.end()
        raise
    if session:
        over = waits or (found and found.unchanged)
        session.end() if over else session.keep(options.release)
    return {
        "schema": "edgekit.plan/1",
        "probe": asdict(probe(options.root)),
        "trust": asdict(trust(store)),
        "application": application,
        "plan": found and asdict(found),
    }


def _preview(options: argparse.Namespace) -> Document:
    """Answers for a manifest on standard input. Changes nothing on the board: anomalies are
    repaired only by the next deploy."""
    from edgekit.device.runtime.agent.manifest import parse_manifest
    from edgekit.device.runtime.agent.probe import probe
    from edgekit.device.runtime.agent.release import preview
    from edgekit.device.runtime.agent.status import application_in_service

    store, manifest = open_store(options), sys.stdin.buffer.read(options.bytes)
    current = store.links().current
    application = application_in_service(store)
    found = None
    if not (application and options.unless_application):
        found = preview(store, parse_manifest(manifest), options.allow_downgrade)
    return {
        "schema": "edgekit.preview/1",
        "probe": asdict(probe(options.root)),
        "application": application,
        "current": current,
        "plan": found and asdict(found),
    }


def _apply(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.release import apply
    from edgekit.device.runtime.agent.session import alone

    store = open_store(options)
    with alone(store, _open_session(options)):
        outcome = apply(
            store, options.release, _make_checker(options), _log_state, options.allow_downgrade
        )
    return {"schema": "edgekit.apply/1", **asdict(outcome)}


def _leave(options: argparse.Namespace) -> Document:
    """Ends an abandoned deploy and undoes its uncommitted switch."""
    from edgekit.device.runtime.agent.recovery import recover_if_needed

    session = _open_session(options)
    if session:
        session.abandon()
    recover_if_needed(open_store(options))
    return {"schema": "edgekit.leave/1"}


def _enroll(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.signing import enroll, enroll_unsigned

    store = open_store(options)
    with store.lock():
        own = options.key, options.only
        found = enroll_unsigned(store) if options.unsigned else enroll(store, *own)
    return {"schema": "edgekit.enroll/1", **asdict(found)}


def _open_session(options: argparse.Namespace) -> Optional[DeploySession]:
    from edgekit.device.runtime.agent.session import DeploySession

    if not options.session:
        return None
    return DeploySession(open_store(options), options.session, options.owner)


def _activate(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.release import activate

    outcome = activate(open_store(options), options.release, _make_checker(options), _log_state)
    return {"schema": "edgekit.apply/1", **asdict(outcome)}


def _rollback(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.release import rollback

    return {"schema": "edgekit.apply/1", **asdict(rollback(open_store(options)))}


def _remove(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.remove import remove

    return {"schema": "edgekit.runtime.remove/1", "releases": remove(open_store(options))}


def _status(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.status import status

    found = status(open_store(options), not options.quick)
    return {"schema": "edgekit.runtime.status/1", **asdict(found)}


def _verify(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.status import verify

    return {"schema": "edgekit.runtime.status/1", **asdict(verify(open_store(options)))}


def _health(options: argparse.Namespace) -> Document:
    manifest, files = load_current(options)
    try:
        found = _make_checker(options)(files.folder)
    except UnhealthyError as error:
        raise DeviceError(
            f"release {manifest.id} is unhealthy: {error}; go back with rollback, or deploy again"
        ) from None
    return {"schema": "edgekit.health/1", "release": manifest.id, "health": found}


def _golden(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.golden import check_golden, limit_life
    from edgekit.device.runtime.agent.integrity import open_intact
    from edgekit.device.runtime.agent.store import manifest_of

    limit_life(options.seconds)
    files = open_intact(options.folder)
    health = check_golden(files, manifest := manifest_of(files))
    return {"schema": "edgekit.health/1", "release": manifest.id, "health": health}


def _run(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.bench import run_times
    from edgekit.device.runtime.agent.model import open_model
    from edgekit.device.runtime.agent.npz import npz_bytes, read_npz
    from edgekit.device.runtime.agent.variants import variant_for

    manifest, files = load_current(options)
    inputs = read_npz(options.input)
    variant = variant_for(manifest.every_variant(), inputs, options.signature)
    with pinned_to_cores(manifest, options) as placement:
        model = open_model(files, manifest, placement, variant)
        outputs, times = model.run(inputs)
    options.output.write_bytes(npz_bytes(outputs))
    return {
        "schema": "edgekit.runtime.run/1",
        "release": manifest.id,
        "model": manifest.model.name,
        "threads": model.threads,
        **run_times(variant.operators, times),
    }


def _serve(options: argparse.Namespace) -> None:
    from edgekit.device.runtime.agent.serve import serve

    manifest, files = load_current(options)
    with pinned_to_cores(manifest, options) as placement:
        serve(open_store(options), manifest, files, placement)


def _make_checker(options: argparse.Namespace) -> Callable[[Path], Document]:
    from edgekit.device.runtime.agent.health import check_in_subprocess

    return lambda folder: check_in_subprocess(folder, options.seconds)


def _log_state(state: str) -> None:
    """Writes each state to stderr as it begins; a lost link does not stop the command."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"state {state}\n")
        sys.stderr.flush()


def _parse(arguments: List[str]) -> argparse.Namespace:
    """Builds only the parser of the given command: all of them take a tenth of the start-up."""
    words = arguments[2:] if arguments[:1] == ["--root"] else arguments
    return _build_parser("".join(words[:1])).parse_args(arguments)


def _build_parser(asked: str) -> argparse.ArgumentParser:
    """Returns the parser for the command `asked`; for all commands if there is no such command, for
    help and errors."""
    parser = Parser(prog="runtime.pyz", description="Releases and runs edgekit models here.")
    parser.add_argument(
        "--root", type=folder, default="~/.edgekit", help="directory of the releases (~/.edgekit)"
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)

    def command(name: str, run: Run, what: str) -> Optional[argparse.ArgumentParser]:
        if asked not in (name, _ALL):
            return None
        sub = commands.add_parser(name, help=what, description=what)
        sub.set_defaults(run=run)
        return sub

    command("probe", _probe, "describe this board")
    if sub := command("status", _status, "show the installed releases"):
        sub.add_argument("--quick", action="store_true", help="skip the integrity check")
    command("verify", _verify, "compare installed files with their SHA-256")
    if sub := command(
        "release", _run_in_release, "run a command with the current release's runtime"
    ):
        sub.add_argument("arguments", nargs=argparse.REMAINDER)
    command("rollback", _rollback, "swap the current and the previous release")
    command("remove", _remove, "remove the model with its releases, links and records")
    if sub := command("enroll", _enroll, "set the keys whose releases this board accepts"):
        whose = sub.add_mutually_exclusive_group(required=True)
        whose.add_argument("--key", help="trust this public key, as OpenSSH writes it")
        whose.add_argument("--unsigned", action="store_true", help="accept unsigned bundles")
        sub.add_argument("--only", action="store_true", help="trust no other key")
    if sub := command("leave", _leave, "abort a deploy"):
        add_session(sub)
    _add_deploying(command)
    if sub := command("golden", _golden, "run the health check in this process"):
        sub.add_argument("--folder", type=Path, required=True)
        sub.add_argument("--seconds", type=positive, default=60)
    if sub := command("run", _run, "run one inference of the current release"):
        sub.add_argument(
            "--input", type=Path, required=True, help=".npz, arrays named as in the model"
        )
        sub.add_argument("--output", type=Path, required=True, help=".npz to write")
        sub.add_argument(
            "--signature", default="", help="signature to use, of a model that has several"
        )
        add_placement(sub)
    if sub := command(
        "serve-session", _serve, "run inferences on request, with the model loaded once"
    ):
        add_placement(sub)
    add_measuring_commands(command)
    add_profile_commands(command)
    add_fetch_commands(command)
    add_app_commands(command)
    return parser if commands.choices else _build_parser(_ALL)


def _add_deploying(command: AddCommand) -> None:
    """Adds the commands that plan a deploy, put a release into service and check it."""
    for name, run, what in (
        ("plan", _plan, "list the missing files of a sent manifest"),
        ("apply", _apply, "put a sent release into service"),
        ("activate", _activate, "put an installed release into service"),
        ("health", _health, "check the golden output of the current release"),
    ):
        if sub := command(name, run, what):
            if name != "health":
                sub.add_argument("release", type=release_id, help="id of the release")
            sub.add_argument("--allow-downgrade", action="store_true")
            sub.add_argument(
                "--seconds", type=positive, default=60, help="limit of the health check"
            )
            if name in ("plan", "apply"):
                add_session(sub)
            if name == "plan":
                sub.add_argument("--sent", action="store_true", help="its manifest was just sent")
                sub.add_argument(
                    "--unless-application",
                    action="store_true",
                    help="only report an installed application",
                )
    if sub := command(
        "preview", _preview, "print what `plan` would answer to the manifest on stdin"
    ):
        sub.add_argument("bytes", type=positive, help="size of the manifest")
        sub.add_argument("--allow-downgrade", action="store_true")
        sub.add_argument(
            "--unless-application", action="store_true", help="only report an installed application"
        )
