"""Gets from a console in an unknown state to our agent running behind its shell."""

from __future__ import annotations

import binascii
import functools
import importlib.resources
import json
import re
import secrets
import time
import zlib

from edgekit.device.runtime.agent.frames import HANGUP
from edgekit.host.deploy.transport.serial_line import Line, SerialTarget
from edgekit.host.errors import AuthenticationError, IncompatibleError, UnreachableError

_QUIET = 0.15  # seconds without a byte, after which the console's output counts as complete
_ANSWER = 3.0  # for an answer to Enter
_SLOW = 12.0  # for slow operations: a login, starting Python
_LOGINS = 3  # more might lock the account
_PIECE = 450  # bytes; one base64 line of it stays below every line limit

_KERNEL = rb"\[ *\d+\.\d+\]"  # prefix of a kernel message, which may follow a prompt
_END = rb" *(?:\x1b\[[0-9;?]*[a-zA-Z] *)*(?:$|[\r\n]|" + _KERNEL + rb")"
_LOGIN = re.compile(rb"(?<!Last )[Ll]ogin:" + _END)
_PASSWORD = re.compile(rb"[Pp]assword:" + _END)
_REFUSED = re.compile(rb"[Ll]ogin incorrect|[Pp]ermission denied|[Aa]uthentication failure")
_NOTHING = re.compile(rb"(?!)")
_FRAME = re.compile(rb"~[ADad][^~]+~")
_PROMPT = re.compile(rb"[#$%>]" + _END)

_MODULES = ("frames", "messages", "console")

# Receives the program in checksummed pieces and starts it. Kept short because it is typed into a
# shell, and some shells accept no more than 1023 characters.
_RECEIVER = """\
import json,os,select,sys,termios,tty,types,zlib
from binascii import a2b_base64
old=termios.tcgetattr(0)
parts=[]
rest=b""
try:
 tty.setraw(0)
 while 1:
  os.write(1,b"\\n%(tag)s=%%d;\\n"%%len(parts))
  if len(parts)==%(count)d:break
  more=1
  while more:
   if not select.select([0],[],[],9)[0]:sys.exit()
   rest+=os.read(0,9999)
   if b"~HANGUP~" in rest:sys.exit()
   *lines,rest=rest.split(b"\\n")
   for line in filter(None,lines):
    more=0
    try:
     number,crc,data=line.split(b":")
     data=a2b_base64(data)
     if int(number)==len(parts) and int(crc)==zlib.crc32(data):parts.append(data)
    except ValueError:pass
 for name,text in json.loads(zlib.decompress(b"".join(parts))):
  m=types.ModuleType(name)
  sys.modules[name]=m
  exec(compile(text,name,"exec"),m.__dict__)
 m.serve(%(root)r,%(session)d)
finally:termios.tcsetattr(0,termios.TCSANOW,old)
"""


class Shell:
    """A serial line with a login prompt, then a shell. All waits end at `end`.

    Raises UnreachableError, naming the expected output, and AuthenticationError.
    """

    def __init__(self, line: Line, target: SerialTarget, end: float) -> None:
        self._line = line
        self._target = target
        self._end = end
        self._seen = b""  # the latest output, for messages
        self._logins = 0
        self._logged_in = False  # by us
        self._started = False  # our agent

    def reach_shell(self, cut: bool) -> None:
        """Types Enter, user name and password until a shell answers.

        After a `cut`, our agent is probably still running.
        """
        if cut:
            self._line.write(HANGUP)
        while True:
            self._check_time("a login or shell prompt")
            self._line.write(b"\r")
            seen = self._read_until(_ANSWER, _LOGIN, _PROMPT, _FRAME)
            if _LOGIN.search(seen):
                self._log_in()
            elif not seen.strip() or _FRAME.search(seen):
                self._line.write(HANGUP)  # possibly our agent, from another session
            elif self._is_shell():
                return
            else:
                self._line.write(b"\x03")  # possibly a half-typed line

    def find_python(self) -> str:
        """Returns the path of a Python 3.9 or newer. Raises IncompatibleError."""
        names = " ".join(f"python3{v}" for v in ("", ".13", ".12", ".11", ".10", ".9"))
        test = "import sys; sys.exit(sys.version_info < (3, 9))"
        found = self._read_variable(
            f"v=; for p in {names}; do $p -ISc '{test}' 2>/dev/null && v=$(command -v $p) "
            '&& break; done; [ "$v" ] || v=$(python3 -V 2>&1)'
        )
        if not re.fullmatch(r"/[\w./+-]+", found):
            raise IncompatibleError(
                f"board '{self._target.board}': expected Python 3.9 or newer, found: "
                f"{found or 'none'}; install python3 on the board"
            )
        return found

    def start_agent(self, python: str, root: str, session: int) -> None:
        """Sends our agent in pieces and starts it; the line carries frames from then on."""
        pieces = _program_pieces()
        while True:
            self._check_time("Python to start")
            tag = secrets.token_hex(4)
            values = {"tag": tag, "count": len(pieces), "root": root, "session": session}
            packed = zlib.compress((_RECEIVER % values).encode(), 9)
            coded = binascii.b2a_base64(packed, newline=False).decode()
            run = f'import zlib,base64;exec(zlib.decompress(base64.b64decode("{coded}")))'
            # The last command reports a failed start immediately. printf assembles the word, so the
            # echo of the typed command does not match it.
            end = f"printf '%s-ended;\\n' {tag}"
            self._started = True
            self._line.write(f"{python} -ISc '{run}'; {end}\r".encode())
            if self._send_pieces(pieces, tag.encode()):
                return
            self._line.write(b"\x03\r")
            self._read_until(_ANSWER, _PROMPT)

    def leave(self, seconds: float) -> None:
        """Ends our agent and logs out if we logged in; restores the console to its original
        state."""
        if self._started:
            self._line.write(2 * HANGUP)  # twice: one may be damaged
            self._end = time.monotonic() + 2 * seconds
            self._read_until(seconds, _PROMPT)
        if self._logged_in:
            self._line.write(b"exit\r")
            self._read_until(seconds, _LOGIN)  # closing the line immediately may lose it

    def _send_pieces(self, pieces: list[bytes], tag: bytes) -> bool:
        """Returns whether the receiver has everything; False if it did not start or has exited."""
        counts = re.compile(rb"%s=(\d+);|%s-(ended);" % (tag, tag))
        pokes = int(_SLOW / _ANSWER)
        while not counts.search(seen := self._read_until(_ANSWER, answer=counts)) and pokes:
            self._line.write(b"\n:\n")  # makes it report its position; a no-op for a shell
            pokes -= 1
        while (found := counts.findall(seen)) and not found[-1][1]:
            number = int(found[-1][0])
            if number == len(pieces):
                return True
            data = pieces[number]
            coded = binascii.b2a_base64(data, newline=False)
            # The first newline terminates the remains of a damaged piece.
            self._line.write(b"\n%d:%d:%s\n" % (number, zlib.crc32(data), coded))
            fresh = self._read_until(_ANSWER, answer=counts)
            seen = fresh if counts.search(fresh) else seen
            self._check_time("the agent to arrive")
        return False

    def _log_in(self) -> None:
        user = self._target.user
        self._logins += 1
        self._line.write(user.encode() + b"\r")
        seen = self._read_until(_SLOW, _PASSWORD, _REFUSED, _PROMPT)
        if _PASSWORD.search(seen):
            if self._target.password is None:
                self._line.write(b"\r")
                raise AuthenticationError(
                    f"board '{self._target.board}': expected user '{user}' to need no password, "
                    "found that the console asks for one; give it with EDGEKIT_PASSWORD"
                )
            self._line.write(self._target.password.encode() + b"\r")
            seen = self._read_until(_SLOW, _REFUSED, _PROMPT, _LOGIN)
        found = _REFUSED.search(seen)
        if found or self._logins == _LOGINS:
            text = found[0].decode() if found else "the login prompt again"
            raise AuthenticationError(
                f"board '{self._target.board}': expected the console to let user '{user}' in, "
                f"found: {text}; check the user and EDGEKIT_PASSWORD"
            )
        self._logged_in = not _LOGIN.search(seen)

    def _is_shell(self) -> bool:
        tag = secrets.token_hex(4)
        self._line.write(f"printf '%s-shell;\\n' {tag}\r".encode())
        answer = re.compile(rf"{tag}-shell;".encode())
        return bool(answer.search(self._read_until(_ANSWER, _prompt_after(tag), answer=answer)))

    def _read_variable(self, command: str) -> str:
        """Runs `command` and returns the variable v it sets; printed twice to detect corruption."""
        quiet = _QUIET
        while True:
            self._check_time("an answer from the shell")
            tag = secrets.token_hex(4)
            self._line.write(f'{command}; printf \'%s(%s)%s;\\n\' {tag} "$v" "$v"\r'.encode())
            answer = re.compile(rf"{tag}\((.*?)\)\1;".encode(), re.DOTALL)
            seen = self._read_until(_SLOW, _prompt_after(tag), answer=answer, quiet=quiet)
            if found := answer.search(seen):
                return " ".join(found[1].decode("utf-8", "replace").split())
            self._line.write(b"\x03\r")
            quiet *= 2  # the prompt may have been an earlier one, of a slow shell

    def _read_until(
        self,
        seconds: float,
        *prompts: re.Pattern[bytes],
        answer: re.Pattern[bytes] = _NOTHING,
        quiet: float = _QUIET,
    ) -> bytes:
        """Reads until `answer` matches, or until one of `prompts` matches and no byte has come for
        `quiet` seconds."""
        end = min(time.monotonic() + seconds, self._end)
        seen = b""
        while not answer.search(seen) and (left := end - time.monotonic()) > 0:
            data = self._line.read(min(left, quiet))
            seen += data
            if not data and any(prompt.search(seen) for prompt in prompts):
                break
        self._seen = seen or self._seen
        return seen

    def _check_time(self, waited: str) -> None:
        if time.monotonic() < self._end:
            return
        lines = self._seen.decode("utf-8", "replace").split("\n")
        last = next((text.strip() for text in reversed(lines) if text.strip()), "")
        raise UnreachableError(
            f"board '{self._target.board}': expected {waited} on {self._target.url} at "
            f"{self._target.baud} baud, found {f'{last[-80:]!r}' if last else 'silence'}; "
            "check the cable, the baud rate and that the board is on"
        )


def _prompt_after(tag: str) -> re.Pattern[bytes]:
    """Matches a prompt after the echo of a command with `tag`: the answer is complete or
    damaged."""
    return re.compile(tag.encode() + b".*" + _PROMPT.pattern, re.DOTALL)


@functools.cache
def _program_pieces() -> list[bytes]:
    """Returns the program's modules, compressed and split."""
    agent = importlib.resources.files("edgekit.device.runtime.agent")
    modules = [(name, "") for name in ("edgekit", "edgekit.device", "edgekit.device.runtime.agent")]
    modules += [
        (f"edgekit.device.runtime.agent.{name}", (agent / f"{name}.py").read_text())
        for name in _MODULES
    ]
    packed = zlib.compress(json.dumps(modules).encode(), 9)
    return [packed[start : start + _PIECE] for start in range(0, len(packed), _PIECE)]
