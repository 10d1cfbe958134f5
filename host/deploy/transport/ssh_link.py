"""Connects to a board: TCP, jump hosts, host keys, login. Each step has a name and a deadline."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from edgekit.host.deploy.transport.ssh_config import Hop, SshTarget, hops
from edgekit.host.deploy.transport.ssh_keys import HostKey, KnownHosts, candidates, parse_host_key
from edgekit.host.errors import AuthenticationError, UnreachableError

_KEEP_ALIVE_SECONDS = 15
_DEAD_MS = 30_000  # with nothing acknowledged; keep-alives guarantee traffic
_WINDOW = 4 << 20  # bytes the board may send before an acknowledgment
_LONG = 3600.0  # disables paramiko's own limits; the deadline's timer is exact
# AES-GCM needs no separate MAC pass; unlisted ciphers follow in paramiko's order.
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
_WEAK = ("cbc", "sha1", "md5")


class Deadline:
    """A point in time shared by all steps of a call."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds; never negative."""
        return max(self._end - time.monotonic(), 0.0)


@contextlib.contextmanager
def closed_after(seconds: float, close: Callable[[], None]) -> Iterator[None]:
    """Calls `close` from another thread if the block takes longer, which makes blocked calls
    fail."""
    timer = threading.Timer(seconds, close)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class SshLink:
    """Logins from here to the board, each tunneled through the previous one."""

    def __init__(self, transports: Sequence[paramiko.Transport]) -> None:
        self._transports = transports

    @property
    def board(self) -> paramiko.Transport:
        return self._transports[-1]

    @property
    def is_up(self) -> bool:
        return all(transport.is_active() for transport in self._transports)

    def close(self) -> None:
        for transport in reversed(self._transports):
            transport.close()


def open_link(target: SshTarget, deadline: Deadline) -> SshLink:
    """Logs in to the board.

    Raises UnreachableError, naming the step that got no answer; AuthenticationError if the host key
    is not the expected one (before any login attempt) or if the server accepts none of our keys.
    """
    way = _Way(target, deadline)
    try:
        with closed_after(deadline.left, way.close):
            return way.walk()
    except BaseException:
        way.close()
        raise


def fetch_host_key(
    host: str,
    port: int | None,
    deadline: float,
    *,
    config: Path | None = None,
    proxy: str | None = None,
) -> str:
    """Returns a server's host key line, for a person to compare and then pin.

    No login data is sent to that server. UnreachableError if it shows no key.
    """
    end = Deadline(deadline)
    way = _Way(SshTarget(host, host, port, config=config, proxy=proxy), end)
    try:
        with closed_after(end.left, way.close):
            return way.last_key().line
    finally:
        way.close()


@dataclass(frozen=True)
class _Expected:
    """The accepted keys of a server, and the message if it has another."""

    keys: tuple[HostKey, ...]
    kind: str
    advice: str

    @property
    def algorithms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(a for key in self.keys for a in key.algorithms))


class _Way:
    def __init__(self, target: SshTarget, deadline: Deadline) -> None:
        logging.getLogger("paramiko").addHandler(logging.NullHandler())  # errors are raised here
        self._target = target
        self._deadline = deadline
        self._hops = hops(target)
        self._open: list[paramiko.Transport | socket.socket] = []
        self._transports: list[paramiko.Transport] = []

    def walk(self) -> SshLink:
        for hop in self._hops[:-1]:
            self._connect_hop(hop, self._jump_expects(hop))
        self._connect_hop(self._hops[-1], self._board_expects())
        return SshLink(tuple(self._transports))

    def last_key(self) -> HostKey:
        for hop in self._hops[:-1]:
            self._connect_hop(hop, self._jump_expects(hop))
        return _server_key(self._negotiate(self._hops[-1], ()))

    def close(self) -> None:
        for item in reversed(self._open):
            with contextlib.suppress(OSError):
                item.close()

    def _connect_hop(self, hop: Hop, expected: _Expected) -> None:
        transport = self._open_verified(hop, expected)
        self._log_in(hop, transport)
        transport.set_keepalive(_KEEP_ALIVE_SECONDS)
        self._transports.append(transport)

    def _open_verified(self, hop: Hop, expected: _Expected) -> paramiko.Transport:
        """Connects with encryption and verifies the host key; does not attempt a login."""
        try:
            transport = self._negotiate(hop, expected.algorithms)
            found = _server_key(transport)
        except paramiko.ssh_exception.IncompatiblePeer as error:
            if not expected.keys:
                raise self._no_answer("agreeing on ciphers with", hop, error) from None
            # The server has no key of the expected type: report the one it has.
            found = _server_key(self._negotiate(hop, ()))
        if found in expected.keys:
            return transport
        self.close()
        wanted = " or ".join(map(str, expected.keys))
        outcome = f" {wanted}, found {found}" if wanted else f", found none; it shows {found}"
        raise AuthenticationError(
            f"board '{self._target.board}': {hop.host}:{hop.port}: expected {expected.kind}"
            f"{outcome}; {expected.advice}"
        )

    def _board_expects(self) -> _Expected:
        board = self._target.board
        if self._target.host_key is None:
            return _Expected((), "a pinned host key", f"pin it: edgekit board add {board}")
        pinned = parse_host_key(self._target.host_key, f"board '{board}'")
        return _Expected(
            (pinned,),
            "the pinned host key",
            "nothing was sent; if the board was reinstalled, pin it again: edgekit board add "
            f"{board}",
        )

    def _jump_expects(self, hop: Hop) -> _Expected:
        keys = KnownHosts(hop.known_hosts).keys(hop.name, hop.host, hop.port)
        return _Expected(
            keys,
            "a key in known_hosts",
            f"log in there once with: ssh {hop.name}, and compare",
        )

    def _negotiate(self, hop: Hop, algorithms: tuple[str, ...]) -> paramiko.Transport:
        """Negotiates keys with a server; `algorithms` restricts the host key types it may show."""
        transport = paramiko.Transport(self._open_socket(hop), default_window_size=_WINDOW)
        self._open.append(transport)
        transport.banner_timeout = transport.handshake_timeout = _LONG
        transport.auth_timeout = transport.channel_timeout = _LONG
        options = transport.get_security_options()
        options.ciphers = _order_algorithms(options.ciphers, _CIPHERS)
        options.digests = _order_algorithms(options.digests, ())
        if algorithms:
            options.key_types = [name for name in algorithms if name in options.key_types]
        try:
            transport.start_client()
        except paramiko.ssh_exception.IncompatiblePeer:
            raise
        except (paramiko.SSHException, EOFError, OSError) as error:
            step = "exchanging keys with" if transport.remote_version else "reading the banner of"
            raise self._no_answer(step, hop, error) from None
        return transport

    def _open_socket(self, hop: Hop) -> Any:
        try:
            if self._transports:
                to, of = (hop.host, hop.port), ("127.0.0.1", 0)
                return self._transports[-1].open_channel("direct-tcpip", to, of)
            found = _connect(hop.host, hop.port, self._deadline)
            self._open.append(found)
            return found
        except (paramiko.SSHException, EOFError, OSError) as error:
            raise self._no_answer("connecting to", hop, error) from None

    def _log_in(self, hop: Hop, transport: paramiko.Transport) -> None:
        offered = candidates(hop.identities, hop.use_agent)
        refused: list[str] = list(offered.notes)
        for candidate in offered.keys:
            try:
                if not transport.auth_publickey(hop.user, candidate.key):
                    return
                refused.append(f"{candidate.label}: not enough by itself")
            except paramiko.SSHException as error:
                if not transport.is_active():
                    if len(refused) > len(offered.notes) and self._deadline.left:
                        refused.append("too many keys were tried: name one with an identity file")
                        break
                    raise self._no_answer("logging in at", hop, error) from None
                refused.append(f"{candidate.label}: refused")
            except (EOFError, OSError) as error:
                raise self._no_answer("logging in at", hop, error) from None
        raise AuthenticationError(
            f"board '{self._target.board}': expected {hop} to accept a key, found "
            f"{'; '.join(refused) or 'none to offer'}; add the public key to "
            "~/.ssh/authorized_keys there, or name another identity"
        )

    def _no_answer(self, step: str, hop: Hop, error: Exception) -> UnreachableError:
        """After the deadline, reports a timeout: its timer closes everything, which causes other
        errors."""
        if self._deadline.left:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        else:
            why = f"no answer within {self._deadline.seconds:g} s"
        return UnreachableError(
            f"board '{self._target.board}': expected an SSH server while {step} "
            f"{hop.host}:{hop.port}, found: {why}; check power, cable, address and port"
        )


def _server_key(transport: paramiko.Transport) -> HostKey:
    key = transport.get_remote_server_key()
    return HostKey(key.get_name(), key.asbytes())


def _order_algorithms(there: Sequence[str], first: tuple[str, ...]) -> list[str]:
    strong = [name for name in there if not any(weak in name for weak in _WEAK)]
    return sorted(strong, key=lambda name: first.index(name) if name in first else len(first))


def _connect(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Connects like socket.create_connection, with one deadline for the resolver and all
    addresses."""
    last: OSError = TimeoutError(0, "no address")
    for family, kind, protocol, _, address in _resolve(host, port, deadline):
        found = socket.socket(family, kind, protocol)
        try:
            found.settimeout(max(deadline.left, 0.001))
            found.connect(address)
            # Requests are written in one piece: Nagle's algorithm would only add latency.
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):  # detects a pulled plug during any wait
                found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_MS)
            return found
        except OSError as error:
            found.close()
            last = error
    raise last


def _resolve(host: str, port: int, deadline: Deadline) -> list[Any]:
    """getaddrinfo with a deadline: it has no timeout, so a late call is abandoned in its thread."""
    found: list[Any] = []
    failed: list[OSError] = []

    def ask() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error)
        except ValueError:  # a name with an empty or too long part
            failed.append(OSError(0, "not a host name"))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(deadline.left)
    if thread.is_alive():
        raise TimeoutError(0, "no answer from the resolver")
    if failed:
        raise failed[0]
    return found
