"""Chooses how many threads run a model, and on which cluster's cores.

The compiler records the lowest-cost configuration for each cluster of the board's profile in the
release; the board matches it with its actual clusters and usable cores.
"""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

from edgekit.device.runtime.agent.clusters import Cluster, find_clusters, ranges
from edgekit.device.runtime.agent.specs import ALL, ANY, BESIDE, PlacementRequest, PlacementSpec
from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.record import Record


class Placement(Record):
    """A model's thread placement. `cores`: the cores its threads are pinned to, empty: any;
    `workers`: the cores of the threads other than the caller's, if different; `cluster`: the cores'
    cluster, or "big+little" if each has its own queue in the schedule; `note`: the part of the
    release's placement that is unavailable here, "" if none."""

    threads: int = 1
    cluster: str = ""
    cores: Tuple[int, ...] = ()
    note: str = ""
    workers: Tuple[int, ...] = ()

    @property
    def said(self) -> str:
        """For people: "4 threads on big (cores 4-7)"."""
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        cores = ranges(self.cores) + (f" and {ranges(self.workers)}" if self.workers else "")
        on = f" on {self.cluster} (cores {cores})" if self.cores else ""
        return threads + on + (f"; {self.note}" if self.note else "")


ONE_THREAD = Placement()


def place(
    specs: Sequence[PlacementSpec],
    request: PlacementRequest = ANY,
    clusters: Optional[Sequence[Cluster]] = None,
) -> Placement:
    """Returns the placement of a model with these specs, best first, on this board (or on
    `clusters`).

    Without specs, as on x86, it is one thread on any core. A request for more threads than a
    cluster has cores uses all cores, unless it names the cluster: that is an InputError, as is a
    cluster that the board does not have.
    """
    if not specs and not request.cluster:
        return Placement(request.threads or 1)
    board = find_clusters() if clusters is None else clusters
    if request.cluster == ALL:
        usable = sum(len(cluster.usable) for cluster in board)
        return Placement(request.threads or max(usable, 1))
    if BESIDE in request.cluster:
        return _side_by_side(
            [_find_cluster(name, board) for name in request.cluster.split(BESIDE)], request
        )
    if request.cluster:
        return _as_requested(specs, request, board, _find_cluster(request.cluster, board))
    alone = [spec for spec in specs if BESIDE not in spec.cluster]
    if BESIDE in specs[0].cluster and request.threads is None:
        try:
            names = specs[0].cluster.split(BESIDE)
            return _side_by_side([_find_cluster(name, board) for name in names], request)
        except InputError:  # another board's cluster
            pass
    return _as_released((alone or specs)[0], request, board)


def described(clusters: Sequence[Cluster]) -> str:
    """Lists the clusters for messages: "big (4 x cortex-a76), little (4 x cortex-a55)"."""
    return ", ".join(f"{c.name} ({len(c.usable)} x {c.core or 'core'})" for c in clusters)


def _find_cluster(name: str, board: Sequence[Cluster]) -> Cluster:
    for cluster in board:
        if name.lower() in (cluster.name, cluster.core, _short_name(cluster.core)):
            return cluster
    there = described(board) + (", or all" if len(board) > 1 else "")
    raise InputError(f"--cluster: expected a cluster of this board, {there}, found '{name}'")


def _side_by_side(clusters: Sequence[Cluster], request: PlacementRequest) -> Placement:
    """Places one thread on each cluster: the caller's on the first, where it runs the queue that
    the schedule calls cpu."""
    names = BESIDE.join(cluster.name for cluster in clusters)
    if len({cluster.name for cluster in clusters}) < len(clusters) or not all(
        cluster.usable for cluster in clusters
    ):
        raise InputError(
            "--cluster: expected different clusters with usable cores, found "
            f"{described(clusters)}; use one of them, or check the container's cpuset"
        )
    if request.threads not in (None, len(clusters)):
        raise InputError(
            f"--threads: expected {len(clusters)}, one on each of {names}, found {request.threads}"
        )
    workers = tuple(core for cluster in clusters[1:] for core in cluster.usable)
    return Placement(len(clusters), names, clusters[0].usable, workers=workers)


def _as_requested(
    specs: Sequence[PlacementSpec],
    request: PlacementRequest,
    board: Sequence[Cluster],
    cluster: Cluster,
) -> Placement:
    usable = len(cluster.usable)
    if not usable or (request.threads or 1) > usable:
        raise InputError(
            f"--cluster: expected 1 to {usable} threads on {cluster.name} of {described(board)}, "
            f"found {request.threads or 1}; use fewer, or another cluster"
            if usable
            else f"--cluster: expected a cluster with usable cores, found none in "
            f"{cluster.name}: {described(board)}; use another, or check the container's cpuset"
        )
    fitting = [spec for spec in specs if _fits(spec, cluster)]
    threads = request.threads or (fitting[0].threads if fitting else 1)
    return Placement(min(threads, usable), cluster.name, cluster.usable)


def _as_released(
    spec: PlacementSpec, request: PlacementRequest, board: Sequence[Cluster]
) -> Placement:
    """Places the model on the release's cluster, or else on any core with a note."""
    every = sum(len(cluster.usable) for cluster in board)
    fitting = [c for c in board if _fits(spec, c)]
    if not fitting:
        wanted = f"no cluster of {spec.core} here"
    elif not _choose_cluster(fitting, spec).usable:
        wanted = f"no core of {fitting[0].name} can be used"
    else:
        return _place_on(_choose_cluster(fitting, spec), spec, request, len(board) > 1)
    return Placement(request.threads or min(spec.threads, max(every, 1)), note=wanted)


def _choose_cluster(fitting: Sequence[Cluster], spec: PlacementSpec) -> Cluster:
    """Among the fastest matching cluster and its equals, prefers enough cores, then the spec's own
    name."""
    alike = [c for c in fitting if c.core == fitting[0].core and c.capacity == fitting[0].capacity]
    return max(alike, key=lambda c: (min(len(c.usable), spec.threads), c.name == spec.cluster))


def _place_on(
    cluster: Cluster, spec: PlacementSpec, request: PlacementRequest, several: bool
) -> Placement:
    usable = len(cluster.usable)
    if request.threads and request.threads > usable:
        return Placement(request.threads)
    threads = request.threads or min(spec.threads, usable)
    note = ""
    if threads < spec.threads and not request.threads:
        note = f"{spec.threads} would be best, but only {usable} of its cores can be used"
    if not several:
        return Placement(threads, note=note)
    return Placement(threads, cluster.name, cluster.usable, note)


def _fits(spec: PlacementSpec, cluster: Cluster) -> bool:
    return spec.core in ("", _short_name(cluster.core))


def _short_name(core: str) -> str:
    return core.rpartition("-")[2]
