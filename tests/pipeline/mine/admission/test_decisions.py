"""What people decide of days: the last word on the files as they are counts."""

from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.mine.admission.decisions import JOURNAL_FILE, DecisionRequest, Decisions, identity

DAY = "2026-03-11"
MARKS = {DAY: "a", "2026-03-12": "b"}


def decided(run: Run, **wish: object) -> Decisions:
    journal = Decisions(run.store)
    journal.add(DecisionRequest(**wish).decisions(MARKS))  # type: ignore[arg-type]
    return journal


def test_a_decision_is_recorded_with_time_and_reason(run: Run) -> None:
    (one,) = decided(run, accept=[DAY], note="a sale").all()
    assert (one.day, one.tenant, one.verdict, one.note, one.file_fingerprint) == (
        DAY,
        None,
        "accepted",
        "a sale",
        "a",
    )
    assert one.at.endswith("+00:00")
    assert (run.store.local or Path()).joinpath(JOURNAL_FILE).exists()


def test_a_decision_can_be_changed_and_the_same_one_is_not_made_twice(run: Run) -> None:
    decided(run, accept=[DAY])
    decided(run, accept=[DAY])
    journal = decided(run, discard=[DAY, "tern:2026-03-12"])
    assert [(one.verdict, one.tenant) for one in journal.all()] == [
        ("accepted", None),
        ("discarded", None),
        ("discarded", "tern"),
    ]
    standing = journal.current(MARKS)
    assert [one.verdict for one in standing[DAY]] == ["accepted", "discarded"]
    assert identity(standing) != identity(journal.current({DAY: "a"}))


def test_other_files_in_a_days_place_are_judged_anew(run: Run) -> None:
    assert decided(run, discard=[DAY]).current({DAY: "changed"}) == {}


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"accept": ["2026-03-10"]}, "the log has no day 2026-03-10"),
        ({"accept": ["11 March"]}, "'11 March' is not a date"),
        ({"accept": [DAY], "discard": [DAY]}, "both accepted and discarded"),
    ],
)
def test_what_cannot_be_decided_is_said(run: Run, wish: dict[str, list[str]], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        decided(run, **wish)
    assert Decisions(run.store).all() == []
