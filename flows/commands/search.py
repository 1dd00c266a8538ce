"""darklode search: search a run's texts with one or two systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from darklode.flows.commands.options import JsonOption, RunArgument, TenantOption, application
from darklode.flows.output import answering

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Row
    from darklode.schemas.settings import Settings

app = application()

DEPTH = 10
MAX_SYSTEMS = 2
EXCERPT_CHARACTERS = 160
HIGHLIGHT_STYLE = "bold yellow"


SystemsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="`base`, an encoder from the settings, a sentence-transformers model, or an output folder of `adapt` or "
        "`train-towers`. Repeat it to compare two.",
    ),
]
RetrieversOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Retriever from the settings; repeatable. Default without any system: the run's first."
    ),
]
IndexOption = Annotated[
    str | None,
    typer.Option(
        metavar="INDEX",
        help="Index of the run built by `darklode index`; an adapter given with it encodes its queries.",
    ),
]


@app.command(epilog='Example: darklode search runs/first "reset my password" --retriever bm25 --encoder adapted/first')
def search(
    run: RunArgument,
    text: Annotated[str, typer.Argument(metavar="QUERY", help="Query text.")],
    *,
    encoder: SystemsOption = None,
    retriever: RetrieversOption = None,
    index: IndexOption = None,
    tenant: TenantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the top 10 texts of a run for a query, with query terms highlighted; two systems appear side by side."""
    tenant_name, lists, settings = search_lists(run, text, encoder or (), retriever or (), index, tenant)
    with answering(as_json) as answer:
        answer.fact("query", text)
        answer.fact("tenant", tenant_name)
        answer.fact("systems", [{"system": name, "hits": select_fields(rows)} for name, rows in lists.items()])
        if len(lists) == MAX_SYSTEMS:
            n_shared = len(set.intersection(*({row["text_id"] for row in rows} for rows in lists.values())))
            answer.fact("overlap", n_shared)
    if not as_json:
        _show(text, lists, settings.bm25)


def search_lists(
    run: str, text: str, encoder: Sequence[str], retriever: Sequence[str], index: str | None, tenant: str | None
) -> tuple[str, dict[str, list[Row]], Settings]:
    """The tenant, the top texts of each system by its name, and the run's settings.

    Raises:
        CommandLineError: an empty query, or more than two systems.
    """
    from darklode.flows import open_systems
    from darklode.pipeline.base.errors import CommandLineError

    encoders, retrievers, indexes = list(encoder), list(retriever), [index] if index else []
    system_names = [*encoders, *retrievers, *indexes]
    if len(set(system_names)) != len(system_names) or len(system_names) > MAX_SYSTEMS:
        raise CommandLineError("give one system or two different ones")
    if not text.strip():
        raise CommandLineError("the query is empty; give a query after the run")
    adapters = open_systems.open_adapters(encoders)
    with open_systems.open_index(run, tenant, list(adapters.values())) as (tenant_index, record):
        systems = (
            open_systems.systems(
                record.settings, mined=record.is_mined, encoders=encoders, retrievers=retrievers, adapters=adapters
            )
            if encoders or retrievers or not index
            else {}
        )
        systems |= open_systems.compressed_systems(index, tenant_index, adapters) if index else {}
        hits = tenant_index.top(systems, [text], DEPTH).to_pylist()
        texts_by_id = tenant_index.texts_by_id(sorted({row["text_id"] for row in hits}))
        tenant_name = tenant_index.tenant
    lists = {name: [row | texts_by_id[row["text_id"]] for row in hits if row["system"] == name] for name in systems}
    return tenant_name, lists, record.settings


def select_fields(rows: Sequence[Row]) -> list[Row]:
    """The fields of texts that are shown to users."""
    names = ("rank", "text_id", "doc_id", "title", "heading", "text", "score")
    return [{name: row[name] for name in names} for row in rows]


def _show(query: str, lists: Mapping[str, Sequence[Row]], terms: Any) -> None:
    """Print one column per system and one row per rank; the second system's texts show their rank in the first."""
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
    console.print(table if any(lists.values()) else "No results.")


def _cell(rows: Sequence[Row], rank: int, marker: Any, first_ranks: Mapping[str, int] | None) -> Any:
    """A text's title, score, and excerpt around the first highlighted term."""
    from rich.text import Text

    cell = Text()
    if rank >= len(rows):
        return cell
    row = rows[rank]
    _append_pieces(
        cell,
        marker.pieces(" · ".join(part for part in (row["title"] or row["doc_id"], row["heading"]) if part)),
        "bold",
    )
    cell.append(f"  {row['score']:.3f}", "dim")
    if first_ranks is not None:
        rank_in_first = first_ranks.get(row["text_id"])
        change = (
            "new" if rank_in_first is None else "same rank" if rank_in_first == row["rank"] else f"was {rank_in_first}"
        )
        cell.append(f"  {change}", "dim")
    cell.append("\n")
    _append_pieces(cell, marker.excerpt(" ".join(row["text"].split()), EXCERPT_CHARACTERS), "")
    return cell.append("\n")


def _append_pieces(cell: Any, pieces: Sequence[Any], style: str) -> None:
    from darklode.flows.console import escape_for_terminal

    for piece in pieces:
        cell.append(
            " ".join(escape_for_terminal(piece.text).split("\n")),
            f"{style} {HIGHLIGHT_STYLE}" if piece.marked else style,
        )
