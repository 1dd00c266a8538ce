"""What the training and the validation split share."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Part, Run, Tables
from darklode.pipeline.mine.admission.admitted_log import AdmittedRows
from darklode.pipeline.mine.session_split import SessionSplit
from darklode.pipeline.triplets import split_leakage
from darklode.pipeline.triplets.split_leakage import measure_leakage
from darklode.schemas.tables import TRIPLETS
from helpers.runs import put
from helpers.small_log import HOP, SESSIONS, mine, random_log

Counts = dict[str, tuple[int, int, int]]


def counts(run: Run, *tables: str, sessions: SessionSplit | None = None) -> Counts:
    rows = measure_leakage(run.tables("triplets", *tables), sessions).to_pylist()
    return {row["measure"]: (row["train"], row["validation"], row["shared"]) for row in rows}


def triplet(query: str, positive: str, split: str, tenant: str = "t") -> dict[str, Any]:
    ids = {
        "triplet_id": f"{tenant}{query}{positive}{split}",
        "tenant": tenant,
        "query_id": query,
        "positive_id": positive,
    }
    texts = {"query": query, "positive": positive, "source": "pooled", "split": split}
    return ids | texts | {"negative_ids": [], "negatives": [], "negative_scores": []}


def test_texts_and_positives_are_counted_within_a_tenant(run: Run) -> None:
    rows = [
        triplet("Reset password", "d1", "train"),
        triplet("other", "d2", "train"),
        triplet("password, reset", "d1", "validation"),
        triplet("new", "d3", "validation"),
        triplet("other", "d2", "validation", tenant="u"),
    ]
    put(run, "triplets", pa.Table.from_pylist(rows, TRIPLETS.schema))
    assert counts(run) == {"queries": (2, 3, 0), "reworded queries": (2, 3, 1), "positives": (2, 3, 1)}


def log_counts(run: Run, *, by_session: bool) -> Counts:
    mine(run, random_log(3, searches=60), hop=replace(HOP, by_session=by_session))
    return counts(run, "impressions", "query_clusters", sessions=SESSIONS if by_session else None)


def test_no_session_supports_both_splits_if_sessions_are_assigned(run: Run) -> None:
    found = log_counts(run, by_session=True)
    train, validation, shared = found["sessions"]
    assert train > validation > shared == 0
    assert found["sessions, all searches"][2] > 0
    assert found["queries"][2] == found["reworded queries"][2] == 0
    assert "users" not in found  # the log has no user ids


def test_sessions_support_both_splits_if_queries_are_drawn(run: Run) -> None:
    assert log_counts(run, by_session=False)["sessions"][2] > 10


@pytest.mark.parametrize(("days", "rows", "measured"), [(28, 1 << 19, 4), (2, 1 << 19, 2), (28, 250, 2), (28, 1, 1)])
def test_sessions_are_counted_in_the_last_days_only(
    monkeypatch: pytest.MonkeyPatch, days: int, rows: int, measured: int
) -> None:
    monkeypatch.setattr(split_leakage, "MEASURED_DAYS", days)
    monkeypatch.setattr(split_leakage, "MEASURED_ROWS", rows)
    parts = {f"2026-03-0{day}": [Part("a", 60, 1, ""), Part("b", 40, 1, "")] for day in range(1, 5)}
    log = AdmittedRows(Tables.empty("impressions"), parts, {})
    assert split_leakage.measured_days(log) == sorted(parts, reverse=True)[:measured]
