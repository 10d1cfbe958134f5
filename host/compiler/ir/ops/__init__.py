"""All operators of the graph: one file per family with attributes, shape rule and reference.

Each class declares its traits (traits.py), on which most transforms rely exclusively.
docs/contributing.md lists the files to change for a new operator. Names in a family's `__all__` are
accessed as `ops.NAME` elsewhere.
"""

from edgekit.host.compiler.ir.ops.activations import *
from edgekit.host.compiler.ir.ops.areas import *
from edgekit.host.compiler.ir.ops.attention import *
from edgekit.host.compiler.ir.ops.bits import *
from edgekit.host.compiler.ir.ops.boxes import *
from edgekit.host.compiler.ir.ops.chain import *
from edgekit.host.compiler.ir.ops.channels_first import *
from edgekit.host.compiler.ir.ops.conv import *
from edgekit.host.compiler.ir.ops.conv import Conv2D, DepthwiseConv2D, TransposeConv2D
from edgekit.host.compiler.ir.ops.conv_16x8 import *
from edgekit.host.compiler.ir.ops.dense import *
from edgekit.host.compiler.ir.ops.dense import FullyConnected
from edgekit.host.compiler.ir.ops.detection import *
from edgekit.host.compiler.ir.ops.dynamic import *
from edgekit.host.compiler.ir.ops.dynamic import DynamicConv2D, DynamicFullyConnected
from edgekit.host.compiler.ir.ops.elementwise import *
from edgekit.host.compiler.ir.ops.elementwise import Add, Mul
from edgekit.host.compiler.ir.ops.fourier import *
from edgekit.host.compiler.ir.ops.functions import *
from edgekit.host.compiler.ir.ops.gather import *
from edgekit.host.compiler.ir.ops.grouped import *
from edgekit.host.compiler.ir.ops.grouped import GroupedConv2D
from edgekit.host.compiler.ir.ops.layout import *
from edgekit.host.compiler.ir.ops.logic import *
from edgekit.host.compiler.ir.ops.loop import *
from edgekit.host.compiler.ir.ops.masks import *
from edgekit.host.compiler.ir.ops.matmul import *
from edgekit.host.compiler.ir.ops.normalize import *
from edgekit.host.compiler.ir.ops.operands import *
from edgekit.host.compiler.ir.ops.order import *
from edgekit.host.compiler.ir.ops.outlier import *
from edgekit.host.compiler.ir.ops.pool import *
from edgekit.host.compiler.ir.ops.pool import AveragePool2D, MaxPool2D
from edgekit.host.compiler.ir.ops.poses import *
from edgekit.host.compiler.ir.ops.quantize import *
from edgekit.host.compiler.ir.ops.quantized_recurrent import *
from edgekit.host.compiler.ir.ops.random import *
from edgekit.host.compiler.ir.ops.recurrent import *
from edgekit.host.compiler.ir.ops.reduce import *
from edgekit.host.compiler.ir.ops.regions import *
from edgekit.host.compiler.ir.ops.resize import *
from edgekit.host.compiler.ir.ops.rotated import *
from edgekit.host.compiler.ir.ops.signal import *
from edgekit.host.compiler.ir.ops.state import *
from edgekit.host.compiler.ir.ops.totals import *
from edgekit.host.compiler.ir.ops.trees import *
from edgekit.host.compiler.ir.ops.trigonometric import *
from edgekit.host.compiler.ir.types import Operator as _Operator


def every() -> list[type[_Operator]]:
    """Return all concrete operator classes."""
    found = [value for value in globals().values() if isinstance(value, type)]
    return [kind for kind in found if issubclass(kind, _Operator) and kind.kind]


# Products with weights and a bias that can have an epilogue.
Weighted = Conv2D | DepthwiseConv2D | GroupedConv2D | TransposeConv2D | FullyConnected
# Operators whose f32 kernels can clamp results.
Activated = Weighted | Add | AveragePool2D | DynamicConv2D | DynamicFullyConnected | MaxPool2D | Mul
