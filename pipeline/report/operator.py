"""Markdown summary of a run for operators: pending decisions, results, cost and files; shown in Prefect."""

from collections.abc import Iterator, Sequence
from urllib.parse import quote

from darklode.pipeline.base.card import cell, document
from darklode.pipeline.report.figure import FigureSection, FilledFigure
from darklode.pipeline.report.source import ReportSource
from darklode.pipeline.report.summary import header

FIGURE_KEYS = (
    "log-days release validation mined-triplets triplets labels audit-retrievers evaluation online nights funnel "
    "stages cost"
).split()
"""Keys of the report's figures in the order of this page: decisions first."""

# Files that the page links to, with their labels.
LINKED_FILES = {
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
        run_url: the run's folder, or its address with a scheme such as `s3://`.
        source: data of the run.
        sections: sections of the report with their figures; only figures in FIGURE_KEYS are used.
    """
    figures = {figure.figure.key: figure for _, section_figures in sections for figure in section_figures}
    shown_figures = [figures[key] for key in FIGURE_KEYS if key in figures]
    tables = ((figure.figure.title, figure.table, "") for figure in shown_figures)  # notes describe drawings: omitted
    return document([*_opening(run_url, source), _file_links(run_url)], tables, [])


def _opening(run_url: str, source: ReportSource) -> Iterator[str]:
    """Yield the paragraphs before the figures: name, state, key facts, warnings and the next command."""
    run_header = header(source)
    yield f"# {cell(run_header.name)}"
    state = f"finished {run_header.finished}" if run_header.finished else "not finished"
    yield f"{run_header.kind}, {state}."
    facts = [f"- {fact.label}: **{cell(fact.value)}** {cell(fact.note)}".rstrip() for fact in run_header.facts]
    if facts:
        yield "\n".join(facts)
    notices = [(notice.title, notice.text) for notice in run_header.notices]
    for title, text in [*notices, *((warning.headline, warning.text) for warning in run_header.warnings)]:
        yield f"> **{cell(title)}** {cell(text)}".rstrip()
    if run_header.next_steps:
        step = run_header.next_steps[0]
        yield f"Next: `{cell(step.command_line({'RUN': run_url}))}` ({step.purpose})"


def _file_links(run_url: str) -> str:
    """List of links to the run's files."""
    root = run_url if "://" in run_url else f"file://{quote(run_url)}"
    return "\n".join(f"- [{label}](<{root}/{name}>): `{cell(run_url)}/{name}`" for name, label in LINKED_FILES.items())
