"""A board: its known properties and the operations on it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.device.runtime.agent.specs import PlacementRequest
from edgekit.host.deploy import release
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.release import (
    ApplicationState,
    Benchmark,
    BoardCalls,
    BoardStatus,
    DeployPlan,
    InferenceSession,
    OnStep,
    Release,
    Timings,
)
from edgekit.host.deploy.transport import SubdirTransport, Transport

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from edgekit.host.deploy.release.types import Arrays


class Board(BoardCalls):
    """A board. Inputs and outputs are NumPy arrays, named as in the model.

    `own`: the board belongs to this host alone, so the first deploy enrolls the host's signing key.
    `profile`: the compile target. `emulated`: timings come from an emulator and do not predict a
    real board's latency; `counting`: an emulated board can count instructions. `threads`: default
    number of threads, on the cores of `cluster` ("big", "little", "all", or a core type); None and
    "" leave the choice to each release. `model_name`: selects one of several models deployed side
    by side.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        profile: str = "local",
        own: bool = False,
        emulated: bool = False,
        counting: bool = True,
        threads: int | None = None,
        cluster: str = "",
        model_name: str = "",
    ) -> None:
        super().__init__(transport, model_name)
        self.profile = profile
        self.own = own
        self.emulated = emulated
        self.counting = counting
        self.threads = threads
        self.cluster = cluster

    def named(self, name: str | None) -> Board:
        """Returns the same board bound to the model deployed as `name`; None selects the default
        model.

        Raises InputError if `name` is not a valid model name.
        """
        release.check_name(name)
        return self._copy_with(model_name=name or "")

    def over(self, transport: Transport) -> Board:
        """Returns the same board, reached through another transport."""
        return self._copy_with(transport=transport)

    def _copy_with(self, **changed: Any) -> Board:
        known = {
            "transport": self.transport,
            "profile": self.profile,
            "own": self.own,
            "emulated": self.emulated,
            "counting": self.counting,
            "threads": self.threads,
            "cluster": self.cluster,
            "model_name": self.model_name,
        }
        return Board(**{**known, **changed})

    def placement_request(self, threads: int | None = None, cluster: str = "") -> PlacementRequest:
        """Returns the placement to request: the arguments, falling back to the inventory's
        settings."""
        return PlacementRequest(threads, cluster).over(PlacementRequest(self.threads, self.cluster))

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Board]:
        """Yields the same board with nothing deployed; anything deployed there is removed at the
        end."""
        folder = f"temporary/{secrets.token_hex(8)}"
        below = SubdirTransport(self.transport, folder)  # a folder used for nothing else
        try:
            yield self._copy_with(transport=below, own=True, model_name="")
        finally:
            self.transport.remove(folder, deadline=release.QUICK_SECONDS)

    def deploy(
        self,
        bundle: Bundle | str | Path,
        *,
        progress: OnStep = lambda _: None,
        allow_downgrade: bool = False,
        application: bool = True,
    ) -> Deployed:
        """Deploys a bundle (or an .ekb file), keeping the installed application if `application` is
        set.

        See edgekit.host.deploy.release.deploy.
        """
        found = release.deploy(
            self,
            _as_bundle(bundle),
            progress=progress,
            allow_downgrade=allow_downgrade,
            own=self.own,
            application=application,
        )
        return Deployed(self, found)

    def plan(
        self,
        bundle: Bundle | str | Path,
        *,
        allow_downgrade: bool = False,
        application: bool = True,
    ) -> DeployPlan:
        """Previews `deploy` without writing anything, here or on the board."""
        return release.plan_deploy(self, _as_bundle(bundle), allow_downgrade, application)

    def open(self, threads: int | None = None, cluster: str = "") -> InferenceSession:
        """Opens a session: `with board.open() as s: outputs, timings = s.run(inputs)`.

        The board loads the model once; a streaming model keeps its state between runs.
        """
        return release.open_session(self, self.placement_request(threads, cluster))

    def run(
        self,
        inputs: Arrays,
        threads: int | None = None,
        cluster: str = "",
        signature: str = "",
    ) -> tuple[dict[str, NDArray[Any]], Timings]:
        """Runs one inference of the deployed model; returns outputs and timings.

        `signature` names one of a model that has several; without it, the inputs decide. For
        several inferences, `open` a session.
        """
        with self.open(threads, cluster) as session:
            return session.run(inputs, signature)

    def bench(
        self,
        inputs: Arrays | None = None,
        *,
        threads: int | None = None,
        cluster: str = "",
        count: int = 0,
        warmup: int = 3,
        seconds: int = 2,
        variant: int = 0,
        hotspots: bool = False,
    ) -> Benchmark:
        """Measures the latency of the deployed model; see edgekit.host.deploy.release.bench."""
        return release.bench(
            self,
            inputs,
            self.placement_request(threads, cluster),
            count=count,
            warmup=warmup,
            seconds=seconds,
            variant=variant,
            hotspots=hotspots,
        )

    def install(
        self,
        folder: str | Path,
        bundle: Bundle | str | Path | None = None,
        *,
        progress: OnStep = lambda _: None,
    ) -> Release:
        """Deploys the application in `folder` as one release with `bundle` or the deployed model.

        Start it with `start_application`.
        """
        application = release.read_application(Path(folder))
        under = release.deployed_bundle(self) if bundle is None else _as_bundle(bundle)
        return self.deploy(release.with_application(under, application), progress=progress).release

    def start_application(self) -> ApplicationState:
        """Starts the installed application and waits until it reports ready.

        Raises RolledBackError if it fails repeatedly and the previous release was restored.
        """
        return release.start_application(self)

    def stop_application(self) -> ApplicationState:
        """Stops the application until it is started again."""
        return release.stop_application(self)

    def application_status(self) -> ApplicationState:
        """Returns the application's state."""
        return release.application_status(self)

    def application_log(self, lines: int = 40) -> tuple[str, ...]:
        """Returns the last `lines` lines of the application's output."""
        return release.application_log(self, lines)

    def status(self) -> BoardStatus:
        """Returns the running and the previous release."""
        return release.status(self)

    def verify(self) -> BoardStatus:
        """Checks every file and returns the status; see edgekit.host.deploy.release.verify."""
        return release.verify(self)

    def rollback(self) -> BoardStatus:
        """Rolls back to the previous release."""
        return release.rollback(self)

    def remove(self) -> tuple[str, ...]:
        """Removes this model from the board; see edgekit.host.deploy.release.remove."""
        return release.remove(self)


@dataclass(frozen=True)
class Deployed:
    """A board right after a deploy, with the deploy's result."""

    device: Board
    release: Release

    def run(
        self, inputs: Arrays, threads: int | None = None, signature: str = ""
    ) -> tuple[dict[str, NDArray[Any]], Timings]:
        """Runs the model once; see Board.run."""
        return self.device.run(inputs, threads, signature=signature)

    def bench(self, inputs: Arrays | None = None, *, threads: int | None = None) -> Benchmark:
        """Measures the model with Board.bench's defaults."""
        return self.device.bench(inputs, threads=threads)


def _as_bundle(bundle: Bundle | str | Path) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else Bundle.read(Path(bundle))
