"""The Python API: compile a model, connect to a board, deploy, run, time."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

from edgekit.device.runtime.agent.specs import Wish
from edgekit.host.compiler.options import CompileOptions, Tie, WeightBits, variants_of
from edgekit.host.deploy import release
from edgekit.host.deploy.bundle import Bundle, build_bundle, sign_bundle
from edgekit.host.deploy.connections import Via, connect_to, profile_of
from edgekit.host.deploy.release import (
    ApplicationState,
    Benchmark,
    BoardStatus,
    DeployPlan,
    OnStep,
    Release,
    Session,
    Timings,
)
from edgekit.host.deploy.transport import Beneath, Transport
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import UnknownBoardError, load_board

Arrays = Mapping[str, NDArray[Any]]


def compile_model(
    model: str | Path,
    board: str = "local",
    *,
    input_shapes: Mapping[str, tuple[int, ...] | Sequence[tuple[int, ...]]] | None = None,
    memory_limit: int | None = None,
    weights: WeightBits | None = None,
    states: Mapping[str, str] | None = None,
) -> Bundle:
    """The signed bundle of a .tflite, .onnx or .prototxt model for a board or a board profile.

    `input_shapes` are those of inputs that a model leaves open, or others for Caffe's: one shape,
    or a list of shapes, all of which go into one release and are chosen by the arrays that come in.
    `memory_limit` are the bytes that an operator and the arena may take, by default what the board
    has. `weights` is that of `edgekit compile`. `states`: by input the output
    that the release keeps for it from run to run, as `--state` does.

    InputError if it cannot be compiled, or not signed for want of ssh-keygen.
    """
    from edgekit.host.compiler.driver import compile_variants
    from edgekit.host.compiler.explain import explained_variants
    from edgekit.host.deploy.explanations import remember

    try:
        profile = load_board(profile_of(board))
    except UnknownBoardError as error:
        raise InputError(str(error)) from None
    shapes, *more = variants_of({n: _several(s) for n, s in (input_shapes or {}).items()})
    options = CompileOptions(
        shapes=shapes,
        more_shapes=tuple(more),
        memory_limit=memory_limit,
        weights=weights,
        states=tuple(Tie(name, output) for name, output in (states or {}).items()),
    )
    first, *others = compile_variants(Path(model), profile, options=options)
    bundle = sign_bundle(build_bundle(first, profile, others=others))
    remember(bundle.manifest.id, explained_variants(first, others))
    return bundle


def _several(
    shapes: tuple[int, ...] | Sequence[tuple[int, ...]],
) -> tuple[tuple[int, ...], ...]:
    """One shape, or several, as several."""
    if all(isinstance(size, int) for size in shapes):
        return (cast(tuple[int, ...], tuple(shapes)),)
    return tuple(tuple(shape) for shape in cast(Sequence[tuple[int, ...]], shapes))


def connect(board: str = "local", *, transport: Via | None = None) -> Device:
    """The board of that name: this machine, one of the inventory, or a virtual one that is up.

    `transport`, "ssh" or "serial", is used instead of the inventory's. InputError if there is no
    such board. Nothing is sent before the first call that needs the board.
    """
    found = connect_to(board, transport)
    return Device(
        found.transport,
        profile=found.profile,
        own=found.own,
        emulated=found.emulated,
        threads=found.threads,
        cluster=found.cluster,
    )


class Device:
    """A board. Arrays go in and come out as NumPy arrays, named as in the model.

    `own`: it belongs to this host alone, and the first deploy makes it trust the host's signing
    key. `profile`: what models are compiled for. `emulated`: times on it are an emulator's, and
    say nothing of a real board's latency. `threads`: how many models run with unless told, on
    the cores of `cluster` ("big", "little", "all", a kind of core); None and "" leave it to each
    release.
    `model_name`: which of the models on it, if several are deployed side by side.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        profile: str = "local",
        own: bool = False,
        emulated: bool = False,
        threads: int | None = None,
        cluster: str = "",
        model_name: str = "",
    ) -> None:
        self.transport = transport
        self.model_name = model_name
        self.profile = profile
        self.emulated = emulated
        self.threads = threads
        self.cluster = cluster
        self._own = own

    @property
    def name(self) -> str:
        """The board's name."""
        return self.transport.board

    def named(self, name: str | None) -> Device:
        """The same board, for the model deployed as `name` beside others; InputError if no model
        can have that name. None is the default one."""
        release.check_name(name)
        return Device(
            self.transport,
            profile=self.profile,
            own=self._own,
            emulated=self.emulated,
            threads=self.threads,
            cluster=self.cluster,
            model_name=name or "",
        )

    def wish(self, threads: int | None = None, cluster: str = "") -> Wish:
        """What to ask of a release here: the arguments, else what the inventory says."""
        return Wish(threads, cluster).over(Wish(self.threads, self.cluster))

    @contextlib.contextmanager
    def aside(self) -> Iterator[Device]:
        """The same board with nothing deployed; what gets deployed there is removed at the end."""
        folder = f"aside/{secrets.token_hex(8)}"
        try:
            yield Device(
                Beneath(self.transport, folder),
                profile=self.profile,
                own=True,  # a folder that is there for this alone
                emulated=self.emulated,
                threads=self.threads,
                cluster=self.cluster,
            )
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
            self.transport,
            _bundle(bundle),
            progress=progress,
            allow_downgrade=allow_downgrade,
            own=self._own,
            name=self.model_name,
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
        return release.plan_deploy(
            self.transport,
            _bundle(bundle),
            allow_downgrade,
            self.model_name,
            application,
        )

    def open(self, threads: int | None = None, cluster: str = "") -> Session:
        """A session: `with device.open() as s: outputs, timings = s.run(inputs)`.

        The model is loaded once, on the board; a streaming model keeps its state from run to run.
        """
        wish = self.wish(threads, cluster)
        return release.open_session(
            self.transport,
            threads=wish.threads,
            cluster=wish.cluster,
            name=self.model_name,
        )

    def run(
        self, inputs: Arrays, threads: int | None = None, cluster: str = ""
    ) -> tuple[dict[str, NDArray[Any]], Timings]:
        """One inference of what is deployed: outputs and times. For several, `open` a session."""
        wish = self.wish(threads, cluster)
        return release.run(
            self.transport,
            inputs,
            threads=wish.threads,
            cluster=wish.cluster,
            name=self.model_name,
        )

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
        wish = self.wish(threads, cluster)
        return release.bench(
            self.transport,
            inputs,
            threads=wish.threads,
            cluster=wish.cluster,
            count=count,
            warmup=warmup,
            seconds=seconds,
            variant=variant,
            name=self.model_name,
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
        under = (
            release.deployed_bundle(self.transport, self.model_name)
            if bundle is None
            else _bundle(bundle)
        )
        return self.deploy(release.with_application(under, application), progress=progress).release

    def start_application(self) -> ApplicationState:
        """Starts what was installed and waits for its first sign of life. RolledBackError if it
        fails again and again and the release before is back."""
        return release.start_application(self.transport, self.model_name)

    def stop_application(self) -> ApplicationState:
        """Stops it until it is started again."""
        return release.stop_application(self.transport, self.model_name)

    def application_status(self) -> ApplicationState:
        """How it is."""
        return release.application_status(self.transport, self.model_name)

    def application_log(self, lines: int = 40) -> tuple[str, ...]:
        """The last lines that it printed."""
        return release.application_log(self.transport, lines, self.model_name)

    def status(self) -> BoardStatus:
        """What runs and what ran before."""
        return release.status(self.transport, self.model_name)

    def verify(self) -> BoardStatus:
        """The status, if every file is whole; see edgekit.host.deploy.release.verify."""
        return release.verify(self.transport, self.model_name)

    def rollback(self) -> BoardStatus:
        """Puts the previous release back into service."""
        return release.rollback(self.transport, self.model_name)

    def remove(self) -> tuple[str, ...]:
        """Takes this model off the board; see edgekit.host.deploy.release.remove."""
        return release.remove(self.transport, self.model_name)


@dataclass(frozen=True)
class Deployed:
    """A device just after a deploy, with what the deploy did."""

    device: Device
    release: Release

    def run(
        self, inputs: Arrays, threads: int | None = None
    ) -> tuple[dict[str, NDArray[Any]], Timings]:
        """Runs the model once, as Device.run does."""
        return self.device.run(inputs, threads)

    def bench(self, inputs: Arrays | None = None, *, threads: int | None = None) -> Benchmark:
        """Measures the model as Device.bench does, with its defaults."""
        return self.device.bench(inputs, threads=threads)


def _bundle(bundle: Bundle | str | Path) -> Bundle:
    return bundle if isinstance(bundle, Bundle) else Bundle.read(Path(bundle))
