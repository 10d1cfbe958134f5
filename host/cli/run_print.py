"""Prints what `edgekit run` found: text for people, or one JSON document."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.cli.results import STDOUT

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.specs import TensorSpec
    from edgekit.host.cli.findings import FileResult
    from edgekit.host.cli.run_job import RunJob
    from edgekit.host.deploy.board import Board
    from edgekit.host.deploy.release import InferenceSession

_MOST_PAIRS = 45  # of vectors that are listed, the most alike first


def _dtype_name(spec: TensorSpec) -> str:
    import numpy as np

    return str(np.dtype(BY_NAME[spec.dtype].npy))


def print_results(
    device: Board, session: InferenceSession, job: RunJob, found: list[FileResult], as_json: bool
) -> None:
    """Prints the results of all files, or how good they are if that was asked for."""
    import statistics

    from edgekit.host.cli.output import emit, note
    from edgekit.host.cli.report import time_key, time_label
    from edgekit.host.deploy.explanations import nna_account, nna_lines

    evaluation = job.evaluation(found, session)
    times = [ms for each in found for ms in each.latencies_ms]
    served = session.served
    outputs = served.of(job.signature)[0].outputs
    accounts = [nna_account(served.release, i) for i in range(len(served.variants))]
    if session.replaced_by:
        note(
            f"release {session.replaced_by} went into service during this session, which used "
            f"{served.release} throughout"
        )
    if as_json:
        emit(
            {
                "schema": "edgekit.run/1",
                "board": device.name,
                "release": served.release,
                "threads": served.threads,
                "emulated": device.emulated,
                time_key(device.emulated): statistics.median(times),
                "nna": [account for account in accounts if account],
                "output": job.output,
                "outputs": [
                    {"name": spec.name, "dtype": _dtype_name(spec), "shape": spec.shape}
                    for spec in outputs
                ],
                "inputs": [
                    {
                        "input": str(each.file),
                        **({} if each.text is None else {"text": each.text}),
                        time_key(device.emulated): list(each.latencies_ms),
                        "top": [[asdict(c) for c in classes] for classes in each.classes],
                        **_findings(each),
                    }
                    for each in found
                ],
                **({"evaluation": evaluation.document} if evaluation else {}),
            }
        )
        return
    say = note if job.output == STDOUT else print
    say(f"release  {served.release} on {device.name}")
    how = "one run, cold" if len(times) == 1 else f"median of {len(times)} runs"
    say(f"{time_label(device.emulated)} {statistics.median(times):.3f} ms ({how})")
    for line in itertools.chain(*map(nna_lines, accounts)):
        say(f"nna      {line}")
    for spec in outputs:
        say(f"output   {spec.name}: {_dtype_name(spec)} {list(spec.shape)}")
    vectors = [(each.title, each.vector) for each in found if each.vector is not None]
    each = itertools.chain(*map(_found_lines, found), _cosine_lines(vectors))
    lines = evaluation.lines if evaluation else each
    for line in lines:
        say(line)
    if job.output and job.output != STDOUT:
        say(f"written  {job.output}")


def _found_lines(found: FileResult) -> Iterator[str]:
    """What was found in a picture, and where it is drawn, or what was heard."""
    from edgekit.host.cli.boxes import box_lines
    from edgekit.host.cli.hearing import heard_lines, subtitle_lines
    from edgekit.host.cli.reading import text_lines
    from edgekit.host.cli.segments import share_lines

    for classes in found.classes:
        yield f"top      {found.title}"
        yield from (f"  {c.score:8.4f}  {c.label or f'class {c.index}'}" for c in classes)
    if found.lines is not None:
        yield f"text     {found.file.name}: {len(found.lines) or 'none'}"
        yield from text_lines(found.lines)
    elif found.poses is not None:
        yield f"boxes    {found.file.name}: {len(found.poses) or 'none'}"
        yield from box_lines(found.poses, found.instances, found.rotated)
    if found.segments is not None:
        yield f"classes  {found.file.name}"
        yield from share_lines(found.segments)
    if found.heard is not None:
        yield f"heard    {found.file.name}: {len(found.heard) or 'nothing'}"
        yield from heard_lines(found.heard)
    if found.subtitles is not None:
        yield f"text     {found.file.name}: {len(found.subtitles) or 'none'}"
        yield from subtitle_lines(found.subtitles)
    if found.line is not None:
        yield f"text     {found.file.name}: {found.line.text or 'none'}"
        yield f"  {found.line.score:8.4f}"
    if found.spoken:
        yield f"spoken   {found.spoken.file}: {found.spoken.seconds:.2f} s"
    if made := found.image:
        yield (
            f"picture  {found.file.name}: {made.width} x {made.height}, of {made.columns} x "
            f"{made.rows} as the model takes it"
        )
    if found.drawn:
        yield f"drawn    {found.drawn}"


def _cosine_lines(found: Sequence[tuple[str, tuple[float, ...]]]) -> Iterator[str]:
    """The cosine of the named vectors of each two pictures or texts; vectors have length 1."""
    import numpy as np

    values = np.array([vector for _, vector in found])
    indices = itertools.combinations(range(len(found)), 2)
    pairs = [(float(values[i] @ values[k]), i, k) for i, k in indices]
    pairs.sort(key=lambda pair: -pair[0])
    if pairs:
        yield f"cosine   of {len(found)} vectors of {values.shape[1]} values"
    for cosine, i, k in pairs[:_MOST_PAIRS]:
        yield f"  {cosine:7.4f}  {found[i][0]}  {found[k][0]}"
    if len(pairs) > _MOST_PAIRS:
        yield f"  and {len(pairs) - _MOST_PAIRS} pairs that are less alike"


def _findings(found: FileResult) -> dict[str, Any]:
    """What was found in a picture or sound, for --json."""
    boxes, shares, outlines = found.poses, found.segments, found.outlines
    return {
        "boxes": boxes
        and [
            {
                **box._asdict(),
                "points": [p._asdict() for p in points],
                **({"mask": outlines[i]} if found.instances is not None else {}),
                **({"corners": found.rotated[i].corners} if found.rotated is not None else {}),
            }
            for i, (box, points) in enumerate(boxes)
        ],
        "heard": found.heard and [heard._asdict() for heard in found.heard],
        "vector": found.vector,
        "lines": found.lines and [line._asdict() for line in found.lines],
        "image": found.image and found.image._asdict(),
        "line": found.line and found.line._asdict(),
        "subtitles": found.subtitles and [each._asdict() for each in found.subtitles],
        "spoken": found.spoken and {"file": str(found.spoken.file), "s": found.spoken.seconds},
        "shares": shares and [share._asdict() for share in shares.shares],
    }
