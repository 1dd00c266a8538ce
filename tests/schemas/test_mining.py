"""The settings of mining: what their bounds keep out."""

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from darklode.schemas.mining import MiningSettings, RelevanceSettings
from darklode.schemas.settings import Settings


def test_negatives_are_drawn_from_somewhere() -> None:
    assert RelevanceSettings(top_k=10, top_t=11).top_t == 11
    with pytest.raises(ValidationError, match="top_t 10 must be above top_k 10"):
        RelevanceSettings(top_k=10, top_t=10)


def test_the_first_day_of_the_test_period_is_a_date() -> None:
    assert MiningSettings.model_validate({"test_from": "2026-03-01"}).test_from == date(2026, 3, 1)
    assert MiningSettings().test_from is None
    with pytest.raises(ValidationError, match="test_from"):
        MiningSettings.model_validate({"test_from": "March"})


@pytest.mark.parametrize(
    "given",
    [
        {"mining": {"verify_share": 1.1}},
        {"admission": {"false_alarm_rate": -1}},
        {"mining": {"test_pool_size": -1}},
        {"click": {"model": "dbn"}},
        {"click": {"min_clicks": 0}},
        {"click": {"min_dwell_seconds": 0}},
        {"logs": {"first_position": 2}},
        {"logs": {"max_late_days": -1}},
        {"associate": {"th_click": -0.1}},
        {"relevance": {"ranker": "bm25"}},
        {"term_weighting": {"refresh_days": -1}},
    ],
)
def test_values_out_of_bounds_are_refused(given: dict[str, Any]) -> None:
    ((section, values),) = given.items()
    with pytest.raises(ValidationError, match=next(iter(values))):
        Settings.model_validate(given)
    assert getattr(Settings(), section)
