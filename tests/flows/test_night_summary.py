"""What a night says of the log: what is new, which days are held back, and what is to be learned anew."""

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pytest

from darklode.flows.executor import InProcess, executing
from darklode.flows.mining_history import mining_inputs
from darklode.flows.night_summary import (
    N_NAMED,
    decide,
    report_held_days,
    report_new_days,
    request_refit,
    warn_of_misplaced,
)
from darklode.flows.prefect.progress import SilentReporter, reporting
from darklode.flows.runs import update_inputs, write_inputs
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import HeldBack, SettingsError
from darklode.pipeline.mine.admission.decisions import DecisionRequest
from darklode.pipeline.mine.history import History
from darklode.pipeline.triplets.placement import has_old_layout
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.tables import TABLES
from helpers.hook import listening
from helpers.mined_tables import give_pairs, publish_triplets
from helpers.old_triplets import to_old_layout
from helpers.runs import put
from helpers.small_log import DOCS, FIRST, Search, mine

MINED = MinedInputs(logs="log", docs="docs")


class Told(SilentReporter):
    """Keeps what is said, and which tables are shown."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.tables: list[list[dict[str, object]]] = []

    def say(self, sentence: str) -> None:
        self.said.append(sentence)

    def table(self, title: str, rows: pa.Table) -> None:
        self.tables.append(rows.to_pylist())


def night(**sources: str) -> Manifest:
    return Manifest("ingest_logs", "f", {}, {}, {}, [], 1.0, facts={"sources": sources})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, night(a="1"), []),
        (night(a="1"), night(a="1"), ["no new days in the log: its 1 partitions were read before"]),
        (night(a="1", b="1"), night(a="1", b="2", c="1"), ["new or changed in the log: b, c"]),
        (
            night(),
            night(**dict.fromkeys("abcdefg", "1")),
            [f"new or changed in the log: {', '.join('abcdefg'[:N_NAMED])} …"],
        ),
    ],
    ids=["first night", "nothing", "some", "many"],
)
def test_what_came_is_told(before: Manifest | None, after: Manifest, said: list[str]) -> None:
    told = Told()
    with reporting(told):
        report_new_days(before, after)
    assert told.said == said


def log_days(run: Run, *states: tuple[str, str, list[str]]) -> Run:
    """A run whose log has days of March in these states, each with its tenant and reasons."""
    rows = [
        {"tenant": tenant, "date": FIRST + timedelta(number), "state": state, "reasons": reasons, "rows": 9}
        for number, (tenant, state, reasons) in enumerate(states)
    ]
    put(run, "log_days", pa.Table.from_pylist(rows, TABLES["log_days"].schema))
    write_inputs(run, MINED)
    return run


def test_a_night_without_held_days_says_nothing(run: Run) -> None:
    told = Told()
    with reporting(told):
        report_held_days(log_days(run, ("t", "admitted", []), ("t", "discarded", ["x"]), ("t", "missing", ["y"])))
    assert told.tables == []


def test_held_days_are_shown_with_their_reasons_and_what_to_do(run: Run) -> None:
    told = Told()
    log_days(run, ("t", "admitted", []), ("t", "held", ["3 searches, 150 expected", "no clicks"]))
    with reporting(told), pytest.raises(HeldBack) as raised:
        report_held_days(run)
    row = {"date": "2026-03-02", "tenant": "t", "rows": 9, "reasons": "3 searches, 150 expected; no clicks"}
    assert told.tables == [[row]]
    assert str(raised.value) == (
        "2026-03-02 is held back: 3 searches, 150 expected; no clicks; accept it to add its 9 rows to the training "
        "data (`darklode mine --accept-day 2026-03-02`), or discard it to leave them out for good "
        "(`darklode mine --discard-day 2026-03-02`)\neverything else is published"
    )
    assert (raised.value.code, raised.value.days) == (4, ["2026-03-02"])


class Telling(InProcess):
    """As under Prefect, whose hooks tell."""

    shows_progress = True


def test_a_night_with_nothing_to_do_tells_of_held_days_once_a_day(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    log_days(run, ("t", "held", ["no clicks"]))
    with listening(monkeypatch) as hook:

        def night() -> int:
            with pytest.raises(HeldBack):
                report_held_days(run)
            return len(hook.posted)

        with executing(Telling()):
            assert night() == 0
        assert night() == 0, "a flow told of it today"
        for posted in (1, 2):
            update_inputs(run, notified_on=date(2026, 3, 1))
            assert (night(), night()) == (posted, posted)
    _, told = hook.posted[0]
    assert (told["flow"], told["state"], told["page"]) == ("mine-logs", "held", "")
    assert told["message"].startswith("2026-03-01 is held back: no clicks; accept it to add its 9 rows to the training")
    assert told["text"] == f"mine-logs {told['run']} held: {told['message']}"
    assert told["run"].endswith(f"run {datetime.now(UTC):%Y-%m-%d}")


def test_where_a_day_has_several_tenants_the_one_is_named(run: Run) -> None:
    rows = [
        {"tenant": tenant, "date": FIRST, "state": state, "reasons": ["x"], "rows": 9}
        for tenant, state in (("acme", "held"), ("tern", "admitted"))
    ]
    put(run, "log_days", pa.Table.from_pylist(rows, TABLES["log_days"].schema))
    write_inputs(run, MINED)
    with pytest.raises(HeldBack) as raised:
        report_held_days(run)
    assert raised.value.days == ["acme:2026-03-01"]


def logged(run: Run, days: int) -> History:
    mine(run, {FIRST + timedelta(day): [Search("t", "s", 1, "one", (DOCS[0],))] for day in range(days)})
    return History(run, 7, 2, None, lambda: mining_inputs(run).refit_through)


def test_what_is_decided_is_noted(run: Run) -> None:
    history = logged(run, 2)
    decide(run, history, DecisionRequest(accept=["2026-03-02"]))
    assert [one.verdict for one in history.admission_state().decided["2026-03-02"]] == ["accepted"]
    with pytest.raises(SettingsError, match="no day 2026-03-03"):
        decide(run, history, DecisionRequest(discard=["2026-03-03"]))


def test_who_asks_to_learn_asks_for_all_that_is_admitted(run: Run) -> None:
    write_inputs(run, MINED)
    assert mining_inputs(run).refit_through is None
    history = logged(run, 3)
    log_days(run, ("t", "admitted", []), ("t", "admitted", []), ("t", "held", []))
    request_refit(run, history)
    assert mining_inputs(run).refit_through == FIRST + timedelta(1)


@pytest.mark.parametrize("wrong", [{}, {"acme": "beta", "beta": "acme"}])
def test_triplets_in_another_tenants_folder_are_told_before_they_are_written_anew(
    run: Run, wrong: dict[str, str]
) -> None:
    pairs = [{"tenant": tenant, "query_id": "q", "positive_id": "d"} for tenant in ("acme", "beta")]
    docs = [{"tenant": tenant, "doc_id": "d", "text": "x"} for tenant in ("acme", "beta")]
    give_pairs(run, pairs, docs, {"q": "x"})
    publish_triplets(run)
    to_old_layout(run, wrong=wrong)
    told = Told()
    with reporting(told):
        warn_of_misplaced(run)
        publish_triplets(run)
        warn_of_misplaced(run)
    assert [sentence[:55] for sentence in told.said] == [
        "an earlier version of Darklode wrote 2 triplets that be"
    ] * bool(wrong)
    assert not has_old_layout(run)
