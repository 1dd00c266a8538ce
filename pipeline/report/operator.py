"""A run on one page for whoever operates it: what waits for a decision, what came out, what it took, where it lies."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from darklode.pipeline.base.card import cell, document
from darklode.pipeline.report.figure import FigureSection, FilledFigure
from darklode.pipeline.report.head import header
from darklode.pipeline.report.source import Source

SHOWN = (
    "log-days release validation mined-triplets triplets labels audit-retrievers evaluation online nights funnel "
    "stages cost"
).split()
"""Figures of the report by key, in the page's order: decisions first."""

FILES = {
    "report.html": "the report",
    "README.md": "the dataset card",
    "tables/triplets": "the triplets (Parquet)",
    "settings.yaml": "settings in force",
}


def operator_page(place: str, source: Source, sections: Sequence[tuple[FigureSection, Sequence[FilledFigure]]]) -> str:
    """The page, as Markdown.

    Args:
        place: the run's folder or prefix.
        source: the run.
        sections: its figures, as the report shows them.
    """
    figures = {one.figure.key: one for _, of_section in sections for one in of_section}
    found = [figures[key] for key in SHOWN if key in figures]
    tables = ((one.figure.title, one.table, "") for one in found)  # the notes speak of drawings
    return document([*_head(source), _files(place)], tables, [])


def _head(source: Source) -> Iterator[str]:
    head = header(source)
    yield f"# {cell(head.name)}"
    sizes = ", ".join(f"{size} {what}" for what, size in head.sizes)
    yield f"{head.kind}, finished {head.finished or 'never'}: {sizes}."
    for one in head.warnings:
        yield "\n".join(
            [f"> **{cell(one.title)}** {cell(one.text)}".rstrip(), *(f"> - {cell(it)}" for it in one.items)]
        )


def _files(place: str) -> str:
    root = place if "://" in place else f"file://{quote(place)}"
    return "\n".join(f"- [{what}](<{root}/{name}>): `{cell(place)}/{name}`" for name, what in FILES.items())
