"""A board: what is known of it, and what can be done with it."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import PlacementRequest
from edgekit.host.deploy import release
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.deploy.release import (
    ApplicationState,
    Benchmark,
    BoardCalls,
    BoardStatus,
    DeployPlan,
    OnStep,
    Release,
    Session,
    Timings,
)
from edgekit.host.deploy.transport import SubdirTransport, Transport

Arrays = Mapping[str, NDArray[Any]]


class Board(BoardCalls):
    """A board. Arrays go in and come out as NumPy arrays, named as in the model.

    `own`: it belongs to this host alone, and the first deploy makes it trust the host's signing
    key. `profile`: what models are compiled for. `emulated`: times on it are an emulator's, and
    say nothing of a real board's latency; `counting`: its instructions can be counted then.
    `threads`: how many models run with by default, on the cores of `cluster` ("big", "little",
    "all", a kind of core); None and "" leave it to each release. `model_name`: which of the models
    on it, if several are deployed side by side.
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
        """The same board, for the model deployed as `name` beside others; InputError if no model
        can have that name. None is the default one."""
        release.check_name(name)
        return self._with(model_name=name or "")

    def over(self, transport: Transport) -> Board:
        """The same board, reached through another transport."""
        return self._with(transport=transport)

    def _with(self, **changed: Any) -> Board:
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

    def request(self, threads: int | None = None, cluster: str = "") -> PlacementRequest:
        """What to ask of a release here: the arguments, else what the inventory says."""
        return PlacementRequest(threads, cluster).over(PlacementRequest(self.threads, self.cluster))

    @contextlib.contextmanager
    def temporary(self) -> Iterator[Board]:
        """The same board with nothing deployed; what gets deployed there is removed at the end."""
        folder = f"aside/{secrets.token_hex(8)}"
        below = SubdirTransport(self.transport, folder)  # a folder that is there for this alone
        try:
            yield self._with(transport=below, own=True, model_name="")
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
        """Puts a bundle (or an .ekb file) into service, with the `application` that is installed
        there; see edgekit.host.deploy.release.deploy."""
        found = release.deploy(
            self,
            _bundle(bundle),
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
        """What `deploy` would do; nothing is written, here or on the board."""
        return release.plan_deploy(self, _bundle(bundle), allow_downgrade, application)

    def open(self, threads: int | None = None, cluster: str = "") -> Session:
        """A session: `with board.open() as s: outputs, timings = s.run(inputs)`.

        The model is loaded once, on the board; a streaming model keeps its state from run to run.
        """
        return release.open_session(self, self.request(threads, cluster))

    def run(
        self, inputs: Arrays, threads: int | None = None, cluster: str = ""
    ) -> tuple[dict[str, NDArray[Any]], Timings]:
        """One inference of what is deployed: outputs and times. For several, `open` a session."""
        with self.open(threads, cluster) as session:
            return session.run(inputs)

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
        """Latency of what is deployed; see edgekit.host.deploy.release.bench."""
        return release.bench(
            self,
            inputs,
            self.request(threads, cluster),
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
        """Puts the application in `folder` into one release with `bundle`, or with the model that
        is deployed. Start it with `start_application`."""
        application = release.read_application(Path(folder))
        under = release.deployed_bundle(self) if bundle is None else _bundle(bundle)
        return self.deploy(release.with_application(under, application), progress=progress).release

    def start_application(self) -> ApplicationState:
        """Starts what was installed and waits for its first sign of life. RolledBackError if it
        fails again and again and the release before is back."""
        return release.start_application(self)

    def stop_application(self) -> ApplicationState:
        """Stops it until it is started again."""
        return release.stop_application(self)

    def application_status(self) -> ApplicationState:
        """How it is."""
        return release.application_status(self)

    def application_log(self, lines: int = 40) -> tuple[str, ...]:
        """The last lines that it printed."""
        return release.application_log(self, lines)

    def status(self) -> BoardStatus:
        """What runs and what ran before."""
        return release.status(self)

    def verify(self) -> BoardStatus:
        """The status, if every file is whole; see edgekit.host.deploy.release.verify."""
        return release.verify(self)

    def rollback(self) -> BoardStatus:
        """Puts the previous release back into service."""
        return release.rollback(self)

    def remove(self) -> tuple[str, ...]:
        """Takes this model off the board; see edgekit.host.deploy.release.remove."""
        return release.remove(self)


@dataclass(frozen=True)
class Deployed:
    """A board just after a deploy, with what the deploy did."""

    device: Board
    release: Release

    def run(
        self, inputs: Arrays, threads: int | None = None
    ) -> tuple[dict[str, NDArray[Any]], Timings]:
        """Runs the model once, as Board.run does."""
        return self.device.run(inputs, threads)

    def bench(self, inputs: Arrays | None = None, *, threads: int | None = None) -> Benchmark:
        """Measures the model as Board.bench does, with its defaults."""
        return self.device.bench(inputs, threads=threads)


def _bundle(bundle: Bundle | str | Path) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else Bundle.read(Path(bundle))
