"""Post-training 8-bit quantization of float graphs, calibrated on samples: `quantize`."""

from edgekit.host.compiler.transforms.quantize.field import FieldRanges, FieldTensor
from edgekit.host.compiler.transforms.quantize.labels import read_labels
from edgekit.host.compiler.transforms.quantize.quantize import (
    TARGET,
    Quantized,
    quantize,
    quantized_file,
)
from edgekit.host.compiler.transforms.quantize.samples import samples_of

__all__ = [
    "TARGET", "FieldRanges", "FieldTensor", "Quantized", "quantize", "quantized_file",
    "read_labels", "samples_of",
]  # fmt: skip
