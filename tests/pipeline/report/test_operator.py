"""The operator's page: decisions first, the figures of the report, where things lie, and texts as text."""

import re

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.operator import FIGURE_KEYS, operator_page
from darklode.pipeline.report.page import filled_sections, load_sections
from helpers.finished_run import finished_run
from helpers.report_runs import opened


def page_of(run: Run, place: str) -> str:
    with opened(run) as given:
        return operator_page(place, given, list(filled_sections(given)))


def test_what_it_shows_are_figures_of_the_report() -> None:
    assert set(FIGURE_KEYS) <= {figure.key for section in load_sections() for figure in section.figures}


def test_the_page_has_warnings_places_and_figures_in_its_own_order(run: Run) -> None:
    shown = page_of(finished_run(run.store.url), "/srv/a <b>/run")
    titles = re.findall(r"^## (.+)$", shown, re.M)
    assert titles.index("Triplets by split and source") < titles.index("Funnel") < titles.index("Time per stage")
    assert "> **Weak labels from the embedded scorer** The labels come from the embedded scorer" in shown
    assert "(<file:///srv/a%20%3Cb%3E/run/report.html>)" in shown
    assert "`/srv/a &lt;b>/run/report.html`" in shown
    assert "| ../dense one |" in shown


def test_a_run_on_s3_is_linked_as_it_is_called(run: Run) -> None:
    assert "(<s3://bucket/run/README.md>)" in page_of(finished_run(run.store.url), "s3://bucket/run")
