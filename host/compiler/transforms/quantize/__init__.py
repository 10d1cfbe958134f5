"""Post-training 8-bit quantization of float graphs, calibrated on samples: `quantize`."""

from edgekit.host.compiler.transforms.quantize.field import FieldRanges, FieldTensor
from edgekit.host.compiler.transforms.quantize.labels import lists_class_numbers, read_labels
from edgekit.host.compiler.transforms.quantize.quantize import (
    TARGET,
    Quantized,
    quantize,
    quantized_file,
)
from edgekit.host.compiler.transforms.quantize.samples import (
    held_out_files,
    samples_of,
    with_notes,
)

__all__ = [
    "TARGET", "FieldRanges", "FieldTensor", "Quantized", "held_out_files",
    "lists_class_numbers", "quantize", "quantized_file", "read_labels", "samples_of", "with_notes",
]  # fmt: skip
