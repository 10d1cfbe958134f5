"""Opens a compiled model under a memory limit, and reports the outcome.

    python3 limited_memory.py MODULES SMALL FOLDER BYTES

Opens the model in SMALL first, so that Python and the libraries have allocated what they need, then
FOLDER with at most BYTES more of private memory.
"""

import json
import resource
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.errors import DeviceError


def _once(folder: Path) -> None:
    model = LoadedModel(ReleaseFiles(folder))
    specs = model.description.inputs
    model.run({s.name: Array(s.dtype, s.shape, bytes(s.bytes)) for s in specs})
    model.close()


_once(Path(sys.argv[2]))
with Path("/proc/self/status").open(encoding="ascii") as status:
    used = next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData"))
most = used + int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
try:
    _once(Path(sys.argv[3]))
    print(json.dumps("runs"))
except DeviceError as error:
    print(json.dumps(str(error)))
