"""Views of runs, and what jobs return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from darklode.api.rows import TableRows, html_table
from darklode.flows.config import recorded_settings
from darklode.flows.runs import existing
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.report.formatting import clean
from darklode.schemas.settings import Settings

REPORT_HEIGHT = "70vh"
FIGURE_ROWS_SHOWN = 30


@dataclass(frozen=True, repr=False)
class ReportPage:
    """A report; a notebook shows it inline, as the last value of a cell.

    Attributes:
        url: path of `report.html`.
        html: the page.
    """

    url: str
    html: str

    def __repr__(self) -> str:
        return f"<report {self.url}>"

    def _repr_html_(self) -> str:
        """The page in a frame that may run no script and reach neither the notebook nor the network."""
        style = f"width: 100%; height: {REPORT_HEIGHT}; border: 1px solid #8888"
        return f'<iframe sandbox="" title="Report" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


class RunView:
    """A read-only view of a run, or of another folder made by a job; functions accept it wherever they take a folder.

    It has no state: it reads its folder on each access, so it sees what a later build wrote.

    Args:
        url: the folder or `s3://` prefix.

    Raises:
        ArtifactError: no stage is complete there.
    """

    def __init__(self, url: Location) -> None:
        self._run = existing(url_of(url))

    def __repr__(self) -> str:
        return f"darklode.open({self.url!r})"

    def _repr_html_(self) -> str:
        """The folder and its tables with their numbers of rows."""
        tables = [{"table": name, "rows": self._run.tables(name).rows(name)} for name in self.tables]
        rows = TableRows(pa.Table.from_pylist(tables, pa.schema([("table", pa.string()), ("rows", pa.int64())])))
        listing = f"<details><summary>{len(tables)} tables</summary>{html_table(rows, len(rows))}</details>"
        return f"<p><code>{escape(clean(self.url))}</code></p>{listing}"

    @property
    def url(self) -> str:
        """The folder or prefix."""
        return self._run.store.url

    @property
    def tables(self) -> list[str]:
        """Names of the tables of complete stages; docs/reference/tables.md lists their columns."""
        return sorted(self._run.parts())

    def table(self, name: str) -> TableRows:
        """A table, in the order written.

        Raises:
            ArtifactError: no complete stage has written it.
        """
        return TableRows(self._run.tables(name).read(name))

    def sql(self, select: str) -> TableRows:
        """The result of one SELECT in DuckDB's SQL; every table of the run is a view, and nothing else is readable.

        Raises:
            InputError: DuckDB cannot run it, or it is not one SELECT.
        """
        from darklode.pipeline.base.duckdb_views import query

        return TableRows(query(self._run, select))

    @property
    def settings(self) -> Settings:
        """The run's settings."""
        return recorded_settings(self._read("settings.yaml"))

    def status(self) -> TableRows:
        """A row per stage: up to date or why it would be redone, its result, and its seconds."""
        from darklode.flows.commands.status import STAGE_COLUMNS, stage_rows

        schema = [(name, pa.float64() if number else pa.string()) for name, number in STAGE_COLUMNS.items()]
        return TableRows(pa.Table.from_pylist(stage_rows(self._run), pa.schema(schema)))

    @property
    def card(self) -> str:
        """The dataset card, as Markdown."""
        return self._read("README.md")

    @property
    def report(self) -> ReportPage:
        """The report that the last job wrote; `darklode.report(run)` writes it anew.

        Raises:
            ArtifactError: there is none.
        """
        from darklode.pipeline.report.page import REPORT_FILE

        if not (html := self._read(REPORT_FILE)):
            raise ArtifactError(f"{self.url} has no report; darklode.report({self.url!r}) writes it")
        return ReportPage(self._run.store.path(REPORT_FILE), html)

    def _read(self, file: str) -> str:
        return (self._run.store.read(file) or b"").decode()


Location: TypeAlias = str | Path | RunView
"""A local path, an `s3://bucket/prefix`, or the view of a run."""


@dataclass(frozen=True)
class Findings:
    """What a job reports besides the tables it writes.

    Attributes:
        verdict: the decision or summary as a sentence; None if the job makes none.
        passed: whether an adapted encoder is released, or a run may be published; None if nothing was to be decided.
        figures: tables by name, as `--json` of the command names them.
        notes: warnings and other sentences.
        shown: tables by title that a notebook shows; None: the figures.
    """

    verdict: str | None
    passed: bool | None
    figures: Mapping[str, TableRows]
    notes: tuple[str, ...]
    shown: Mapping[str, TableRows] | None = None


class JobResult(RunView):
    """The folder that a job wrote, and what its command prints."""

    def __init__(self, url: Location, findings: Findings) -> None:
        super().__init__(url)
        self._findings = findings

    def __repr__(self) -> str:
        parts = [
            f"darklode.open({self.url!r})",
            self.verdict,
            f"figures: {', '.join(self.figures)}" * bool(self.figures),
        ]
        return "\n".join(filter(None, parts))

    def _repr_html_(self) -> str:
        """Verdict, figures and notes above the folder."""
        shown = self.figures if self._findings.shown is None else self._findings.shown
        verdict = f"<p><strong>{escape(clean(self.verdict))}</strong></p>" if self.verdict else ""
        figures = "".join(
            f"<h4>{escape(clean(title))}</h4>{html_table(rows, FIGURE_ROWS_SHOWN)}"
            for title, rows in shown.items()
            if len(rows)
        )
        notes = "".join(f"<p>{escape(clean(note))}</p>" for note in self.notes)
        return f"{verdict}{figures}{notes}{super()._repr_html_()}"

    @property
    def verdict(self) -> str | None:
        """The decision or summary as a sentence; None if the job makes none."""
        return self._findings.verdict

    @property
    def passed(self) -> bool | None:
        """Whether an adapted encoder is released, or a run may be published; None if nothing was to be decided."""
        return self._findings.passed

    @property
    def figures(self) -> dict[str, TableRows]:
        """Tables by name, as `--json` of the command names them."""
        return dict(self._findings.figures)

    @property
    def notes(self) -> list[str]:
        """Warnings and other sentences."""
        return list(self._findings.notes)


def url_of(location: Location) -> str:
    """A location as text."""
    return location.url if isinstance(location, RunView) else str(location)
