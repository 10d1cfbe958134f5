"""The agent's commands, for `python -m edgekit.device`; runtime.pyz starts them itself."""

from __future__ import annotations

import sys

from edgekit.device.runtime.agent.commands import main

if __name__ == "__main__":
    sys.exit(main())
