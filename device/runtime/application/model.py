"""A deployed model in a program on the board, which follows its releases. See applications.md."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import (
    Any,
    Callable,
    Dict,
    Iterator,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from edgekit.device.runtime.agent.specs import PlacementRequest, TensorSpec
from edgekit.device.runtime.agent.status import leave
from edgekit.device.runtime.agent.store import Store, committed
from edgekit.device.runtime.agent.task import TaskSpec
from edgekit.device.runtime.application.follow import load, load_current, log
from edgekit.device.runtime.application.loaded import Loaded, Outputs
from edgekit.device.runtime.application.results import Results
from edgekit.device.runtime.application.sd_notify import alive
from edgekit.device.runtime.application.watch import DEATHS, WATCH_SECONDS, Watch
from edgekit.device.runtime.errors import DeviceError, InputError, TooLittleMemoryError

Result = TypeVar("Result")
Load = Callable[[Store, str, PlacementRequest, int], Loaded]
DEFAULT = "current"
ROOT = "~/.edgekit"


def open_model(
    name: str = DEFAULT,
    *,
    threads: Optional[int] = None,
    cluster: str = "",
    parallel: int = 1,
    root: Union[str, Path] = "",
) -> Model:
    """Opens the model deployed as `name` (`edgekit deploy --name NAME`), or the unnamed one.

    Each inference uses `threads` threads on the cores of `cluster` ("big", "little", "all", a core
    type); both default to the release's placement. Up to `parallel` inferences may run
    concurrently, each with its own memory. `root` is the folder of releases; default: EDGEKIT_ROOT,
    which the supervisor sets, or ~/.edgekit. InputError if nothing is deployed there.
    """
    if min(1 if threads is None else threads, parallel) < 1:
        raise InputError(f"expected at least 1 thread and 1 inference, found {threads}, {parallel}")
    root = root or os.environ.get("EDGEKIT_ROOT", ROOT)
    board = Store(Path(root).expanduser().absolute(), log.warning)
    request = PlacementRequest(threads, cluster)
    return Model(board if name == DEFAULT else board.named(name), request, parallel)


class Signature(NamedTuple):
    """Inputs and outputs of a signature, for its first compiled variant."""

    inputs: Tuple[TensorSpec, ...]
    outputs: Tuple[TensorSpec, ...]


class Model(Results):
    """Runs the current release; any number of threads may use it. Not usable across a fork.

    After a new release is committed, the next `run` loads and uses it: running inferences finish
    with the old one, and each result comes from exactly one release. Other threads use the old one
    during the load. A release that fails to load is rolled back; the old one keeps running.

    `load_next` loads each release after the first; a release that has run for `watch_seconds` is
    watched no more.
    """

    def __init__(
        self,
        store: Store,
        request: PlacementRequest,
        parallel: int,
        *,
        load_next: Load = load,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._store, self._request, self._parallel = store, request, parallel
        self._load_next, self._watch_seconds = load_next, watch_seconds
        self._link = str(store.root / "current")
        self._state = threading.Condition()  # guards _loaded, and users of the loaded release
        self._changing = threading.Lock()
        self._failed: Set[str] = set()
        self._watch = Watch(store)
        self._paused = False
        self._loaded: Optional[Loaded] = None
        self._go_back_after_deaths()
        try:
            self._put_in_service(load_current(store, request, parallel, self._watch.begin))
        except InputError:  # no fault of the release: there is none, or it is not a model
            self._watch.end()
            raise
        except BaseException:
            self._watch.fail()
            raise
        self._at_exit = _end_at_exit(self)

    @property
    def release(self) -> str:
        """The release of the next inference, as far as this process knows."""
        return self._require_loaded().manifest.id

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._require_loaded().manifest.model.name

    @property
    def inputs(self) -> Tuple[TensorSpec, ...]:
        """Name, type and shape of each input, for the first compiled variant."""
        return self._require_loaded().manifest.inputs

    @property
    def outputs(self) -> Tuple[TensorSpec, ...]:
        """The outputs of the running release, for the first compiled variant."""
        return self._require_loaded().manifest.outputs

    @property
    def signatures(self) -> Dict[str, Signature]:
        """Inputs and outputs of each signature, by name; empty if the model has only one."""
        found: Dict[str, Signature] = {}
        for v in self._require_loaded().manifest.every_variant():
            if v.signature:
                found.setdefault(v.signature, Signature(v.inputs, v.outputs))
        return found

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Optional[Mapping[str, Any]] = None,
        signature: str = "",
    ) -> Outputs:
        """Runs one inference; inputs and outputs are arrays by name.

        `signature` names one of a model that has several; without it, the inputs decide. Contiguous
        inputs are not copied. Arrays in `outputs` are written in place; the others are allocated:
        as NumPy arrays if an input is one, else as memoryviews.
        """
        return self._on_current(lambda loaded: loaded.run(inputs, outputs or {}, signature))

    @property
    def task(self) -> Optional[TaskSpec]:
        """What the model is for, and how pictures become its input; None if unknown."""
        return self._require_loaded().manifest.task

    @property
    def is_stateful(self) -> bool:
        """Whether runs depend on earlier ones."""
        return any(v.memory.state_bytes for v in self._require_loaded().manifest.every_variant())

    def refresh(self) -> bool:
        """Waits for the current release, also after it failed to load; returns if it is another."""
        before = self.release
        with self._changing:
            self._failed.clear()
        self._switch_release(wait=True)
        return self.release != before

    def report_failure(self, reason: str, release: str = "") -> bool:
        """Rolls back the current release because the application found it defective. Returns
        whether that happened: there may be no previous one, or another may be current by now.

        `release` is the wrong one if it no longer runs. BusyError if a deploy is in progress.
        """
        failed = release or self.release
        back = leave(self._store, failed, "application", " ".join(reason.split()))
        if back is not None:
            self._watch.end()
            self._watch.forget(failed)
            log.warning("release %s failed (%s); release %s runs again", failed, reason, back)
        self._switch_release(wait=True)
        return back is not None

    def reset(self) -> None:
        """Resets the state of a stateful model to its initial values."""
        loaded = self._acquire_loaded()
        try:
            loaded.reset()
        finally:
            self._return_loaded(loaded)

    def close(self) -> None:
        """Waits for running inferences, and frees all resources."""
        with self._changing, self._state:
            loaded, self._loaded = self._loaded, None
            if loaded is not None:
                self._state.wait_for(lambda: loaded.users == 0)
                loaded.write_samples()
                self._close_unused(loaded)
            self._watch.end()
            self._at_exit()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _current(self) -> Iterator[Loaded]:
        """The current release, which stays loaded meanwhile."""
        if self._has_current_changed():
            self._switch_release(wait=False)
        loaded = self._acquire_loaded()
        try:
            yield loaded
        finally:
            self._return_loaded(loaded)

    def _on_current(self, work: Callable[[Loaded], Result]) -> Result:
        """Does an inference with the current release."""
        with self._current() as loaded:
            found = work(loaded)
        self._note_inference(loaded)
        return found

    def _note_inference(self, loaded: Loaded) -> None:
        alive()
        if self._proof_due is not None and time.monotonic() > self._proof_due:
            self._mark_proven(loaded)

    def _require_loaded(self) -> Loaded:
        loaded = self._loaded
        if loaded is None:
            raise InputError("expected an open model, found that it was closed; open it again")
        return loaded

    def _acquire_loaded(self) -> Loaded:
        with self._state:
            if self._paused:
                self._state.wait_for(lambda: not self._paused)
            loaded = self._require_loaded()
            loaded.users += 1
            return loaded

    def _return_loaded(self, loaded: Loaded) -> None:
        with self._state:
            loaded.users -= 1
            if loaded is not self._loaded or self._paused:
                self._close_unused(loaded)
                self._state.notify_all()

    def _close_unused(self, loaded: Loaded) -> None:
        """Closes a release that is neither in use nor current. _state is held."""
        if loaded is not self._loaded and loaded.users == 0 and not loaded.closed:
            loaded.close()

    def _has_current_changed(self) -> bool:
        """Whether `current` links to another release: one system call per inference."""
        try:
            return os.readlink(self._link) != self._target  # noqa: PTH115 - ten times as fast
        except OSError:
            return False  # the model was removed from the board: keep running the loaded release

    def _switch_release(self, wait: bool) -> None:
        """Switches to the release of `current`; without `wait`, unless another thread does so."""
        if not self._changing.acquire(blocking=wait):
            return
        try:
            release = committed(self._store)
            if release in (None, self.release) or release in self._failed:
                return
            assert release is not None
            self._load_release(release)
        finally:
            self._changing.release()

    def _load_release(self, release: str) -> None:
        """Loads and activates `release`; if that fails, the old one keeps running."""
        old = self._require_loaded().manifest.id
        self._watch.begin(release)
        try:
            try:
                found = self._load_next(self._store, release, self._request, self._parallel)
            except TooLittleMemoryError:
                found = self._load_apart(release)
        except (DeviceError, OSError) as error:
            self._watch.begin(old)
            if committed(self._store) == release:  # otherwise it was rolled back meanwhile
                self._failed.add(release)
                self._roll_back(release, f"load: {error}")
        else:
            self._put_in_service(found)

    def _load_apart(self, release: str) -> Loaded:
        """Loads a release when memory cannot hold two at once: closes the running one first, and
        reloads it if the other fails. Other threads wait meanwhile."""
        with self._state:
            old = self._require_loaded()
            self._paused = True
            try:
                self._state.wait_for(lambda: old.users == 0)
                old.close()
                try:
                    wanted = (self._request, self._parallel)
                    self._loaded = self._load_next(self._store, release, *wanted)
                    return self._loaded
                except BaseException:
                    self._loaded = None
                    self._loaded = self._load_next(self._store, old.manifest.id, *wanted)
                    raise
            finally:
                self._paused = False
                self._state.notify_all()

    def _put_in_service(self, loaded: Loaded) -> None:
        release = loaded.manifest.id
        with self._state:
            old, self._loaded = self._loaded, loaded
            self._target = f"releases/{release}"
            new = not self._watch.proved(release)
            self._proof_due = time.monotonic() + self._watch_seconds if new else None
            if old is not None:
                self._close_unused(old)

    def _roll_back(self, release: str, reason: str) -> None:
        """Rolls back like `leave`, but raises nothing: the loaded release keeps running."""
        with contextlib.suppress(DeviceError, OSError):
            back = leave(self._store, release, "application", reason)
            self._watch.forget(release)
            log.warning("release %s: %s; %s runs again", release, reason, back or "nothing else")
            return
        log.warning("release %s: %s; it stays in service", release, reason)

    def _mark_proven(self, loaded: Loaded) -> None:
        with self._state:
            if loaded is not self._loaded or self._proof_due is None:
                return
            self._proof_due = None
        self._watch.prove(loaded.manifest.id)

    def _go_back_after_deaths(self) -> None:
        release = committed(self._store)
        if release is not None and (deaths := self._watch.deaths(release)) >= DEATHS:
            within = f"within {self._watch_seconds:g} s"
            self._roll_back(release, f"{deaths} processes that ran it died {within}")

    def _handle_exit(self) -> None:
        """At process exit: rolls back a new release at once if an exception ended the process."""
        error = getattr(sys, "last_value", None)
        new = self._proof_due is not None and self._loaded is not None
        if new and isinstance(error, Exception):
            self._roll_back(self.release, f"the application ended: {type(error).__name__}: {error}")
        if self._loaded is not None:
            self._loaded.write_samples()
        self._watch.end()


def _end_at_exit(model: Model) -> Any:
    """Calls the model's `_handle_exit` at exit if it exists; returns what cancels that."""
    known = weakref.ref(model)

    def ended() -> None:
        found = known()
        if found is not None:
            found._handle_exit()

    atexit.register(ended)
    return lambda: atexit.unregister(ended)
