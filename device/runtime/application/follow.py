"""Loads the release an application should run: the committed one."""

from __future__ import annotations

import logging
from typing import Callable, Optional

from edgekit.device.runtime.agent.integrity import damage_of
from edgekit.device.runtime.agent.recovery import recover_if_needed
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.sampler import SamplingPace
from edgekit.device.runtime.agent.specs import PlacementRequest
from edgekit.device.runtime.agent.status import damaged, leave_damaged, nothing_deployed
from edgekit.device.runtime.agent.store import Store, committed, manifest_of
from edgekit.device.runtime.application.loaded import Loaded
from edgekit.device.runtime.errors import RolledBackError, TransferError

log = logging.getLogger("edgekit_runtime")
_CHANGES = 5  # of `current` during a load, before that is an error


def load(
    store: Store,
    release: str,
    request: PlacementRequest,
    parallel: int,
    repeats: Optional[SamplingPace] = None,
) -> Loaded:
    """Reads all of a release, verifies it against the installed state, and loads it. `repeats`: as
    in Loaded.

    If it is damaged, rolls back (RolledBackError) or raises TransferError.
    """
    files = ReleaseFiles(store.releases / release)
    try:
        if damage := damage_of(files):
            if committed(store) == release:
                raise leave_damaged(store, release, damage)
            raise damaged(release, damage)
        return Loaded(store, files, manifest_of(files), request, parallel, repeats)
    except BaseException:
        files.close()
        raise


def load_current(
    store: Store, request: PlacementRequest, parallel: int, begin: Callable[[str], object]
) -> Loaded:
    """Loads the committed release; retries if it changes meanwhile. InputError if nothing is
    deployed.

    Calls `begin` with each release before loading it.
    """
    recover_if_needed(store)
    for _ in range(_CHANGES):
        release = committed(store)
        if release is None:
            raise nothing_deployed(store)
        begin(release)
        try:
            return load(store, release, request, parallel)
        except RolledBackError as error:
            log.warning("%s", error)
        except TransferError:
            if committed(store) == release:
                raise
    raise TransferError(
        "expected one release to stay in service, found it replaced repeatedly; try again"
    )
