"""The last days of a log: which they are, how they are drawn, and a page that harms nobody."""

import re
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import Browser

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.nights import TABLES_READ, LastDays, draw_tenants, nights_page
from darklode.schemas.tables import TABLES
from helpers.contrast import CONTRAST
from helpers.days import days, garbage, judged
from helpers.report_runs import HOSTILE, parsed, text_of
from helpers.runs import put
from helpers.small_log import FIRST

DAY = date(2026, 3, 1)


def command(option: str, day: str) -> str:
    return f"darklode mine {option} {day}"


def log_day(number: int, state: str = "admitted", tenant: str = "default", **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"date": DAY + timedelta(number), "tenant": tenant, "state": state, "rows": 10, "reasons": []}
    return row | more


def measure(number: int, value: float, name: str = "searches", **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"date": DAY + timedelta(number), "tenant": "default", "measure": name, "value": value}
    return row | {"size": 10.0, "expected": None, "distance": None} | more


def written(run: Run, log_days: list[dict[str, Any]], measures: list[dict[str, Any]]) -> Run:
    put(run, "log_days", pa.Table.from_pylist(log_days, TABLES["log_days"].schema))
    put(run, "day_measures", pa.Table.from_pylist(measures, TABLES["day_measures"].schema))
    return run


def last(run: Run, n_days: int = 60, tenant: str | None = None) -> LastDays:
    return LastDays.read(run.tables(*TABLES_READ), n_days, tenant)


def test_the_last_days_newest_first_and_one_tenant(run: Run) -> None:
    rows = [log_day(number, tenant=tenant) for number in (0, 1, 5, 6) for tenant in ("a", "b")]
    written(run, rows, [measure(number, 1.0, tenant="a") for number in (0, 1, 5, 6)])
    shown = last(run, 3)
    days_shown = [(row["date"].day, row["tenant"]) for row in shown.rows]
    assert days_shown == [(7, "a"), (7, "b"), (6, "a"), (6, "b"), (2, "a"), (2, "b")]
    assert [row["date"].day for row in shown.measures] == [2, 6, 7]
    assert {row["tenant"] for row in last(run, 3, "b").rows} == {"b"}
    assert last(run, 3, "b").measures == []
    assert shown.table().column_names == ["date", "tenant", "state", "rows", "reasons", "decided_at", "note"]


def test_a_held_day_is_named_with_its_tenant_where_the_date_has_others(run: Run) -> None:
    held = [log_day(0, "held", "a", reasons=["r"]), log_day(1, "held", "a"), log_day(1, "admitted", "b")]
    written(run, [*held, log_day(2, "discarded", "a")], [])
    found = [(day.date.day, day.tenant, day.accept, day.discard) for day in last(run).held_nights(command)]
    assert found == [
        (1, "a", "darklode mine --accept-day 2026-03-01", "darklode mine --discard-day 2026-03-01"),
        (2, "a", "darklode mine --accept-day a:2026-03-02", "darklode mine --discard-day a:2026-03-02"),
    ]
    assert last(run).counts() == [("admitted", "1"), ("held", "2"), ("discarded", "1")]


def test_a_line_is_interrupted_where_a_day_has_no_value(run: Run) -> None:
    written(run, [log_day(number) for number in range(6)], [measure(number, number) for number in (0, 1, 3, 4, 5)])
    ((line,),) = [tenant.sparklines for tenant in draw_tenants(last(run))]
    assert [len(points.split()) for points in line.lines] == [2, 3]
    places = [tuple(map(float, point.split(","))) for points in line.lines for point in points.split()]
    assert [x for x, _ in places] == [pytest.approx(100 * (number + 0.5) / 6, abs=0.01) for number in (0, 1, 3, 4, 5)]
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)
    assert all(0 < y < 100 for _, y in places)
    assert (line.value, line.words, line.note, line.expected_lines) == ("148", "searches", "", [])


def test_dots_are_the_days_that_are_not_admitted_and_the_last(run: Run) -> None:
    states = ["admitted", "held", "accepted", "discarded", "missing", "admitted"]
    written(run, [log_day(*day) for day in enumerate(states)], [measure(number, 3.0) for number in range(6)])
    (tenant,) = draw_tenants(last(run))
    assert [dot.tone for dot in tenant.sparklines[0].dots] == ["b", "c", "d", "faint", "a"]
    assert [mark.tone for mark in tenant.marks] == ["a", "b", "c", "d", "faint", "a"]
    assert tenant.sparklines[0].dots[0].tip == "2026-03-02 held: 20.1"
    assert {dot.y for dot in tenant.sparklines[0].dots} == {50.0}, "a constant lies in the middle"


def test_a_measure_of_another_version_is_drawn_with_its_own_name(run: Run) -> None:
    written(run, [log_day(0)], [measure(0, 0.5, "made_up", expected=0.25), measure(0, 1.0)])
    (tenant,) = draw_tenants(last(run))
    assert [(line.value, line.words, line.note) for line in tenant.sparklines] == [
        ("2.72", "searches", ""),
        ("0.5", "made up", "0.25 expected"),
    ]


def test_a_log_without_a_day_has_a_page(run: Run) -> None:
    written(run, [], [])
    assert "No day was read yet." in text_of(parsed(nights_page("run", last(run), command)))


@pytest.fixture(scope="module")
def two_months(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Thirty days as nights judge them, of which one is garbage."""
    run, log = Run(str(tmp_path_factory.mktemp("nights") / "run")), days(30)
    log[FIRST + timedelta(25)] = garbage(25)
    assert judged(run, log)["2026-03-26", "default"] == "held"
    return run


def test_the_page_shows_a_night_with_its_reasons_and_commands(two_months: Run) -> None:
    html = nights_page("runs/mined", last(two_months), command)
    root, text = parsed(html), text_of(parsed(html))
    assert html == nights_page("runs/mined", last(two_months), command)
    assert "30 days, 2026-03-01 to 2026-03-30" in text
    (held,) = [one for one in root.iter("ol") if one.get("class") == "held"]
    (row,) = [row for row in last(two_months).rows if row["state"] == "held"]
    assert row["reasons"]
    assert all(reason in text_of(held) for reason in row["reasons"])
    assert [one.text for one in held.iter("code")] == [
        "darklode mine --accept-day 2026-03-26",
        "darklode mine --discard-day 2026-03-26",
    ]
    measured = {row["measure"] for row in last(two_months).measures}
    assert len([one for one in root.iter("div") if one.get("class") == "spark"]) == len(measured) > 10
    assert len([row for table in root.iter("tbody") for row in table]) == 30


def hostile(run: Run) -> Run:
    """Texts from outside that mean harm, in every column that can hold some."""
    evil = log_day(0, "held", HOSTILE, reasons=[HOSTILE], note=HOSTILE, decided_at=HOSTILE)
    return written(run, [evil], [measure(0, 1.0, HOSTILE, tenant=HOSTILE)])


def test_texts_from_outside_are_escaped(run: Run) -> None:
    html = nights_page(HOSTILE, last(hostile(run)), lambda *_: HOSTILE)
    root = parsed(html)
    (main,) = root.iter("main")
    assert "{{ 7 * 7 }}" in text_of(main)
    assert not [one for one in root.iter() if one.tag in {"script", "img", "link", "iframe", "form", "object"}]
    assert text_of(main).count("<script>window.harmed = true</script>") > 5
    (policy,) = [one.get("content") for one in root.iter("meta") if one.get("http-equiv")]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("texts", ["ordinary", "hostile"])
def test_in_a_browser_it_is_readable_fits_and_asks_for_nothing(
    browser: Browser, two_months: Run, run: Run, tmp_path: Path, texts: str, width: int, scheme: str
) -> None:
    shown = last(two_months) if texts == "ordinary" else last(hostile(run))
    file = tmp_path / "nights.html"
    file.write_bytes(nights_page("runs/mined", shown, command))
    said: list[str] = []
    with browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as context:  # type: ignore[arg-type]
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("request", lambda request: said.append(request.url))
        tab.goto(file.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert min(tab.evaluate(CONTRAST, "main p, main li, main dt, main code, main td, main h1, main h3")) >= 4.5
        assert tab.evaluate("window.harmed === undefined")
        assert said == [file.as_uri()]
        boxes = [box for one in tab.locator(".spark > svg").all() if (box := one.bounding_box())]
        assert boxes
        assert all(box["width"] > 200 and 40 <= box["height"] <= 60 for box in boxes)
        ink = tab.evaluate("[...document.querySelectorAll('.spark circle.b')].map(one => getComputedStyle(one).fill)")
        assert set(ink) == {"rgb(213, 94, 0)" if scheme == "light" else "rgb(240, 138, 69)"}
        assert re.search(r"held: .+", tab.locator(".spark circle.b title").first.text_content() or "")
