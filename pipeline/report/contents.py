"""The report's sections in data order: the one list from which the page and Prefect's artifacts are made."""

from collections.abc import Iterator

from pipeline.report.figure import Section, Shown, shown
from pipeline.report.sections import (
    audit,
    cost,
    judging,
    mining,
    overview,
    people,
    pool,
    positives,
    queries,
    triplets,
    validation,
)
from pipeline.report.source import Source

SECTIONS = (
    overview.SECTION,
    queries.SECTION,
    pool.SECTION,
    judging.SECTION,
    positives.SECTION,
    people.SECTION,
    validation.SECTION,
    audit.SECTION,
    mining.SECTION,
    triplets.SECTION,
    cost.SECTION,
)


def shown_sections(source: Source) -> Iterator[tuple[Section, list[Shown]]]:
    """The sections that have a figure for this run, with their figures."""
    for section in SECTIONS:
        found = list(shown(section.figures, source))
        if found:
            yield section, found
