"""The errors edgekit raises on purpose; the command line prints each as one line.

    EdgekitError                    exit code
    ├── InputError                  2   bad file, bad argument, unsupported model
    ├── UnreachableError            3   the board does not answer
    ├── AuthenticationError         4   login or host key refused
    ├── IncompatibleError           5   board, features or memory do not fit the bundle
    ├── TransferError               6   transfer or verification failed
    │   └── BusyError               6   another deploy is on its way
    ├── RolledBackError             7   the new release was unhealthy; the old one runs
    ├── PartialError                8   of several boards, some failed
    ├── SlowerError                 9   a release or model costs more than was allowed
    └── DisagreesError              9   a release agrees less with its float model than allowed

Every message says what was expected, what was found, and what to do next.
"""

from __future__ import annotations


class EdgekitError(Exception):
    """Base of all deliberate errors; `exit_code` is the exit status of the command line."""

    exit_code = 1


class InputError(EdgekitError):
    exit_code = 2


class UnreachableError(EdgekitError):
    exit_code = 3


class AuthenticationError(EdgekitError):
    exit_code = 4


class IncompatibleError(EdgekitError):
    exit_code = 5


class TransferError(EdgekitError):
    exit_code = 6


class BusyError(TransferError):
    """`holder` is the session of the other deployment."""

    holder = ""


class RolledBackError(EdgekitError):
    """`log` holds the last lines that the unhealthy release printed."""

    exit_code = 7
    log = ""


class PartialError(EdgekitError):
    exit_code = 8


class SlowerError(EdgekitError):
    exit_code = 9


class DisagreesError(EdgekitError):
    exit_code = 9
