"""A run on one page for whoever operates it: what waits for a decision, what came out, what it took, where it lies."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from darklode.pipeline.base.card import cell, document
from darklode.pipeline.report.figure import FigureSection, FilledFigure
from darklode.pipeline.report.source import ReportSource
from darklode.pipeline.report.summary import header

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


def operator_page(
    run_url: str, source: ReportSource, sections: Sequence[tuple[FigureSection, Sequence[FilledFigure]]]
) -> str:
    """The page, as Markdown.

    Args:
        run_url: the run's folder or prefix.
        source: the run.
        sections: its figures, as the report shows them.
    """
    figures = {figure.figure.key: figure for _, of_section in sections for figure in of_section}
    shown_figures = [figures[key] for key in SHOWN if key in figures]
    tables = ((figure.figure.title, figure.table, "") for figure in shown_figures)  # the notes speak of drawings
    return document([*_head(source), _files(run_url)], tables, [])


def _head(source: ReportSource) -> Iterator[str]:
    head = header(source)
    yield f"# {cell(head.name)}"
    sizes = ", ".join(f"{size} {label}" for label, size in head.sizes)
    yield f"{head.kind}, finished {head.finished or 'never'}: {sizes}."
    for warning in head.warnings:
        yield "\n".join(
            [f"> **{cell(warning.title)}** {cell(warning.text)}".rstrip(), *(f"> - {cell(it)}" for it in warning.items)]
        )


def _files(run_url: str) -> str:
    root = run_url if "://" in run_url else f"file://{quote(run_url)}"
    return "\n".join(f"- [{label}](<{root}/{name}>): `{cell(run_url)}/{name}`" for name, label in FILES.items())
