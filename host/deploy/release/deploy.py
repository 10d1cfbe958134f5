"""A deploy, walked along the table of states that host and board share."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from edgekit.device.runtime.agent import states
from edgekit.device.runtime.agent.fit import BoardFacts, check_fit
from edgekit.device.runtime.agent.manifest import MANIFEST, SIGNATURE, Manifest
from edgekit.device.runtime.agent.probe import Probe
from edgekit.device.runtime.errors import IncompatibleError as DeviceIncompatibleError
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.release.answers import Document
from edgekit.host.deploy.release.application import deployed_application, with_application
from edgekit.host.deploy.release.enroll import enroll_host
from edgekit.host.deploy.release.probed import probed
from edgekit.host.deploy.release.runtime import SLOWEST_BYTES_PER_SECOND, BoardCalls
from edgekit.host.deploy.release.session import DeployLock, forget, is_stale, owner
from edgekit.host.deploy.release.types import DeployPlan, OnStep, PlannedFile, Release, Step
from edgekit.host.deploy.release.watch import Watch
from edgekit.host.deploy.transport import LinkLostError
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
_LEAVE_SECONDS = 10.0  # on the way out of a failed deploy nobody waits long
_POLL_SECONDS = 0.5
_SOON = 0.05  # for a call whose time is up


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
    """Puts `bundle` into service on the board, as the model that `board` names.

    With `application`, a bundle without one is given that of what is deployed. With `own`, a board
    that trusts no key yet is enrolled with this host's. `deadlines` are the seconds of each state.
    `check` may refuse the board for what it says it is, before it is sent anything.
    Raises InputError if that application is another host's, IncompatibleError if the board cannot
    run the bundle, TransferError if the signature is not trusted or files are damaged, BusyError if
    another deploy is on its way, RolledBackError if the release was unhealthy, UnreachableError
    naming the state if the board stops answering. Whatever is raised, KeyboardInterrupt too: unless
    the new release was committed, the old one runs, and what was sent stays for the next attempt.
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
        living = DeployLock()
        self._options += ["--session", living.token, "--owner", owner()]
        told = False
        try:
            plan = self._plan()
            if plan.unchanged:
                release = self._release({"end": states.UNCHANGED, "previous": None}, plan)
            else:
                self._transfer(plan)
                release = self._release(self._apply(health_seconds), plan)
            told = True
        except (BusyError, RolledBackError):
            told = True
            raise
        except UnreachableError as error:
            raise UnreachableError(f"{error} (in state '{self._state}' of the deploy)") from None
        except BaseException:
            told = self._leave(living.token)
            raise
        finally:
            living.end(told)
        return release

    def _plan(self) -> DeployPlan:
        """Asks the board; sends it the manifest, with its signature, if it has none of that id.

        Refuses early, before a file is sent, what the board would refuse as well.
        """
        self._enter("probe")
        answer = self._ask_first()
        manifest = self._bundle.manifest
        self.check(probed(answer["probe"]))
        check_probe(self._board.name, answer["probe"], manifest)
        self._enter("plan")
        if answer["plan"] is None:
            if self._own and not (answer["trust"]["keys"] or answer["trust"]["unsigned"]):
                enroll_host(self._board)
            # The manifest last: where it is, its signature is.
            if self._bundle.signature:
                self._put(SIGNATURE, self._bundle.signature)
            self._put(MANIFEST, manifest.to_json())
            answer = self._ask("--sent")
        if answer["plan"] is None or answer["plan"]["release"] != manifest.id:
            raise TransferError(
                f"board '{self._board.name}': expected a plan for release {manifest.id}, "
                "found none; deploy again"
            )
        return plan_of(answer, manifest)

    def _ask_first(self) -> Document:
        """The board's plan, for the bundle with the board's application if it is to have it."""
        if self._bundle.manifest.application or not self._keeps_application:
            return self._ask()
        answer = self._ask("--unless-application")
        if answer["application"]:
            if kept := deployed_application(self._board):
                self._bundle = with_application(self._bundle, kept)
            answer = self._ask()
        return answer

    def _ask(self, *more: str) -> Document:
        """The board's plan. What a dead deploy of this host left locked is taken over."""
        arguments = ["plan", self._bundle.manifest.id, *self._options, *more]
        dead = ""
        while True:
            try:
                answer = self._board.call(*arguments, deadline=self._left())
                if dead:
                    forget(dead)
                return answer
            except BusyError as error:
                if dead or not is_stale(error.holder):
                    raise
                dead = error.holder
                arguments += ["--take-over", dead]
            except LinkLostError:
                if self._left() <= _SOON:
                    raise

    def _transfer(self, plan: DeployPlan) -> None:
        self._enter("transfer")
        self._ends += plan.send_bytes / SLOWEST_BYTES_PER_SECOND
        done = 0

        def on_bytes(count: int) -> None:
            nonlocal done
            done += count
            self._progress(Step("transfer", done, plan.send_bytes, plan.release))

        for path in plan.send:
            self._put(path, self._bundle.files[path], on_bytes)

    def _put(self, path: str, data: bytes, on_bytes: Callable[[int], None] | None = None) -> None:
        folder = f"{self._board.root}/incoming/{self._bundle.manifest.id}".removeprefix("./")
        self._board.transport.put(
            data, f"{folder}/{path}", deadline=self._left(), on_bytes=on_bytes
        )

    def _apply(self, health_seconds: int) -> Document:
        """The board's states in one call; each has its own deadline, watched from here."""
        seconds = {name: self._deadlines[name] for name in states.ON_BOARD}
        seconds["health"] += health_seconds
        ends = time.monotonic() + sum(seconds.values())
        with Watch(self._board.transport, seconds) as watch:

            def on_line(line: str) -> None:
                if (state := _announced(line)) is not None:
                    watch.enter(state)
                    if state != self._state:
                        self._enter(state)

            def call() -> Document:
                arguments = ["apply", self._bundle.manifest.id, "--seconds", str(health_seconds)]
                left = max(ends - time.monotonic(), _SOON)
                return self._board.call(*arguments, *self._options, deadline=left, on_line=on_line)

            watch.enter(states.ON_BOARD[0])
            self._enter(states.ON_BOARD[0])  # once it is asked, the board may do it unheard
            try:
                return call()
            except LinkLostError:
                return self._apply_again(call, ends)

    def _apply_again(self, call: Callable[[], Document], ends: float) -> Document:
        """Asks for the outcome after a cut link: the board went on by itself."""
        while True:
            try:
                self._wait_for_board(ends)
                outcome = call()
            except LinkLostError:
                time.sleep(_POLL_SECONDS)
                continue
            except TransferError:
                failure = self._status(ends)["last_failure"]
                if failure is None or failure.get("release") != self._bundle.manifest.id:
                    raise
                error = RolledBackError(
                    f"board '{self._board.name}': release {failure['release']} was rolled "
                    f"back ({failure.get('reason', 'no reason kept')}); see: edgekit status"
                )
                error.log = failure.get("log", "")
                raise error from None
            # What the first call committed is whole and current for the second one.
            return {**outcome, "end": states.COMMITTED}

    def _wait_for_board(self, ends: float) -> None:
        while self._status(ends)["deploying"]:
            time.sleep(_POLL_SECONDS)

    def _status(self, ends: float) -> Document:
        left = ends - time.monotonic()
        if left <= 0:
            raise UnreachableError(
                f"board '{self._board.name}': expected the deploy to end, found it still "
                "running; see: edgekit status"
            )
        return self._board.call("status", "--quick", deadline=left)

    def _leave(self, token: str) -> bool:
        """Tells the board that this deploy is over; whether it heard."""
        try:
            self._board.call("leave", "--session", token, deadline=_LEAVE_SECONDS)
        except (EdgekitError, OSError):
            return False
        return True

    def _enter(self, state: str) -> None:
        self._state, self._ends = state, time.monotonic() + self._deadlines[state]
        self._progress(Step(state, release=self._bundle.manifest.id))

    def _left(self) -> float:
        """Seconds that the state still has."""
        return max(self._ends - time.monotonic(), _SOON)

    def _release(self, outcome: Document, plan: DeployPlan) -> Release:
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


def _announced(line: str) -> str | None:
    """The runtime announces the states it enters as lines `state NAME`."""
    word, _, state = line.partition(" ")
    return state if word == "state" and state in states.BY_NAME else None


def plan_of(answer: Document, manifest: Manifest) -> DeployPlan:
    """What a board's answer says of the deploy of `manifest`."""
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
    """IncompatibleError if the board, by what it says it is, cannot run the release."""
    facts = BoardFacts(
        probe["machine"],
        frozenset(probe["features"]),
        probe["vlen_bits"],
        probe["available_bytes"],
    )
    try:
        check_fit(manifest.board, manifest.most_memory(), facts)
    except DeviceIncompatibleError as error:
        raise IncompatibleError(f"board '{board}': {error}") from None
