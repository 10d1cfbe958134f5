"""Whether an engine computes a model: its outputs against those of the NumPy reference.

An engine that refuses a model, or that computes something else, can be arbitrarily fast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgekit.host.common.paths import cache_folder
from edgekit.host.common.text import one_line
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.vectors import golden_of
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.makers import probabilities
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.target import HALF_LOSS
from edgekit.host.lab.bench.contender import UnfitError
from edgekit.host.lab.bench.selected_rows import RowChoice, row_choices

_MOST_INT8_LOSS = 0.5
Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Expected:
    """Inputs by name, in the model's order, the reference's outputs, and for each the value that
    errors are relative to: the range of 8- and 16-bit quantized values, 1 for probabilities, the
    largest value of other floats and of wider quantized values, 0 where no error is allowed.
    `choices`: by the number of an output, which rows it may consist of."""

    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]
    units: tuple[float, ...]
    choices: Mapping[int, RowChoice] = field(default_factory=dict)

    def error(self, number: int, found: Array) -> float:
        """The error of what might be output `number`, relative to its unit or, of rows that are
        chosen, to those of its columns; infinite if it has another size."""
        want = self.outputs[number]
        if want.size != found.size:
            return math.inf
        if number in self.choices:
            return self.choices[number].error(found, want.shape)
        return _error(want, found, self.units[number])


def expected_of(model: Path, shapes: Shapes) -> Expected:
    """The golden inputs of a model and the reference's outputs for them, from zero states.

    Raises InputError for a model that cannot be imported.
    """
    graph = import_model(model, shapes)
    golden = golden_of(graph, cache_folder() / "golden")
    shares = probabilities(graph, graph.outputs)
    units = (
        1.0
        if name in shares and values.dtype.kind == "f"
        else _unit(values, graph.tensors[name].quant is not None)
        for name, values in zip(graph.outputs, golden.outputs, strict=True)
    )
    inputs = dict(zip(graph.inputs, golden.inputs, strict=True))
    rows = row_choices(graph, inputs)
    choices = {i: rows[name] for i, name in enumerate(graph.outputs) if name in rows}
    return Expected(inputs, golden.outputs, tuple(units), choices)


def _unit(values: Array, quantized: bool) -> float:
    if quantized and values.dtype.itemsize <= 2:
        return float(np.iinfo(values.dtype).max) - np.iinfo(values.dtype).min
    if quantized or values.dtype.kind == "f":
        real = values.astype(np.float64)
        return float(np.max(np.abs(real), where=np.isfinite(real), initial=0.0))
    return 0.0


def write_inputs(expected: Expected, folder: Path) -> None:
    """Writes the files that the guest program peer.py reads."""
    described = []
    for place, (name, values) in enumerate(expected.inputs.items()):
        (folder / f"in{place}").write_bytes(np.ascontiguousarray(values).tobytes())
        described.append({"name": name, "shape": list(values.shape), "dtype": values.dtype.name})
    (folder / "inputs.json").write_text(json.dumps(described))


def read_outputs(folder: Path) -> list[Array]:
    """The outputs that peer.py wrote; UnfitError if it wrote none, or others than it announced."""
    try:
        described = json.loads((folder / "outputs.json").read_text())
        return [
            np.frombuffer((folder / f"out{place}").read_bytes(), each["dtype"]).reshape(
                each["shape"]
            )
            for place, each in enumerate(described)
        ]
    except (OSError, ValueError) as error:
        raise UnfitError(f"wrote no outputs that can be read ({one_line(str(error))})") from None


def largest_error(expected: Expected, found: Sequence[Array]) -> float:
    """The largest error of an output relative to its unit; infinite if one is missing.

    Engines order and name outputs differently, and add or drop dimensions of 1, so each output is
    compared with the nearest one of its size.
    """
    with np.errstate(all="ignore"):
        return max(
            (
                min((expected.error(number, each) for each in found), default=math.inf)
                for number in range(len(expected.outputs))
            ),
            default=0.0,
        )


def why_wrong(error: float, precision: str, bound: float = HALF_LOSS) -> str:
    """Why outputs with this largest error do not count, in one line; empty if they do."""
    if error <= bound:
        return ""
    shown = f"{error:.2%}" if math.isfinite(error) else "others"
    return (
        f"expected outputs within {100 * bound:.2g}% of the reference's largest value, "
        f"found {shown} in {precision}"
    )


def bound_of_int8(network: Path, quantized: Path, shapes: Shapes) -> float:
    """The largest error allowed for a network's 8-bit file. Engines round sums differently, which
    deep networks amplify as they do the errors of quantization: as much as quantization itself
    changes is allowed, at least as much as for half precision and at most half of the largest
    value."""
    made = expected_of(quantized, shapes)
    exact = evaluate(import_model(network, shapes), made.inputs).outputs
    lost = largest_error(made, list(exact.values()))
    return min(max(HALF_LOSS, lost), _MOST_INT8_LOSS)


def _error(want: Array, found: Array, unit: float) -> float:
    exact, given = (each.astype(np.float64).ravel() for each in (want, found))
    equal = (exact == given) | (np.isnan(exact) & np.isnan(given))
    worst = float(np.max(np.where(equal, 0.0, np.abs(given - exact)), initial=0.0))
    if worst == 0:
        return 0.0
    return worst / unit if unit and math.isfinite(worst) else math.inf
