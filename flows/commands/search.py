"""darklode search: what a run's systems find for a text, one or two side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import JsonOption, RunArgument, TenantOption, application
from darklode.flows.output import answering

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Row

app = application()

DEPTH = 10
MOST = 2
EXCERPT = 160
MARK = "bold yellow"


@app.command(epilog='Example: darklode search runs/first "reset my password" --retriever bm25 --encoder adapted/first')
def search(
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What is searched for.")],
    *,
    encoder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="`base`, a folder of `darklode adapt` or `train-towers`, an encoder of the settings, or a "
            "sentence-transformers model; given twice: side by side.",
        ),
    ] = None,
    retriever: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A retriever of the settings; likewise. Without any: the run's first."),
    ] = None,
    index: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="An index that `darklode index` made of the run: a further system; an adapter "
            "beside it encodes the queries of both.",
        ),
    ] = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the first ten of a run's texts for a query, with its words marked; two systems side by side."""
    from darklode.flows import open_systems
    from darklode.pipeline.base.errors import CommandLineError

    encoders, retrievers, indexes = encoder or [], retriever or [], [index] if index else []
    system_names = [*encoders, *retrievers, *indexes]
    if len(set(system_names)) != len(system_names) or len(system_names) > MOST:
        raise CommandLineError("name one system or two, and none twice")
    if not text.strip():
        raise CommandLineError("there is nothing to search for; write a query after the run")
    adapters = open_systems.open_adapters(encoders)
    with open_systems.open_index(run, tenant, list(adapters.values())) as (opened, made):
        systems = (
            open_systems.systems(
                made.settings, mined=made.is_mined, encoders=encoders, retrievers=retrievers, adapters=adapters
            )
            if encoders or retrievers or not index
            else {}
        )
        systems |= open_systems.compressed_systems(index, opened, adapters) if index else {}
        hits = opened.top(systems, [text], DEPTH).to_pylist()
        words = opened.texts_by_id(sorted({row["text_id"] for row in hits}))
        tenant_name = opened.tenant
    lists = {name: [row | words[row["text_id"]] for row in hits if row["system"] == name] for name in systems}
    with answering(as_json) as answer:
        answer.fact("query", text)
        answer.fact("tenant", tenant_name)
        answer.fact("systems", [{"system": name, "found": _plain(rows)} for name, rows in lists.items()])
        if len(lists) == MOST:
            both = len(set.intersection(*({row["text_id"] for row in rows} for rows in lists.values())))
            answer.fact("overlap", both)
    if not as_json:
        _show(text, lists, made.settings.bm25)


def _plain(rows: Sequence[Row]) -> list[Row]:
    shown = ("rank", "text_id", "doc_id", "title", "heading", "text", "score")
    return [{name: row[name] for name in shown} for row in rows]


def _show(query: str, lists: Mapping[str, Sequence[Row]], terms: Any) -> None:
    """A column a system, a row a place; beside the second system's texts stands where the first has them."""
    from rich.table import Table
    from rich.text import Text

    from darklode.flows.console import console, printable
    from darklode.pipeline.base.highlighting import Highlighter
    from darklode.pipeline.base.terms import Analyzer

    marker = Highlighter.of_terms(Analyzer(terms.stemmer, terms.stop_words), query)
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    for name in lists:
        table.add_column(printable(name), overflow="fold", ratio=1)
    first, *other_lists = lists.values()
    ranks = {row["text_id"]: row["rank"] for row in first}
    for rank in range(max(map(len, lists.values()))):
        cells = [_cell(first, rank, marker, None), *(_cell(rows, rank, marker, ranks) for rows in other_lists)]
        table.add_row(Text(str(rank + 1)), *cells)
    console.print(table if any(lists.values()) else "Nothing is found.")


def _cell(rows: Sequence[Row], rank: int, marker: Any, before: Mapping[str, int] | None) -> Any:
    """A text's title, score and what it says around the first marked word."""
    from rich.text import Text

    cell = Text()
    if rank >= len(rows):
        return cell
    row = rows[rank]
    _add(
        cell,
        marker.pieces(" · ".join(part for part in (row["title"] or row["doc_id"], row["heading"]) if part)),
        "bold",
    )
    cell.append(f"  {row['score']:.3f}", "dim")
    if before is not None:
        was = before.get(row["text_id"])
        cell.append(f"  {'new' if was is None else 'same place' if was == row['rank'] else f'was {was}'}", "dim")
    cell.append("\n")
    _add(cell, marker.excerpt(" ".join(row["text"].split()), EXCERPT), "")
    return cell.append("\n")


def _add(cell: Any, pieces: Sequence[Any], style: str) -> None:
    from darklode.flows.console import escape_for_terminal

    for piece in pieces:
        cell.append(" ".join(escape_for_terminal(piece.text).split("\n")), f"{style} {MARK}" if piece.marked else style)
