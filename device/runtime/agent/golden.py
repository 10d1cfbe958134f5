"""The health check: on this board, the golden input must give the golden output.

A deploy runs it in a separate process; see health.py.
"""

from __future__ import annotations

import importlib
import math
import signal
import struct
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from edgekit.device.runtime.agent.kernels import ReferenceProduct
from edgekit.device.runtime.agent.manifest import Manifest, Variant
from edgekit.device.runtime.agent.model import open_model
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import NOT_COMPARED, TensorSpec
from edgekit.device.runtime.agent.variants import variant_text
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.device.runtime.errors import DeviceError
from edgekit.device.runtime.record import Record, asdict

Number = Union[int, float]
HasGolden = Union[Variant, ReferenceProduct]


def check_golden(files: ReleaseFiles, manifest: Manifest) -> Dict[str, Any]:
    """Runs the golden input of every variant in this process. Returns the slowest variant's time in
    milliseconds, the largest difference of each output, and the quantization loss of the golden
    outputs. DeviceError reports how far off the outputs are."""
    if manifest.kernels:
        # Found by its name, because releases of models do not have this module.
        checker = importlib.import_module("edgekit.device.runtime.agent.kernels_check")
        health: Dict[str, Any] = checker.check_products(files, manifest.kernels)
        return health
    found = [_check_variant(files, manifest, v) for v in manifest.every_variant()]
    known = {"loss": asdict(manifest.loss)} if manifest.loss else {}
    return {
        **known,
        "ms": max(ms for ms, _ in found),
        "max_difference": [max(each) for each in zip(*(differences for _, differences in found))],
    }


def _check_variant(
    files: ReleaseFiles, manifest: Manifest, variant: Variant
) -> Tuple[float, List[float]]:
    """Returns milliseconds, and the largest difference of each output."""
    model = open_model(files, manifest, variant=variant)
    outputs, times = model.run(golden_inputs(files, variant))
    model.close()
    where = f"with {variant_text(variant)}: " if manifest.variants else ""
    found = [outputs[spec.name].data for spec in variant.outputs]
    return times.total / 1e6, compare_outputs(files, variant, found, where)


def compare_outputs(
    files: ReleaseFiles, expected: HasGolden, outputs: Sequence[Any], where: str
) -> List[float]:
    """Returns the largest difference of each output from the golden one; DeviceError, beginning
    with `where`, if it exceeds the tolerance."""
    golden = expected.golden
    differences: List[float] = []
    for i, (spec, path) in enumerate(zip(expected.outputs, golden.outputs)):
        margin = golden.margin(i)
        shares = None if margin is None else files.read(margin)
        off = worst_difference(spec, files.read(path), bytes(outputs[i]), shares)
        if not off.within(golden.tolerances[i]):
            raise DeviceError(
                f"{where}output '{spec.name}': expected a difference of at most "
                f"{math.ldexp(golden.tolerances[i], -off.share):g} from the golden output, "
                f"found {off.largest:g}"
            )
        differences.append(off.largest)
    return differences


def golden_inputs(files: ReleaseFiles, variant: HasGolden) -> Dict[str, Array]:
    """Returns the golden input arrays by name."""
    return {
        spec.name: Array(spec.dtype, spec.shape, files.read(path))
        for spec, path in zip(variant.inputs, variant.golden.inputs)
    }


class GoldenDifference(Record):
    """The largest |expected - found| relative to its element's limit: 2^-share of the tolerance."""

    largest: float
    share: int = 0

    def within(self, tolerance: float) -> bool:
        return self.largest <= math.ldexp(tolerance, -self.share)


def worst_difference(
    spec: TensorSpec, expected: bytes, found: bytes, shares: Optional[bytes] = None
) -> GoldenDifference:
    """Infinite where only one of the two is NaN or infinite. `shares`: see GoldenFiles.margins."""
    if expected == found:
        return GoldenDifference(0.0)
    pairs = zip(_unpack_numbers(spec.dtype, expected), _unpack_numbers(spec.dtype, found))
    if shares is None:
        return GoldenDifference(max((_difference(a, b) for a, b in pairs), default=0.0))
    most: Dict[int, float] = {}
    for (a, b), share in zip(pairs, shares):
        if a != b and share != NOT_COMPARED:
            most[share] = max(most.get(share, 0.0), _difference(a, b))
    worst = max(most, key=lambda share: _scale_distance(most[share], share), default=0)
    return GoldenDifference(most.get(worst, 0.0), worst)


def _scale_distance(distance: float, share: int) -> float:
    """Scales a distance to that of an element with the full tolerance."""
    try:
        return math.ldexp(distance, share)
    except OverflowError:
        return math.inf


def _unpack_numbers(dtype: str, data: bytes) -> Iterator[Number]:
    return (row[0] for row in struct.iter_unpack("<" + BY_NAME[dtype].code, data))


def _difference(a: Number, b: Number) -> float:
    if a == b or (a != a and b != b):
        return 0.0
    distance = abs(a - b)
    return math.inf if distance != distance else float(distance)


def limit_life(seconds: int) -> None:
    """Ends this process after `seconds`, even in C code, in case its parent is killed."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
