"""Runs a contender in its own process and talks to it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit.host.errors import InputError
from edgekit.host.lab.bench.environments import interpreter
from edgekit.host.lab.zoo.cases import InputSpec

_SCRIPT = Path(__file__).parent / "worker.py"
# These slow NumPy's own BLAS on some machines and would bias a comparison.
_HARMFUL = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")


class AnsweringProcess:
    """A program that sends a greeting and then answers each JSON line with one.

    `name` is for messages; `hello` is the greeting. Raises InputError if the program reports an
    error, exits, or does not answer within `deadline_s`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        deadline_s: float,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._name = name
        self._deadline_s = deadline_s
        environment = {k: v for k, v in os.environ.items() if k not in _HARMFUL}
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, **(variables or {})},
        )
        try:
            self.hello = self._read_reply()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Sends one question and returns the answer."""
        assert self._process.stdin is not None
        # _read_reply detects a dead process, and knows its exit code.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        return self._read_reply()

    def close(self) -> None:
        process = self._process
        with contextlib.suppress(BrokenPipeError):
            if process.stdin:
                process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()

    def _read_reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self._deadline_s)
        if not ready:
            self._process.kill()
            raise InputError(f"{self._name}: no answer within {self._deadline_s:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            raise InputError(f"{self._name}: its process ended with exit code {code}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise InputError(f"{self._name}: {answer['error']}")
        return answer


class Worker:
    """One contender in its own process; a context manager.

    kind: "edgekit", "litert:SET" or "tflite-runtime:SET" with SET one of worker.KERNEL_SETS,
    "onnxruntime", "openvino", "mnn" or "ncnn". model: the .tflite or .onnx file, or for edgekit
    the folder with model.so and weights.bin. cpus: the cores its threads are pinned to; empty for
    no pinning. shapes: of the model's dynamic inputs. tell: reports the download of an engine.
    Raises InputError if the engine is unavailable or fails on the model.
    """

    def __init__(
        self,
        kind: str,
        model: Path,
        threads: int = 1,
        cpus: tuple[int, ...] = (),
        deadline_s: float = 300.0,
        shapes: Mapping[str, Sequence[int]] | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.kind = kind
        cpu_list = ",".join(str(c) for c in cpus)
        sizes = json.dumps(shapes or {})
        python = interpreter(kind, model, tell)
        command = [python, str(_SCRIPT), kind, str(model.resolve()), str(threads), cpu_list, sizes]
        self._process = AnsweringProcess(kind, command, deadline_s, _worker_environment(python))
        hello = self._process.hello
        self.version = str(hello["version"])
        self.stateful = bool(hello["stateful"])
        self.inputs = tuple(InputSpec(tuple(i["shape"]), i["dtype"]) for i in hello["inputs"])

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, inputs: Path, outputs: Path, steps: int = 1) -> None:
        """Runs every row of `inputs` (.npz: in0, in1, ...) and writes `outputs` (out0, ...)."""
        question = {"do": "run", "inputs": str(inputs), "outputs": str(outputs), "steps": steps}
        self._process.ask(question)

    def time(self, count: int) -> list[int]:
        """Nanoseconds of each of `count` inferences."""
        return [int(ns) for ns in self._process.ask({"do": "time", "count": count})["ns"]]

    def close(self) -> None:
        self._process.close()


def _worker_environment(python: str) -> dict[str, str]:
    """Environment variables that let worker.py in another environment find this edgekit."""
    if python == sys.executable:
        return {}
    import edgekit

    return {"EDGEKIT_SOURCES": os.pathsep.join(str(Path(p).parent) for p in edgekit.__path__)}
