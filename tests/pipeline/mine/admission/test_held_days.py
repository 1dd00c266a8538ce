"""Held days and the sentence about each."""

from datetime import timedelta

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.mine.admission.held_days import HeldDay, held_days
from darklode.schemas.tables import TABLES
from helpers.runs import put
from helpers.small_log import FIRST


def test_held_days_are_named_with_their_tenant_where_others_share_the_day(run: Run) -> None:
    states = [("acme", 0, "held"), ("tern", 0, "admitted"), ("acme", 1, "held"), ("acme", 2, "discarded")]
    rows = [
        {"tenant": tenant, "date": FIRST + timedelta(number), "state": state, "reasons": ["no clicks"], "rows": 9}
        for tenant, number, state in states
    ]
    put(run, "log_days", pa.Table.from_pylist(rows, TABLES["log_days"].schema))
    assert held_days(run.tables("log_days")) == [
        HeldDay("2026-03-01", "acme", 9, ["no clicks"], "acme:2026-03-01"),
        HeldDay("2026-03-02", "acme", 9, ["no clicks"], "2026-03-02"),
    ]


def test_a_run_without_admission_holds_nothing() -> None:
    assert held_days(Tables.empty("impressions")) == []


def test_the_sentence_has_reasons_consequences_and_commands() -> None:
    day = HeldDay("2026-03-02", "acme", 3170, ["3 searches (150 expected)", "no clicks"], "2026-03-02")
    assert day.sentence("mine --accept-day 2026-03-02", "mine --discard-day 2026-03-02") == (
        "2026-03-02 is held back: 3 searches (150 expected); no clicks; accept it to add its 3,170 rows to the "
        "training data (`mine --accept-day 2026-03-02`), or discard it to leave them out for good "
        "(`mine --discard-day 2026-03-02`)"
    )
