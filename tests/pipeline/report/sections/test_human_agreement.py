"""The judge against people on the page."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.schemas.tables import TABLES
from helpers.report_runs import figure, parsed, rendered, text_of
from helpers.runs import put


def test_the_reliability_curve_is_drawn_where_it_is(run: Run) -> None:
    bins = [{"bin": place, "labels": 9, "lowest": 0.0, "highest": 1.0} for place in range(2)]
    places = [(0.125, 0.25, 0.125, 0.5), (0.875, 0.75, 0.5, 0.875)]
    names = ("mean_probability", "relevant_share", "share_low", "share_high")
    rows = [
        {"tenant": "a"} | one | dict(zip(names, place, strict=True)) for one, place in zip(bins, places, strict=True)
    ]
    put(run, "reliability", pa.Table.from_pylist(rows, schema=TABLES["reliability"].schema))
    drawn = figure(parsed(rendered(run)), "reliability")
    assert [(dot.get("cx"), dot.get("cy")) for dot in drawn.iter("circle")] == [("12.5%", "75.0%"), ("87.5%", "25.0%")]
    whiskers = [line for line in drawn.iter("line") if line.get("class") == "whisker"]
    assert [(line.get("y1"), line.get("y2")) for line in whiskers] == [("87.5%", "50.0%"), ("50.0%", "12.5%")]


def test_curves_that_lie_close_have_an_axis_of_their_own_and_tenants_beyond_the_most_are_named(run: Run) -> None:
    said = {"mean_probability": 0.95, "relevant_share": 0.95, "share_low": 0.9, "share_high": 1.0}
    rows = [{"tenant": f"t{n:02}", "bin": 0, "labels": 9, "lowest": 0.9, "highest": 1.0} | said for n in range(14)]
    put(run, "reliability", pa.Table.from_pylist(rows, schema=TABLES["reliability"].schema))
    drawn = figure(parsed(rendered(run)), "reliability")
    assert {(dot.get("cx"), dot.get("cy")) for dot in drawn.iter("circle")} == {("50.0%", "50.0%")}
    assert len(list(drawn.iter("circle"))) == 12
    assert "First 12 tenants." in text_of(drawn)
