"""Runs a deploy through the state table that host and board share."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType

from edgekit.device.runtime.agent import states
from edgekit.device.runtime.agent.fit import BoardFacts, check_fit
from edgekit.device.runtime.agent.manifest import MANIFEST, SIGNATURE, Manifest
from edgekit.device.runtime.agent.probe import Probe
from edgekit.device.runtime.errors import IncompatibleError as DeviceIncompatibleError
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.application import deployed_application, with_application
from edgekit.host.deploy.release.enroll import enroll_host
from edgekit.host.deploy.release.probed import check_c_library, check_folder, probed
from edgekit.host.deploy.release.runtime import SLOWEST_BYTES_PER_SECOND, BoardCalls
from edgekit.host.deploy.release.session import DeployLock, forget, is_stale, owner
from edgekit.host.deploy.release.types import (
    DeployPlan,
    DeployProgress,
    OnStep,
    PlannedFile,
    Release,
)
from edgekit.host.deploy.transport import LinkLostError, Transport
from edgekit.host.errors import (
    BusyError,
    EdgekitError,
    IncompatibleError,
    RolledBackError,
    TransferError,
    UnreachableError,
)

HEALTH_SECONDS = 60
DEADLINES: Mapping[str, float] = {row.name: row.deadline_seconds for row in states.STATES}
_LEAVE_SECONDS = 10.0  # do not keep the user waiting after a failed deploy
_POLL_SECONDS = 0.5
_SOON = 0.05  # minimum timeout once the deadline has passed


def deploy(
    board: BoardCalls,
    bundle: Bundle,
    *,
    progress: OnStep = lambda _: None,
    allow_downgrade: bool = False,
    health_seconds: int = HEALTH_SECONDS,
    own: bool = False,
    deadlines: Mapping[str, float] = DEADLINES,
    application: bool = True,
    check: Callable[[Probe], None] = lambda _: None,
) -> Release:
    """Deploys `bundle` on the board, as the model selected by `board.model_name`.

    With `application`, a bundle that has no application keeps the deployed one. With `own`, a board
    that trusts no key yet is enrolled with this host's. `deadlines` maps each state to its limit in
    seconds. `check` may reject the board by its probe, before anything is sent.

    Raises InputError if the deployed application is another host's, IncompatibleError if the board
    cannot run the bundle, TransferError if the signature is not trusted or files are damaged,
    BusyError if another deploy is in progress, RolledBackError if the release was unhealthy,
    UnreachableError naming the state if the board stops responding. On any exception, including
    KeyboardInterrupt: unless the new release was committed, the old one keeps running, and files
    already sent are kept for the next attempt.
    """
    walk = _Deploy(board, bundle, progress, allow_downgrade, own, deadlines, application)
    walk.check = check
    return walk.run(health_seconds)


class _Deploy:
    def __init__(
        self,
        board: BoardCalls,
        bundle: Bundle,
        progress: OnStep,
        allow_downgrade: bool,
        own: bool,
        deadlines: Mapping[str, float],
        application: bool,
    ) -> None:
        self._board = board
        self._keeps_application = application
        self._bundle = bundle
        self._progress = progress
        self._options = ["--allow-downgrade"] if allow_downgrade else []
        self._own = own
        self._deadlines = deadlines
        self._state, self._ends = "probe", 0.0
        self.check: Callable[[Probe], None] = lambda _: None

    def run(self, health_seconds: int) -> Release:
        lock = DeployLock()
        self._options += ["--session", lock.token, "--owner", owner()]
        answered = False
        try:
            plan = self._negotiate_plan()
            if plan.unchanged:
                release = self._to_release({"end": states.UNCHANGED, "previous": None}, plan)
            else:
                self._transfer_files(plan)
                release = self._to_release(self._run_board_states(health_seconds), plan)
            answered = True
        except (BusyError, RolledBackError):
            answered = True
            raise
        except UnreachableError as error:
            raise UnreachableError(f"{error} (in state '{self._state}' of the deploy)") from None
        except BaseException:
            answered = self._report_end(lock.token)
            raise
        finally:
            lock.end(answered)
        return release

    def _negotiate_plan(self) -> DeployPlan:
        """Asks the board for its plan; sends the manifest and its signature if the board lacks
        them.

        Rejects early, before any file is sent, whatever the board itself would reject.
        """
        self._enter_state("probe")
        answer = self._ask_first()
        manifest = self._bundle.manifest
        self.check(probed(answer["probe"]))
        check_probe(self._board.name, answer["probe"], manifest)
        self._enter_state("plan")
        if answer["plan"] is None:
            if self._own and not (answer["trust"]["keys"] or answer["trust"]["unsigned"]):
                enroll_host(self._board)
            # The manifest goes last: if it is present, so is its signature.
            if self._bundle.signature:
                self._upload(SIGNATURE, self._bundle.signature)
            self._upload(MANIFEST, manifest.to_json())
            answer = self._request_plan("--sent")
        if answer["plan"] is None or answer["plan"]["release"] != manifest.id:
            raise TransferError(
                f"board '{self._board.name}': expected a plan for release {manifest.id}, "
                "found none; deploy again"
            )
        return plan_of(answer, manifest)

    def _ask_first(self) -> Document:
        """Returns the board's plan, for the bundle including the board's application if it keeps
        one."""
        if self._bundle.manifest.application or not self._keeps_application:
            return self._request_plan()
        answer = self._request_plan("--unless-application")
        if answer["application"]:
            if kept := deployed_application(self._board):
                self._bundle = with_application(self._bundle, kept)
            answer = self._request_plan()
        return answer

    def _request_plan(self, *more: str) -> Document:
        """Returns the board's plan; takes over the lock of a dead deploy of this host."""
        arguments = ["plan", self._bundle.manifest.id, *self._options, *more]
        dead = ""
        while True:
            try:
                answer = self._board.call(*arguments, deadline=self._seconds_left())
                if dead:
                    forget(dead)
                return answer
            except BusyError as error:
                if dead or not is_stale(error.holder):
                    raise
                dead = error.holder
                arguments += ["--take-over", dead]
            except LinkLostError:
                if self._seconds_left() <= _SOON:
                    raise

    def _transfer_files(self, plan: DeployPlan) -> None:
        self._enter_state("transfer")
        self._ends += plan.send_bytes / SLOWEST_BYTES_PER_SECOND
        done = 0

        def on_bytes(count: int) -> None:
            nonlocal done
            done += count
            self._progress(DeployProgress("transfer", done, plan.send_bytes, plan.release))

        for path in plan.send:
            self._upload(path, bytes(self._bundle.files[path]), on_bytes)

    def _upload(
        self, path: str, data: bytes, on_bytes: Callable[[int], None] | None = None
    ) -> None:
        folder = f"{self._board.root}/incoming/{self._bundle.manifest.id}".removeprefix("./")
        self._board.transport.put(
            data, f"{folder}/{path}", deadline=self._seconds_left(), on_bytes=on_bytes
        )

    def _run_board_states(self, health_seconds: int) -> Document:
        """Runs the board's states in one call; the host enforces a separate deadline for each."""
        seconds = {name: self._deadlines[name] for name in states.ON_BOARD}
        seconds["health"] += health_seconds
        ends = time.monotonic() + sum(seconds.values())
        with _StateTimeout(self._board.transport, seconds) as watch:

            def on_line(line: str) -> None:
                if (state := _parse_state_line(line)) is not None:
                    watch.enter(state)
                    if state != self._state:
                        self._enter_state(state)

            def call() -> Document:
                arguments = ["apply", self._bundle.manifest.id, "--seconds", str(health_seconds)]
                left = max(ends - time.monotonic(), _SOON)
                return self._board.call(*arguments, *self._options, deadline=left, on_line=on_line)

            watch.enter(states.ON_BOARD[0])
            self._enter_state(states.ON_BOARD[0])  # the board may act even if its lines get lost
            try:
                return call()
            except LinkLostError:
                return self._apply_again(call, ends)

    def _apply_again(self, call: Callable[[], Document], ends: float) -> Document:
        """Asks for the outcome after a link loss: the board continued on its own."""
        while True:
            try:
                self._wait_for_board(ends)
                outcome = call()
            except LinkLostError:
                time.sleep(_POLL_SECONDS)
                continue
            except TransferError:
                failure = self._query_status(ends)["last_failure"]
                if failure is None or failure.get("release") != self._bundle.manifest.id:
                    raise
                error = RolledBackError(
                    f"board '{self._board.name}': release {failure['release']} was rolled back "
                    f"({failure.get('reason', 'no reason recorded')}); see: edgekit status"
                )
                error.log = failure.get("log", "")
                raise error from None
            # For the second call, the release that the first one committed is already intact and
            # current.
            return {**outcome, "end": states.COMMITTED}

    def _wait_for_board(self, ends: float) -> None:
        while self._query_status(ends)["deploying"]:
            time.sleep(_POLL_SECONDS)

    def _query_status(self, ends: float) -> Document:
        left = ends - time.monotonic()
        if left <= 0:
            raise UnreachableError(
                f"board '{self._board.name}': expected the deploy to end, found it still "
                "running; see: edgekit status"
            )
        return self._board.call("status", "--quick", deadline=left)

    def _report_end(self, token: str) -> bool:
        """Reports the end of this deploy to the board; returns whether the board received it."""
        try:
            self._board.call("leave", "--session", token, deadline=_LEAVE_SECONDS)
        except (EdgekitError, OSError):
            return False
        return True

    def _enter_state(self, state: str) -> None:
        self._state, self._ends = state, time.monotonic() + self._deadlines[state]
        self._progress(DeployProgress(state, release=self._bundle.manifest.id))

    def _seconds_left(self) -> float:
        """Returns the seconds left in this state."""
        return max(self._ends - time.monotonic(), _SOON)

    def _to_release(self, outcome: Document, plan: DeployPlan) -> Release:
        changed = outcome["end"] != states.UNCHANGED
        return Release(
            id=self._bundle.manifest.id,
            model=self._bundle.manifest.model.name,
            changed=changed,
            previous=outcome["previous"],
            sent_bytes=plan.send_bytes if changed else 0,
            state_ms={row["state"]: row["ms"] for row in outcome.get("states", ())},
            health=outcome.get("health", {}),
            application=plan.application,
            left_application=plan.left_application,
        )


def _parse_state_line(line: str) -> str | None:
    """Parses the runtime's progress lines, `state NAME`."""
    word, _, state = line.partition(" ")
    return state if word == "state" and state in states.BY_NAME else None


def plan_of(answer: Document, manifest: Manifest) -> DeployPlan:
    """Builds the plan for deploying `manifest` from a board's answer."""
    found, board = answer["plan"], answer["probe"]
    send = frozenset(found["send"])
    walked = () if found["unchanged"] else tuple(s.name for s in states.STATES[2:])
    application = manifest.application.name if manifest.application else ""
    return DeployPlan(
        release=found["release"],
        replaces=found["current"],
        unchanged=found["unchanged"],
        states=("probe", "plan", *walked),
        files=tuple(PlannedFile(f.path, f.bytes, f.path in send) for f in manifest.files),
        disk_needed_bytes=found["disk_needed_bytes"],
        disk_free_bytes=board["disk_free_bytes"],
        memory_needed_bytes=manifest.most_memory().total,
        memory_available_bytes=board["available_bytes"],
        application=application,
        left_application="" if application else answer["application"],
    )


def check_probe(board: str, probe: Document, manifest: Manifest) -> None:
    """IncompatibleError if the board's probe shows that it cannot run the release."""
    found = probed(probe)
    check_folder(board, found)
    check_c_library(board, found)
    facts = BoardFacts(
        probe["machine"],
        frozenset(probe["features"]),
        probe["vlen_bits"],
        probe["available_bytes"],
        None,
    )
    try:
        check_fit(manifest.board, manifest.most_memory(), facts)
    except DeviceIncompatibleError as error:
        raise IncompatibleError(f"board '{board}': {error}") from None


class _StateTimeout:
    """Closes the connection when the board stays in one state for too long.

    The interrupted call then raises UnreachableError, whatever exception it would have raised
    itself.
    """

    def __init__(self, transport: Transport, seconds: Mapping[str, float]) -> None:
        self._transport = transport
        self._seconds = seconds
        self._timer: threading.Timer | None = None
        self._late = ""

    def __enter__(self) -> _StateTimeout:
        return self

    def enter(self, state: str) -> None:
        """Restarts the timer for `state`, which the board has entered."""
        self._cancel_timer()
        # A cancelled timer's thread may live on for a while and must not keep the connection open.
        late = functools.partial(_close_late, weakref.ref(self), state)
        self._timer = threading.Timer(self._seconds[state], late)
        self._timer.daemon = True
        self._timer.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cancel_timer()
        if self._late and isinstance(error, Exception):
            raise UnreachableError(
                f"board '{self._transport.board}': expected '{self._late}' to end within "
                f"{self._seconds[self._late]:g} s, found it still running; "
                "see what the board is doing, then deploy again"
            ) from None

    def on_timeout(self, state: str) -> None:
        """Closes the connection; called by the timer."""
        self._late = state
        self._transport.close()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def _close_late(watched: weakref.ref[_StateTimeout], state: str) -> None:
    if (timeout := watched()) is not None:
        timeout.on_timeout(state)
