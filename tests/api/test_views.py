"""A run, a job's result and a report in a notebook."""

from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest

import darklode
from darklode.api.rows import TableRows
from darklode.api.views import Findings, JobResult, ReportPage, url_of
from helpers.commands import SampleRun

pytestmark = pytest.mark.server


def test_a_view_is_accepted_wherever_a_folder_is(sample_run: SampleRun) -> None:
    run = darklode.open(sample_run.folder)
    assert darklode.open(run).url == url_of(run) == url_of(Path(run.url)) == str(sample_run.folder)
    assert eval(repr(run)).url == run.url
    html = ElementTree.fromstring(f"<div>{run._repr_html_()}</div>")
    assert html.findtext("p/code") == run.url
    assert [row[0].text for row in html.findall(".//tbody/tr")] == run.tables


def test_a_result_shows_verdict_figures_and_notes_escaped(sample_run: SampleRun) -> None:
    figure, nothing = TableRows(pa.table({"a": ["<i>"]})), TableRows(pa.table({"a": pa.array([], pa.string())}))
    figures = {"gain <b>": figure, "empty": nothing}
    result = JobResult(sample_run.folder, Findings("better & <b>", True, figures, ("<script>",)))
    assert (result.verdict, result.passed, result.notes) == ("better & <b>", True, ["<script>"])
    assert list(result.figures) == list(figures)
    assert repr(result).splitlines()[1:] == ["better & <b>", "figures: gain <b>, empty"]
    html = ElementTree.fromstring(f"<div>{result._repr_html_()}</div>")
    assert html.findtext("p/strong") == "better & <b>"
    assert [title.text for title in html.findall("h4")] == ["gain <b>"], "figures without rows are not shown"
    assert "script" not in {element.tag for element in html.iter()}
    assert "<script>" in "".join(html.itertext())
    quiet = JobResult(sample_run.folder, Findings(None, None, {}, ()))
    assert repr(quiet) == f"darklode.open({str(sample_run.folder)!r})"


def test_a_report_opens_in_a_frame_that_may_do_nothing(sample_run: SampleRun) -> None:
    report = darklode.open(sample_run.folder).report
    assert Path(report.url).read_text(encoding="utf-8") == report.html
    frame = ElementTree.fromstring(report._repr_html_())
    assert frame.tag == "iframe"
    assert frame.attrib["sandbox"] == ""
    assert unescape(report._repr_html_().partition('srcdoc="')[2].removesuffix('"></iframe>')) == report.html
    assert set(frame.attrib) == {"sandbox", "title", "style", "srcdoc"}
    hostile = ReportPage("x", '"></iframe><script>alert(1)</script>')
    assert [element.tag for element in ElementTree.fromstring(hostile._repr_html_()).iter()] == ["iframe"]


def test_a_missing_report_says_how_to_write_it(copied: Path) -> None:
    (copied / "report.html").unlink()
    run = darklode.open(copied)
    with pytest.raises(darklode.DarklodeError, match=r"has no report; darklode\.report\("):
        run.report  # noqa: B018
    assert darklode.report(run).html == run.report.html
