"""Measures sparse matrices on a board with the runtime's spmv-bench command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from edgekit.device.runtime.agent.hotspots import Bottleneck, HotFunction, HotInstruction, Hotspots
from edgekit.device.runtime.arrays.sparse_blocks import BlockSettings
from edgekit.device.runtime.arrays.sparse_input import Csr
from edgekit.device.runtime.arrays.sparse_table import MatrixFeatures
from edgekit.host.common.decode import NotAnAnswerError, fitting
from edgekit.host.deploy.release.answers import FormAnswer, SpmvAnswer, SpmvHotspots
from edgekit.host.deploy.release.runtime import BoardCalls
from edgekit.host.lab.tune.board_kernels import BoardKernels
from edgekit.kb.targets.board import BoardProfile

_TIMES: tuple[Literal["p10_us", "median_us", "p90_us"], ...] = ("p10_us", "median_us", "p90_us")


@dataclass(frozen=True)
class FormCost:
    """One block format of a matrix: seconds (p10, median, p90), or instructions in all three."""

    settings: BlockSettings
    padding: float
    bytes: int
    p10: float
    median: float
    p90: float


@dataclass(frozen=True)
class BoardResult:
    """A board's measurements; triad: bytes per second of STREAM's triad, None if not requested."""

    features: MatrixFeatures
    height: int
    forms: tuple[FormCost, ...]
    triad: float | None


class SpmvMeasurer:
    """Sends the kernels of `profile`; `emulated`: counts instructions, as times are meaningless."""

    def __init__(self, board: BoardCalls, profile: BoardProfile, emulated: bool) -> None:
        self._emulated = emulated
        self._kernels = BoardKernels(board, profile, emulated)
        self.unit = self._kernels.unit
        self._matrix = ""

    def send(self, matrix: Csr) -> None:
        """Uploads the matrix that subsequent calls of `measure` use."""
        self.forget()
        arrays = {"indptr": matrix.indptr, "indices": matrix.indices, "data": matrix.data}
        self._matrix = self._kernels.send({**arrays, "shape": np.array(matrix.shape, np.int64)})

    def forget(self) -> None:
        """Removes the matrix from the board."""
        if self._matrix:
            self._kernels.forget(self._matrix)
            self._matrix = ""

    def measure(
        self,
        settings: Sequence[BlockSettings],
        threads: int = 1,
        seconds: float = 1.0,
        triad: bool = False,
    ) -> BoardResult:
        """Costs of each format, alternating with the last. Raises like the board's runtime."""
        found = self._run_on_board(
            settings,
            threads=threads,
            seconds=seconds,
            count=self._emulated,
            triad=triad and not self._emulated,
        )
        answer = fitting(found, SpmvAnswer)
        if len(answer["results"]) != len(settings):
            raise NotAnAnswerError(
                f"expected costs of {len(settings)} forms, found {len(answer['results'])}"
            )
        found_features: dict[str, Any] = dict(answer["features"])
        features = {key: found_features[key] for key in MatrixFeatures.__dataclass_fields__}
        forms = tuple(_to_form_cost(result) for result in answer["results"])
        rate = answer["triad_bytes_per_second"]
        return BoardResult(MatrixFeatures(**features), answer["height"], forms, rate)

    def hotspots(self, settings: BlockSettings, seconds: float = 1.0) -> Hotspots:
        """Where the board spends its time on one thread, and its bottleneck."""
        answer = self._run_on_board([settings], seconds=seconds, hotspots=True)
        found = fitting(answer, SpmvHotspots)["hotspots"]
        why = found["bottleneck"]
        return Hotspots(
            Bottleneck(why["kind"], why["why"]),
            tuple(HotFunction(each["percent"], each["name"]) for each in found["functions"]),
            tuple(HotInstruction(each["percent"], each["text"]) for each in found["instructions"]),
            tuple(found["missing"]),
        )

    def _run_on_board(self, settings: Sequence[BlockSettings], **options: Any) -> dict[str, Any]:
        request = {
            "matrix": self._matrix,
            "settings": [asdict(how) for how in settings],
            **options,
        }
        return self._kernels.ask("spmv-bench", request, float(options["seconds"]))


def _to_form_cost(result: FormAnswer) -> FormCost:
    if "instructions" in result:
        low = median = high = float(result["instructions"])
    elif "time" in result:
        low, median, high = (1e-6 * result["time"][key] for key in _TIMES)
    else:
        raise NotAnAnswerError("expected times or instructions of a form, found neither")
    settings = BlockSettings.of(result["settings"])
    return FormCost(settings, float(result["padding"]), result["bytes"], low, median, high)
