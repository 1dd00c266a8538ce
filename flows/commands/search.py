"""darklode search: what a run's systems find for a text, one or two side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from darklode.flows.answer import answering
from darklode.flows.commands.options import JsonOption, RunArgument, TenantOption, application

app = application()

DEPTH = 10
MOST = 2
EXCERPT = 160
MARK = "bold yellow"

Row = dict[str, Any]


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
    from darklode.flows import serving
    from darklode.pipeline.base.errors import CommandLineError

    encoders, retrievers, indexes = encoder or [], retriever or [], [index] if index else []
    named = [*encoders, *retrievers, *indexes]
    if len(set(named)) != len(named) or len(named) > MOST:
        raise CommandLineError("name one system or two, and none twice")
    if not text.strip():
        raise CommandLineError("there is nothing to search for; write a query after the run")
    adapters = serving.adapters_of(encoders)
    with serving.open_index(run, tenant, list(adapters.values())) as (opened, made):
        systems = (
            serving.systems(
                made.settings, mined=made.mined, encoders=encoders, retrievers=retrievers, adapters=adapters
            )
            if encoders or retrievers or not index
            else {}
        )
        systems |= serving.compressed(index, opened, adapters) if index else {}
        found = opened.top(systems, [text], DEPTH).to_pylist()
        words = opened.words(sorted({row["text_id"] for row in found}))
        mine = opened.tenant
    lists = {name: [row | words[row["text_id"]] for row in found if row["system"] == name] for name in systems}
    with answering(as_json) as answer:
        answer.fact("query", text)
        answer.fact("tenant", mine)
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
    from darklode.pipeline.base.marking import Marker
    from darklode.pipeline.base.terms import Analyzer

    marker = Marker.of_terms(Analyzer(terms.stemmer, terms.stop_words), query)
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("", justify="right", no_wrap=True)
    for name in lists:
        table.add_column(printable(name), overflow="fold", ratio=1)
    first, *others = lists.values()
    ranks = {row["text_id"]: row["rank"] for row in first}
    for place in range(max(map(len, lists.values()))):
        cells = [_cell(first, place, marker, None), *(_cell(rows, place, marker, ranks) for rows in others)]
        table.add_row(Text(str(place + 1)), *cells)
    console.print(table if any(lists.values()) else "Nothing is found.")


def _cell(rows: Sequence[Row], place: int, marker: Any, before: Mapping[str, int] | None) -> Any:
    """A text's title, score and what it says around the first marked word."""
    from rich.text import Text

    cell = Text()
    if place >= len(rows):
        return cell
    row = rows[place]
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
    from darklode.flows.console import harmless

    for piece in pieces:
        cell.append(" ".join(harmless(piece.text).split("\n")), f"{style} {MARK}" if piece.marked else style)
