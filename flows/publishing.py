"""The report, on disk and as Prefect's artifacts: one list of figures makes both."""

from datetime import date
from typing import Any

import pyarrow as pa
from prefect.artifacts import create_table_artifact

from pipeline.artifacts import Run
from pipeline.report import FILE, page, shown_sections, source
from schemas.settings import Settings


def publish_report(run: Run, settings: Settings) -> None:
    """Write the run's report, and show each figure's table as an artifact of the same key."""
    with source(run, settings) as given:
        sections = list(shown_sections(given))
        run.store.write(FILE, page(given, sections))
    for _, figures in sections:
        for one in figures:
            description = f"{one.figure.title}. {one.figure.note} {run.store.url}"
            create_table_artifact(plain_rows(one.table), key=one.figure.key, description=description)


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """A table's rows as JSON takes them."""
    return [
        {name: value.isoformat() if isinstance(value, date) else value for name, value in row.items()}
        for row in table.to_pylist()
    ]
