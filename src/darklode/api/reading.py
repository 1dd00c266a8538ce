"""Opening, reporting, exporting and searching runs, as functions."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from darklode.api.launching import Names, names_of, text_of
from darklode.api.rows import TableRows
from darklode.api.views import Location, ReportPage, RunView, url_of
from darklode.pipeline.base.artifacts import Run


def open(url: Location) -> RunView:
    """Open a run, complete or not, or another folder made by a job.

    Args:
        url: its folder, or `s3://bucket/prefix`.

    Raises:
        ArtifactError: it holds no run.
    """
    return RunView(url)


def report(run: Location) -> ReportPage:
    """Write the report of a run, adapter, generated queries or scaling laws; a notebook shows it inline.

    Args:
        run: its folder.
    """
    from darklode.flows.stage_runner import write_pages

    write_pages(Run(url_of(run)))
    return RunView(run).report


def export(
    run: Location, format: str, to: str | Path, *, withhold_test: str | Path | None = None, tenant: str | None = None
) -> list[Path]:
    """Export a run to a standard format, as `darklode export` does; returns the files.

    Args:
        run: the run.
        format: name of the format, e.g. beir, trec or sentence-transformers.
        to: output folder; must be new or empty.
        withhold_test: write the test labels to this folder instead.
        tenant: export only this tenant; None: all tenants in one folder.

    Raises:
        ExportError: the run cannot be exported to this format.
    """
    from darklode.flows.runs import existing
    from darklode.pipeline.export import formats

    test_folder = None if withhold_test is None else Path(withhold_test)
    return list(formats.export(existing(url_of(run)), format, Path(to), test_folder, tenant))


def search(
    run: Location,
    query: str,
    *,
    encoder: Names = (),
    retriever: Names = (),
    index: Location | None = None,
    tenant: str | None = None,
) -> TableRows:
    """The top 10 texts of a run for a query, for one or two systems, as `darklode search` shows them.

    Args:
        run: the run.
        query: query text.
        encoder: `base`, an encoder from the settings, a sentence-transformers model, or an output of `adapt`.
        retriever: retriever from the settings; without any system: the run's first.
        index: index of the run; an adapter given with it encodes its queries.
        tenant: tenant to search; required if the run has several.

    Returns:
        Columns: system, rank, text_id, doc_id, title, heading, text, score.
    """
    from darklode.flows.commands.search import search_lists, select_fields

    _, lists, _ = search_lists(url_of(run), query, names_of(encoder), names_of(retriever), text_of(index), tenant)
    rows = [{"system": system} | row for system, hits in lists.items() for row in select_fields(hits)]
    texts = {name: pa.string() for name in ("system", "rank", "text_id", "doc_id", "title", "heading", "text", "score")}
    return TableRows(pa.Table.from_pylist(rows, pa.schema(texts | {"rank": pa.int64(), "score": pa.float64()})))
