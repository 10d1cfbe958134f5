"""`edgekit doctor`: checks whether this machine and the board are ready for use."""

from __future__ import annotations

import typer

from edgekit.host.cli.options import BoardOption, Json, Parallel, Select, board_name, examples

_UNFIT = 5


def register(app: typer.Typer) -> None:
    """Adds the command to the application."""
    app.command(
        "doctor",
        epilog=examples(
            "edgekit doctor",
            "edgekit doctor --board a57 --json",
            "edgekit doctor --select type=a57,name=pi-*",
        ),
    )(doctor)


def doctor(
    board: BoardOption = None,
    select: Select = None,
    parallel: Parallel = None,
    as_json: Json = False,
) -> int:
    """Check this machine and boards, and say how to fix problems."""
    if select:
        from edgekit.host.cli.fleet_work import doctor_on, refuse_with_select

        refuse_with_select(board=board)
        doctor_on(select, parallel, as_json)
        return 0
    from edgekit.host.cli.output import emit, painted
    from edgekit.host.cli.progress import working
    from edgekit.host.deploy.doctor import Verdict, examine

    name = board_name(board)
    with working("checking this machine"):
        findings = list(examine(name))
    failed = any(f.verdict is Verdict.FAIL for f in findings)
    if as_json:
        emit(
            {
                "schema": "edgekit.doctor/1",
                "board": name,
                "ok": not failed,
                "findings": [
                    {"check": f.check, "verdict": f.verdict, "found": f.found, "fix": f.fix}
                    for f in findings
                ],
            }
        )
    else:
        for f in findings:
            print(f"{painted(f'{f.verdict.value:4}', f.verdict.value)}  {f.check}: {f.found}")
            if f.fix:
                print(f"      fix: {f.fix}")
    return _UNFIT if failed else 0
