"""Markdown summary of a run for operators: pending decisions, results, cost and files; shown in Prefect."""

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
"""Keys of the report's figures in the order of this page: decisions first."""

FILES = {
    "report.html": "report",
    "README.md": "dataset card",
    "tables/triplets": "triplets (Parquet)",
    "settings.yaml": "settings used",
}


def operator_page(
    run_url: str, source: ReportSource, sections: Sequence[tuple[FigureSection, Sequence[FilledFigure]]]
) -> str:
    """Render the page as Markdown.

    Args:
        run_url: the run's folder or prefix.
        source: the run.
        sections: the report's figures.
    """
    figures = {figure.figure.key: figure for _, section_figures in sections for figure in section_figures}
    shown_figures = [figures[key] for key in SHOWN if key in figures]
    tables = ((figure.figure.title, figure.table, "") for figure in shown_figures)  # notes describe drawings: omitted
    return document([*_head(source), _files(run_url)], tables, [])


def _head(source: ReportSource) -> Iterator[str]:
    head = header(source)
    yield f"# {cell(head.name)}"
    sizes = ", ".join(f"{size} {label}" for label, size in head.sizes)
    yield f"{head.kind}, {f'finished {head.finished}' if head.finished else 'not finished'}: {sizes}."
    for warning in head.warnings:
        yield "\n".join(
            [
                f"> **{cell(warning.title)}** {cell(warning.text)}".rstrip(),
                *(f"> - {cell(item)}" for item in warning.items),
            ]
        )


def _files(run_url: str) -> str:
    root = run_url if "://" in run_url else f"file://{quote(run_url)}"
    return "\n".join(f"- [{label}](<{root}/{name}>): `{cell(run_url)}/{name}`" for name, label in FILES.items())
