"""A scaling plan as the terminal shows it."""

import pytest

from darklode.pipeline.scale.format import COLUMNS, format_rows, format_short, notes
from darklode.pipeline.scale.measurements import load_measured
from darklode.pipeline.scale.plan import plan_stages
from darklode.schemas.scale import Hardware, Machines

COSTS = load_measured()
ROWS = plan_stages(COSTS, Hardware(machines=Machines(count=4, cores=16, memory_gb=64)), 1e9, 1e8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.012, "0.012"),
        (4.123, "4.1"),
        (99.6, "100"),
        (119.6, "120"),
        (3.14e9, "3.1e+09"),
        (0.001, "1.0e-03"),
    ],
)
def test_numbers_have_two_or_three_digits(value: float, text: str) -> None:
    assert format_short(value) == text


def test_each_stage_is_a_row_with_its_marks() -> None:
    table = format_rows(ROWS)
    assert [list(row) for row in table] == [list(COLUMNS)] * len(ROWS)
    for row, stage in zip(table, ROWS, strict=True):
        assert row["stage"].endswith(" !") == bool(stage.limitation)
        assert row["exponent"].endswith(" ?") == stage.exponent_assumed
        assert row["GB memory"].endswith(" ↑") == (not stage.memory_constant)


def test_notes_explain_every_mark_and_the_measurements() -> None:
    text = " ".join(notes(ROWS, COSTS))
    for stage in ROWS:
        assert (f"{stage.job} {stage.stage} does not scale (!)" in text) == bool(stage.limitation)
    assert f"Extrapolated from measurements of {COSTS.day}" in text
