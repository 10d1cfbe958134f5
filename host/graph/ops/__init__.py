"""Every operator of the graph: one file per family with attributes, shape rule, reference.

Adding an operator: its class here, its importer row, its lowering, its kernel. What a family's
`__all__` names is `ops.NAME` everywhere else.
"""

from edgekit.host.graph.ops.bits import *
from edgekit.host.graph.ops.boxes import *
from edgekit.host.graph.ops.chain import *
from edgekit.host.graph.ops.coded_recurrent import *
from edgekit.host.graph.ops.conv import *
from edgekit.host.graph.ops.dense import *
from edgekit.host.graph.ops.detection import *
from edgekit.host.graph.ops.dynamic import *
from edgekit.host.graph.ops.elementwise import *
from edgekit.host.graph.ops.functions import *
from edgekit.host.graph.ops.gather import *
from edgekit.host.graph.ops.layout import *
from edgekit.host.graph.ops.matmul import *
from edgekit.host.graph.ops.matmul_views import *
from edgekit.host.graph.ops.normalize import *
from edgekit.host.graph.ops.operands import *
from edgekit.host.graph.ops.order import *
from edgekit.host.graph.ops.outlier import *
from edgekit.host.graph.ops.planar import *
from edgekit.host.graph.ops.pool import *
from edgekit.host.graph.ops.poses import *
from edgekit.host.graph.ops.quantize import *
from edgekit.host.graph.ops.recurrent import *
from edgekit.host.graph.ops.reduce import *
from edgekit.host.graph.ops.repeat import *
from edgekit.host.graph.ops.resize import *
from edgekit.host.graph.ops.signal import *
from edgekit.host.graph.ops.state import *
from edgekit.host.graph.ops.totals import *
from edgekit.host.graph.ops.trigonometric import *
from edgekit.host.graph.ops.wide import *
