"""The state of a tenant's day: unknown tenants, decisions, and reasons in words."""

import numpy as np
import pytest

from darklode.pipeline.mine.admission.decisions import Decision
from darklode.pipeline.mine.admission.measures import MEASURES
from darklode.pipeline.mine.admission.verdicts import KnownTenants, TenantHistory, describe

DAY = "2026-03-10"
PLACE = {measure.name: number for number, measure in enumerate(MEASURES)}


@pytest.mark.parametrize(
    ("known", "day", "rows", "unknown"),
    [
        (KnownTenants(), DAY, {"a": 5, "b": 9}, set()),
        (KnownTenants({"a"}, "2026-03-09"), DAY, {"a": 50, "b": 9}, set()),
        (KnownTenants({"a"}, "2026-03-09"), DAY, {"b": 9}, {"b"}),
        (KnownTenants({"a"}, "2026-03-09"), DAY, {"a": 5, "b": 9}, {"b"}),
        (KnownTenants({"a"}, "2026-03-03"), DAY, {"a": 50, "b": 9}, {"b"}),
        (KnownTenants({"a", "b"}, "2026-03-03"), DAY, {"a": 50, "b": 9}, set()),
        (KnownTenants({"a"}, "2026-03-03"), DAY, {"a": 50, "b": 0}, set()),
    ],
    ids=["first day", "small in the first week", "relabelled", "outweighs", "later", "known", "no rows"],
)
def test_a_tenant_without_an_admitted_day_is_unknown(
    known: KnownTenants, day: str, rows: dict[str, int], unknown: set[str]
) -> None:
    assert known.find_unknown(day, rows) == unknown


def decision(verdict: str, tenant: str | None) -> Decision:
    return Decision(DAY, tenant, verdict, None, "2026-03-12T02:10:00+00:00", "mark")  # type: ignore[arg-type]


def test_a_decision_may_be_about_one_tenant() -> None:
    history = TenantHistory(decided={DAY: [decision("accepted", None), decision("discarded", "tern")]})
    assert [history.verdict(DAY, tenant).verdict for tenant in ("default", "tern")] == ["accepted", "discarded"]  # type: ignore[union-attr]
    assert history.verdict("2026-01-01", "tern") is None


def test_a_day_depends_on_its_decisions_and_on_whether_it_was_read() -> None:
    history = TenantHistory(frozenset([DAY]), {DAY: [decision("accepted", None)]})
    assert history.of_day(DAY) != TenantHistory(frozenset([DAY])).of_day(DAY)
    assert history.of_day("2026-03-11") == TenantHistory().of_day("2026-03-11")


@pytest.mark.parametrize(
    ("measure", "value", "words"),
    [
        ("searches", 7.0, "1,097 searches (148 expected, 150 the day before)"),
        ("bots", 0.5, "23% of the impressions are bots' (92% expected, 95% the day before)"),
        (
            "clicks_by_place",
            0.5,
            "0.50 distance of the click-through by position (5.00 expected, 5.01 the day before)",
        ),
    ],
)
def test_reasons_compare_with_the_usual_value_and_yesterdays(measure: str, value: float, words: str) -> None:
    expected, previous = {"searches": (5.0, 5.01), "bots": (1.285, 1.35), "clicks_by_place": (5.0, 5.01)}[measure]
    assert describe(PLACE[measure], value, expected, previous) == words


def test_without_a_day_before_only_the_usual_value_is_named() -> None:
    assert describe(PLACE["searches"], 7.0, 5.0, np.nan) == "1,097 searches (148 expected)"
