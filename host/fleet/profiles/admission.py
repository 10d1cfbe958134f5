"""Who may connect to the profile server, and how often a board may send.

Connections queue for their handshake, the most expensive step: one per address in turn, so that an
address with many connections delays only itself. Then they wait until they show a token. If too
many queue or wait, the oldest connection of the address with most of them is closed, because a new
one may be a board's. Addresses that boards have sent from have a separate queue and are closed
last. Connections with a token have a separate limit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

_MOST_KNOWN = 16_384
_MOST_KEYS = 16_384  # of a quota, before those that are full again are removed


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on simultaneous connections and on their duration."""

    queueing: int = 512  # before the handshake
    waiting: int = 256  # without a token
    boards: int = 128  # with a token
    of_board: int = 2
    head_seconds: float = 10.0  # from the connection to the head of its first request
    silent_seconds: float = 30.0
    body_seconds: float = 600.0


class Closable(Protocol):
    """A connection that can be closed; it leaves its queue soon after."""

    def end(self) -> None: ...


_T = TypeVar("_T", bound=Closable)


class Quota:
    """An allowance per key: `most` at once, then `per_second`. Safe to use from threads."""

    def __init__(self, most: float, per_second: float, clock: Callable[[], float]) -> None:
        self._most, self._per_second, self._clock = most, per_second, clock
        self._lock = threading.Lock()
        self._full: dict[str, float] = {}  # when the allowance is full again
        self._prune_at = _MOST_KEYS

    def wait(self, key: str, amount: float = 1.0) -> float:
        """Takes `amount` and returns 0 if that is allowed now, otherwise the seconds to wait."""
        with self._lock:
            now = self._clock()
            full = max(self._full.get(key, now), now) + amount / self._per_second
            ahead = full - now - self._most / self._per_second
            if ahead > 1e-6:
                return ahead
            self._set(key, full, now)
            return 0.0

    def charge(self, key: str, amount: float) -> None:
        """Takes `amount`, even if there is less."""
        with self._lock:
            now = self._clock()
            self._set(key, max(self._full.get(key, now), now) + amount / self._per_second, now)

    def is_used_up(self, key: str) -> bool:
        with self._lock:
            now = self._clock()
            return self._full.get(key, now) - now >= self._most / self._per_second

    def _set(self, key: str, full: float, now: float) -> None:
        self._full[key] = full
        if len(self._full) > self._prune_at:
            self._full = {name: then for name, then in self._full.items() if then > now}
            self._prune_at = max(_MOST_KEYS, 2 * len(self._full))


class Known:
    """The addresses that boards sent from last."""

    def __init__(self) -> None:
        self._addresses: dict[str, None] = {}  # latest last

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    def add(self, address: str) -> None:
        self._addresses.pop(address, None)
        self._addresses[address] = None
        if len(self._addresses) > _MOST_KNOWN:
            del self._addresses[next(iter(self._addresses))]

    def discard(self, address: str) -> None:
        self._addresses.pop(address, None)


class Crowd(Generic[_T]):
    """Up to `most` connections, by address."""

    def __init__(self, most: int, known: Known) -> None:
        self._most, self._known = most, known
        self._by_address: dict[str, dict[_T, None]] = {}  # both oldest first

    def enter(self, address: str, connection: _T) -> None:
        """Adds a connection; ends another one if there are too many."""
        if sum(map(len, self._by_address.values())) >= self._most:
            crowded = max(self._by_address, key=self._rank)
            oldest = next(iter(self._by_address[crowded]))
            oldest.end()
            self.leave(crowded, oldest)
        self._by_address.setdefault(address, {})[connection] = None

    def leave(self, address: str, connection: _T) -> None:
        """Removes a connection, if it is still there."""
        own = self._by_address.get(address, {})
        own.pop(connection, None)
        if not own:
            self._by_address.pop(address, None)

    def take(self, known: bool) -> _T | None:
        """Removes the oldest connection of the address whose turn it is, among those that are known
        or among the others; None if there is none."""
        in_turn = (one for one in self._by_address if (one in self._known) == known)
        address = next(in_turn, None)
        if address is None:
            return None
        own = self._by_address.pop(address)
        first = next(iter(own))
        del own[first]
        if own:
            self._by_address[address] = own  # behind all others
        return first

    def _rank(self, address: str) -> tuple[bool, int]:
        return address not in self._known, len(self._by_address[address])

    def __bool__(self) -> bool:
        return bool(self._by_address)
