"""A deploy, walked along the table of states that host and board share."""

from __future__ import annotations

from collections.abc import Callable

from edgekit.device import states
from edgekit.device.errors import IncompatibleError as DeviceIncompatibleError
from edgekit.device.fit import BoardFacts, check_fit
from edgekit.device.manifest import MANIFEST, SIGNATURE, Manifest
from edgekit.host.bundle import Bundle
from edgekit.host.errors import IncompatibleError
from edgekit.host.release.runtime import BoardRuntime, Document
from edgekit.host.release.types import DeployPlan, OnStep, Release, Step
from edgekit.host.transport import Transport

HEALTH_SECONDS = 60


def deploy(
    transport: Transport,
    bundle: Bundle,
    *,
    progress: OnStep = lambda _: None,
    allow_downgrade: bool = False,
    health_seconds: int = HEALTH_SECONDS,
) -> Release:
    """Puts `bundle` into service on the board.

    Raises IncompatibleError if the board cannot run it, TransferError if files are damaged, do
    not fit or another deploy is running, RolledBackError if the release was unhealthy.
    """
    return _Deploy(transport, bundle, progress, allow_downgrade, health_seconds).run()


def plan_deploy(transport: Transport, bundle: Bundle, allow_downgrade: bool = False) -> DeployPlan:
    """What `deploy` would send, found out without changing what runs; raises as deploy does."""
    walk = _Deploy(transport, bundle, lambda _: None, allow_downgrade, HEALTH_SECONDS)
    walk.probe()
    return walk.plan()


class _Deploy:
    def __init__(
        self,
        transport: Transport,
        bundle: Bundle,
        progress: OnStep,
        allow_downgrade: bool,
        health_seconds: int,
    ) -> None:
        self._transport = transport
        self._runtime = BoardRuntime(transport)
        self._bundle = bundle
        self._progress = progress
        self._options = ["--allow-downgrade"] if allow_downgrade else []
        self._health_seconds = health_seconds
        self._folder = f"incoming/{bundle.manifest.id}"

    def run(self) -> Release:
        self._enter("probe")
        self.probe()
        self._enter("plan")
        plan = self.plan()
        if plan.unchanged:
            self._transport.remove(self._folder, deadline=_deadline("plan"))
            return self._release({"end": states.UNCHANGED, "previous": None}, plan)
        self._enter("transfer")
        self._transfer(plan)
        return self._release(self._apply(), plan)

    def probe(self) -> None:
        """Refuses early, before a byte is sent, what the board would refuse as well."""
        board = self._runtime.call("probe", deadline=_deadline("probe"))
        _check_probe(self._transport.board, board, self._bundle.manifest)

    def plan(self) -> DeployPlan:
        deadline = _deadline("plan")
        manifest = self._bundle.manifest
        self._transport.put(manifest.to_json(), f"{self._folder}/{MANIFEST}", deadline=deadline)
        found = self._runtime.call("plan", manifest.id, *self._options, deadline=deadline)
        return DeployPlan(
            found["release"],
            found["unchanged"],
            tuple(found["send"]),
            found["send_bytes"],
            found["there_bytes"],
        )

    def _transfer(self, plan: DeployPlan) -> None:
        done = 0

        def on_bytes(count: int) -> None:
            nonlocal done
            done += count
            self._progress(Step("transfer", done, plan.send_bytes))

        deadline = _deadline("transfer")
        for path in plan.send:
            data = self._bundle.files[path]
            self._transport.put(
                data, f"{self._folder}/{path}", deadline=deadline, on_bytes=on_bytes
            )
        if self._bundle.signature:
            self._transport.put(
                self._bundle.signature, f"{self._folder}/{SIGNATURE}", deadline=deadline
            )

    def _apply(self) -> Document:
        deadline = sum(_deadline(name) for name in states.ON_BOARD) + self._health_seconds
        return self._runtime.call(
            "apply",
            self._bundle.manifest.id,
            "--seconds",
            str(self._health_seconds),
            *self._options,
            deadline=deadline,
            on_line=_state_lines(self._enter),
        )

    def _enter(self, state: str) -> None:
        self._progress(Step(state))

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
        )


def _deadline(state: str) -> float:
    return states.BY_NAME[state].deadline_seconds


def _state_lines(enter: Callable[[str], None]) -> Callable[[str], None]:
    """The runtime announces the states it enters as lines `state NAME`."""

    def on_line(line: str) -> None:
        word, _, state = line.partition(" ")
        if word == "state" and state in states.BY_NAME:
            enter(state)

    return on_line


def _check_probe(board: str, probe: Document, manifest: Manifest) -> None:
    facts = BoardFacts(
        probe["machine"],
        frozenset(probe["features"]),
        probe["vlen_bits"],
        probe["available_bytes"],
    )
    try:
        check_fit(manifest.board, manifest.memory, facts)
    except DeviceIncompatibleError as error:
        raise IncompatibleError(f"board '{board}': {error}") from None
