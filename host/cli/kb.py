"""`edgekit lab kb lookup`: queries the knowledge base."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgekit.host.cli import kb_build
from edgekit.host.cli.kb_shared import is_learned, method_text, operator_text, profile
from edgekit.host.cli.options import (
    BoardOption,
    DataType,
    Json,
    Packed,
    examples,
    refuse_with,
    refuse_without,
)
from edgekit.host.common.text import counted

if TYPE_CHECKING:
    from edgekit.host.compiler.tables.gemm_table import GemmRow, KnowledgeBase, OperatorRow
    from edgekit.host.lab.tune.compare import AnyRow
    from edgekit.host.lab.tune.products import MatrixProduct
    from edgekit.kb.targets.board import BoardProfile

_SPARSE_TYPES = {"f32": "float32", "s8": "int8"}
Table = Annotated[
    Path | None,
    typer.Option(
        "--table",
        metavar="FILE",
        show_default=False,
        help="Table to use instead of the board's own.",
    ),
]


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Query and build the knowledge base of methods.",
        epilog=examples("edgekit lab kb lookup --board a57 --gemm 500,1600,30"),
        rich_markup_mode=None,
    )
    group.command(
        "lookup",
        epilog=examples(
            "edgekit lab kb lookup --board a57 --gemm 500,1600,30",
            "edgekit lab kb lookup --gemm 1,1024,1000 --dtype s8 --threads 2 --json",
            "edgekit lab kb lookup --board a57            # all rows of its table",
            "edgekit lab kb lookup --against kit          # what your table changes",
        ),
    )(lookup)
    kb_build.register(group)
    app.add_typer(group, name="kb")


def lookup(
    context: typer.Context,
    gemm: Annotated[
        str | None,
        typer.Option(
            "--gemm",
            metavar="M,K,N",
            help="Sizes of C[m, n] = A[m, k] times B[k, n].",
            show_default=False,
        ),
    ] = None,
    spmv: Annotated[
        str | None,
        typer.Option(
            "--spmv",
            metavar="FILE",
            help="Sparse matrix (.mtx) to look up instead.",
            show_default=False,
        ),
    ] = None,
    board: BoardOption = None,
    dtype: DataType = "f32",
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads to run on.")
    ] = 1,
    packed: Packed = "none",
    table: Table = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="Table to compare with the board's own row by row; `kit` is edgekit's.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the method for a product, or list or compare tables."""
    from edgekit.host.lab.tune.products import MatrixProduct, parse_shape

    wanted = profile(board)
    if against is not None:
        refuse_with(context, "--against", "gemm", "spmv", "dtype", "threads", "packed")
        _print_changes(_load_old_table(wanted, against), _load_table(wanted, table), as_json)
        return
    if spmv is not None:
        refuse_with(context, "--spmv", "gemm", "threads", "packed", "table")
        _lookup_spmv(spmv, wanted, dtype, as_json)
        return
    if gemm is None:
        refuse_without(context, "--gemm", "dtype", "threads", "packed")
        _print_table(wanted, _load_table(wanted, table), as_json)
        return
    shape = parse_shape(gemm, "--gemm")
    _print_answer(
        wanted, _load_table(wanted, table), MatrixProduct(shape, dtype, threads, packed), as_json
    )


def _print_answer(
    board: BoardProfile, table: KnowledgeBase, product: MatrixProduct, as_json: bool
) -> None:
    """Prints the method for a product and the rule that found it."""
    from edgekit.host.cli.output import emit

    p = product
    answer = table.choose(board, p.shape, p.dtype, p.threads, p.packed)
    if as_json:
        key = asdict(answer.key)
        emit(
            {
                "schema": "edgekit.kb.lookup/1",
                "board": board.name,
                **asdict(product),
                "key": {name: key[name] for name in ("platform", "m", "k", "n", "scale")},
                "rule": answer.rule,
                "why": answer.why,
                "method": asdict(answer.method),
                "history_rows": answer.history_rows,
            }
        )
        return
    print(f"method   {method_text(answer.method)}")
    print(f"rule     {answer.rule}: {answer.why}")
    if answer.history_rows:
        print(f"history  {counted(answer.history_rows, 'measurement')}")


def _print_table(board: BoardProfile, found: KnowledgeBase, as_json: bool) -> None:
    """Prints the rows of a table."""
    from edgekit.host.cli.output import emit, table

    if as_json:
        emit(
            {
                "schema": "edgekit.kb.show/1",
                "board": board.name,
                "platforms": list(found.platforms),
                "sequences": asdict(found.sequences),
                "priority": list(found.priority),
                "skipped": len(found.skipped),
                "rows": [asdict(row) for row in found.rows],
                "operators": [asdict(row) for row in found.operators],
            }
        )
        return
    origin = "learned from the history" if is_learned(found.sequences) else "the default ones"
    print(f"platforms  {', '.join(found.platforms)}")
    print(f"sequences  {origin}; priority {', '.join(found.priority)}")
    print(f"rows       {len(found.rows)}")
    if found.rows:
        headers = (
            "m",
            "k",
            "n",
            "dtype",
            "threads",
            "packed",
            "method",
            "source",
            "ratio",
            "GFLOP/s",
        )
        table(headers, [_format_cells(row) for row in found.rows], left=0)
    if found.operators:
        print(f"operators  {len(found.operators)}")
        heads = ("form", "m", "k", "n", "dtype", "threads", "method", "source", "ratio")
        table(heads, [_operator_cells(row) for row in found.operators], left=1)


def _print_changes(old: KnowledgeBase, new: KnowledgeBase, as_json: bool) -> None:
    """Prints the rows that differ between two tables."""
    from edgekit.host.cli.output import emit
    from edgekit.host.lab.tune.compare import compare_tables

    found = compare_tables(old, new)
    if as_json:
        emit(
            {
                "schema": "edgekit.kb.diff/1",
                "sequences_differ": found.sequences_differ,
                "added": [asdict(row) for row in found.added],
                "removed": [asdict(row) for row in found.removed],
                "changed": [{"old": asdict(a), "new": asdict(b)} for a, b in found.changed],
            }
        )
        return
    if found.sequences_differ:
        print("sequences differ: rows are compared by the product they were measured on")
    for sign, rows in (("+", found.added), ("-", found.removed)):
        for row in rows:
            print(f"{sign} {_format_key(row)}  {_format_method(row)}")
    for before, after in found.changed:
        print(f"~ {_format_key(after)}  {_format_method(before)} -> {_format_method(after)}")
    counts = f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed"
    print(f"{counts}, {found.same} the same")


def _load_old_table(board: BoardProfile, against: str) -> KnowledgeBase:
    from edgekit.host.compiler.tables.gemm import kit_table, read_table
    from edgekit.host.compiler.tables.gemm_table import KnowledgeBase

    if against != "kit":
        return read_table(Path(against))
    return kit_table(board) or KnowledgeBase((board.platform,))


def _load_table(board: BoardProfile, file: Path | None) -> KnowledgeBase:
    from edgekit.host.cli.output import note
    from edgekit.host.compiler.tables.gemm import left_out, read_table, table_of

    if file is None:
        return table_of(board)
    found = read_table(file).knowing(board.platform)
    if found.skipped:
        note(left_out(found, file, board))
    return found


def _format_key(row: AnyRow) -> str:
    key, s = row.key, row.shape
    form, packed = (f"{key.form} ", "") if key.form else ("", f" packed {key.packed}")
    return f"{form}{s.m},{s.k},{s.n} {key.dtype} x{key.threads}{packed}"


def _format_method(row: AnyRow) -> str:
    from edgekit.host.compiler.tables.gemm_table import OperatorRow

    return operator_text(row.method) if isinstance(row, OperatorRow) else method_text(row.method)


def _operator_cells(row: OperatorRow) -> tuple[str, ...]:
    key, s, how = row.key, row.shape, row.method
    method = "the default without a row" if how is None else operator_text(how)
    sizes = (str(s.m), str(s.k), str(s.n), key.dtype, str(key.threads))
    return (key.form, *sizes, method, row.source, "-" if row.ratio is None else f"{row.ratio:.4g}")


def _format_cells(row: GemmRow) -> tuple[str, ...]:
    def number(value: Any) -> str:
        return "-" if value is None else f"{value:.4g}"

    s = row.shape
    sizes = (str(s.m), str(s.k), str(s.n))
    kind = (row.key.dtype, str(row.key.threads), row.key.packed)
    rest = (method_text(row.method), row.source, number(row.ratio), number(row.gflops))
    return (*sizes, *kind, *rest)


def _lookup_spmv(matrix: str, board: BoardProfile, dtype: str, as_json: bool) -> None:
    """Prints the settings chosen for the matrix in a file. Raises InputError."""
    from edgekit.device.runtime.arrays.sparse_input import library
    from edgekit.host.cli.output import emit
    from edgekit.host.cli.tune_spmv import settings_text
    from edgekit.host.errors import InputError
    from edgekit.host.lab.bench.spmv_matrices import open_matrix
    from edgekit.host.lab.tune.spmv import settings_for

    if dtype not in _SPARSE_TYPES:
        raise InputError(f"expected --dtype f32 or s8 for a sparse matrix, found {dtype}")
    given = open_matrix(matrix, _SPARSE_TYPES[dtype])
    answer, found = settings_for(board, given), library().features(given.rows())
    if as_json:
        emit(
            {
                "schema": "edgekit.kb.lookup.spmv/1",
                "board": board.name,
                "matrix": matrix,
                "features": {**asdict(found), "spread": found.spread, "band": found.band},
                "key": asdict(answer.key),
                "rule": answer.rule,
                "why": answer.why,
                "settings": asdict(answer.settings),
            }
        )
        return
    sizes = f"{found.rows} x {found.cols}, {found.nonzeros} non-zeros"
    lengths = f"{found.mean:.3g} +- {found.deviation:.3g} per row, at most {found.longest}"
    print(f"matrix   {sizes}, {lengths} ({found.spread}, {found.band})")
    print(f"settings {settings_text(answer.settings)}")
    print(f"rule     {answer.rule}: {answer.why}")
