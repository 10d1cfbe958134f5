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
from typing import Any, Mapping, Optional, Set, Tuple, Type, Union

from edgekit.device.runtime.agent.specs import PlacementRequest, TensorSpec
from edgekit.device.runtime.agent.status import leave
from edgekit.device.runtime.agent.store import Store, committed
from edgekit.device.runtime.application.follow import load, load_current, log
from edgekit.device.runtime.application.loaded import Loaded, Outputs
from edgekit.device.runtime.application.signs import alive
from edgekit.device.runtime.application.watch import DEATHS, WATCH_SECONDS, Watch
from edgekit.device.runtime.errors import DeviceError, InputError, TooLittleMemoryError

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
    """The model deployed as `name` (`edgekit deploy --name NAME`), or the one without a name.

    `threads` work on each inference, on the cores of `cluster` ("big", "little", "all", a kind of
    core), both as the release says if left out; `parallel` inferences may run at the same time,
    each with memory of its own. InputError if nothing was deployed there. `root`: where releases
    lie; left out, EDGEKIT_ROOT, which a supervised application is given, or ~/.edgekit.
    """
    if min(1 if threads is None else threads, parallel) < 1:
        raise InputError(f"expected at least 1 thread and 1 inference, found {threads}, {parallel}")
    root = root or os.environ.get("EDGEKIT_ROOT", ROOT)
    board = Store(Path(root).expanduser().absolute(), log.warning)
    request = PlacementRequest(threads, cluster)
    return Model(board if name == DEFAULT else board.named(name), request, parallel)


class Model:
    """Runs the release in service; any number of threads may use it. Not across a fork.

    When a new release is committed, the next `run` loads it and uses it: inferences on their way
    end with the old one, and each result is that of one release alone. Other threads go on with
    the old one while the new one is loaded. A release that cannot be loaded is left for the one
    before, which runs on all the while.
    """

    def __init__(self, store: Store, request: PlacementRequest, parallel: int) -> None:
        self._store, self._wish, self._parallel = store, request, parallel
        self._link = str(store.root / "current")
        self._state = threading.Condition()  # guards _loaded, and users of what is loaded
        self._changing = threading.Lock()
        self._failed: Set[str] = set()
        self._watch = Watch(store)
        self._paused = False
        self._loaded: Optional[Loaded] = None
        self._go_back_after_deaths()
        self._put_in_service(load_current(store, request, parallel, self._watch.begin))
        self._at_exit = _end_at_exit(self)

    @property
    def release(self) -> str:
        """The release that the next inference runs, as far as this process knows by now."""
        return self._now().manifest.id

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._now().manifest.model.name

    @property
    def inputs(self) -> Tuple[TensorSpec, ...]:
        """Name, type and shape of each input; of the first shapes that it was compiled for."""
        return self._now().manifest.inputs

    @property
    def outputs(self) -> Tuple[TensorSpec, ...]:
        """The outputs of the release that runs."""
        return self._now().manifest.outputs

    def run(
        self, inputs: Mapping[str, Any], outputs: Optional[Mapping[str, Any]] = None
    ) -> Outputs:
        """One inference: arrays by name in, arrays by name out.

        Arrays go in without a copy if they are contiguous. Those in `outputs` are written to; for
        all others new ones are made: NumPy arrays if an input is one, else memoryviews.
        """
        if self._moved():
            self._change(wait=False)
        loaded = self._take()
        try:
            found = loaded.run(inputs, outputs or {})
        finally:
            self._give(loaded)
        alive()
        if self._proof_due is not None and time.monotonic() > self._proof_due:
            self._prove(loaded)
        return found

    def refresh(self) -> bool:
        """Waits until the release in service is the one that runs here; whether that is another
        than before. One that could not be loaded is tried again."""
        before = self.release
        with self._changing:
            self._failed.clear()
        self._change(wait=True)
        return self.release != before

    def report_failure(self, reason: str, release: str = "") -> bool:
        """The application found that the release in service does not do: goes back to the one
        before. Whether it did: there may be none, or another release may be in service by now.

        `release` is that of the outputs that were wrong, if not the one that runs now. BusyError
        while a deploy is on its way.
        """
        failed = release or self.release
        back = leave(self._store, failed, "application", " ".join(reason.split()))
        if back is not None:
            self._watch.end()
            self._watch.forget(failed)
            log.warning("release %s failed (%s); release %s runs again", failed, reason, back)
        self._change(wait=True)
        return back is not None

    def reset(self) -> None:
        """Puts the state of a stateful model back to its initial values."""
        loaded = self._take()
        try:
            loaded.reset()
        finally:
            self._give(loaded)

    def close(self) -> None:
        """Waits for inferences on their way, and gives everything back."""
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

    def _now(self) -> Loaded:
        loaded = self._loaded
        if loaded is None:
            raise InputError("expected an open model, found that it was closed; open it again")
        return loaded

    def _take(self) -> Loaded:
        with self._state:
            if self._paused:
                self._state.wait_for(lambda: not self._paused)
            loaded = self._now()
            loaded.users += 1
            return loaded

    def _give(self, loaded: Loaded) -> None:
        with self._state:
            loaded.users -= 1
            if loaded is not self._loaded or self._paused:
                self._close_unused(loaded)
                self._state.notify_all()

    def _close_unused(self, loaded: Loaded) -> None:
        """Gives back a release that no inference is on and none will be. _state is held."""
        if loaded is not self._loaded and loaded.users == 0 and not loaded.closed:
            loaded.close()

    def _moved(self) -> bool:
        """Whether `current` names another release: one system call, on every inference."""
        try:
            return os.readlink(self._link) != self._target  # noqa: PTH115 - ten times as fast
        except OSError:
            return False  # the model was removed from the board: what is loaded runs on

    def _change(self, wait: bool) -> None:
        """Follows `current`, unless another thread is about to and this one need not wait."""
        if not self._changing.acquire(blocking=wait):
            return
        try:
            release = committed(self._store)
            if release in (None, self.release) or release in self._failed:
                return
            assert release is not None
            self._load(release)
        finally:
            self._changing.release()

    def _load(self, release: str) -> None:
        """Puts `release` in service; if it cannot be loaded, what was there runs on."""
        old = self._now().manifest.id
        self._watch.begin(release)
        try:
            try:
                found = load(self._store, release, self._wish, self._parallel)
            except TooLittleMemoryError:
                found = self._load_apart(release)
        except (DeviceError, OSError) as error:
            self._watch.begin(old)
            if committed(self._store) == release:  # else it left, or was left, as it was read
                self._failed.add(release)
                self._leave(release, f"load: {error}")
        else:
            self._put_in_service(found)

    def _load_apart(self, release: str) -> Loaded:
        """Loads as `load` does where memory does not hold two releases at once: the one that runs
        goes first, and comes back if the other does not load. Other threads wait meanwhile."""
        with self._state:
            old = self._now()
            self._paused = True
            try:
                self._state.wait_for(lambda: old.users == 0)
                old.close()
                try:
                    self._loaded = load(self._store, release, self._wish, self._parallel)
                    return self._loaded
                except BaseException:
                    self._loaded = None
                    again = old.manifest.id
                    self._loaded = load(self._store, again, self._wish, self._parallel)
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
            self._proof_due = time.monotonic() + WATCH_SECONDS if new else None
            if old is not None:
                self._close_unused(old)

    def _leave(self, release: str, reason: str) -> None:
        """Leaves as `leave` does, but raises nothing: the release that is loaded runs on anyway."""
        with contextlib.suppress(DeviceError, OSError):
            back = leave(self._store, release, "application", reason)
            self._watch.forget(release)
            log.warning("release %s: %s; %s runs again", release, reason, back or "nothing else")
            return
        log.warning("release %s: %s; it stays in service", release, reason)

    def _prove(self, loaded: Loaded) -> None:
        with self._state:
            if loaded is not self._loaded or self._proof_due is None:
                return
            self._proof_due = None
        self._watch.prove(loaded.manifest.id)

    def _go_back_after_deaths(self) -> None:
        release = committed(self._store)
        if release is not None and (deaths := self._watch.deaths(release)) >= DEATHS:
            self._leave(release, f"{deaths} processes died with it within {WATCH_SECONDS:g} s")

    def _ended(self) -> None:
        """At the end of the process: one that an exception ended goes back at once."""
        error = getattr(sys, "last_value", None)
        new = self._proof_due is not None and self._loaded is not None
        if new and isinstance(error, Exception):
            self._leave(self.release, f"the application ended: {type(error).__name__}: {error}")
        if self._loaded is not None:
            self._loaded.write_samples()
        self._watch.end()


def _end_at_exit(model: Model) -> Any:
    """Calls the model's `_ended` at exit if it still is there; the function that forgets that."""
    known = weakref.ref(model)

    def ended() -> None:
        found = known()
        if found is not None:
            found._ended()

    atexit.register(ended)
    return lambda: atexit.unregister(ended)
