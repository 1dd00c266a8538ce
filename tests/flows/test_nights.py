"""What a night says of the log: what is new, whether it is unlike the days before, and what is to be learned anew."""

from datetime import date, timedelta

import pyarrow as pa
import pytest

from darklode.flows.executor import Exhibit, InProcess, executing
from darklode.flows.nights import NAMED, ask_to_learn, asked_to_learn, tell_what_came, watch
from darklode.flows.reporting import Silent, reporting
from darklode.flows.runs import noted
from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.base.errors import HeldBack
from darklode.schemas.mining import MiningSettings
from helpers.small_log import DOCS, FIRST, Search, mine


class Told(Silent):
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
        (night(a="1"), night(a="1"), ["nothing new in the log: its 1 partitions were read before"]),
        (night(a="1", b="1"), night(a="1", b="2", c="1"), ["new in the log, or changed: b, c"]),
        (
            night(),
            night(**dict.fromkeys("abcdefg", "1")),
            [f"new in the log, or changed: {', '.join('abcdefg'[:NAMED])} …"],
        ),
    ],
    ids=["first night", "nothing", "some", "many"],
)
def test_what_came_is_told(before: Manifest | None, after: Manifest, said: list[str]) -> None:
    told = Told()
    with reporting(told):
        tell_what_came(before, after)
    assert told.said == said


class Showing(InProcess):
    def __init__(self) -> None:
        self.shown: list[Exhibit] = []

    def show(self, exhibits: object) -> None:
        self.shown += exhibits  # type: ignore[arg-type]


def logged(run: Run, *searches: int) -> Run:
    """A run whose days had so many searches each, every one of a new query."""

    def search(day: int, number: int) -> Search:
        return Search("default", f"s{number}", number, f"{day}x{number}", (DOCS[0], DOCS[1]), frozenset({1}))

    mine(run, {FIRST + timedelta(day): [search(day, one) for one in range(n)] for day, n in enumerate(searches)})
    return run


def watched(run: Run, settings: MiningSettings) -> tuple[Told, list[Exhibit]]:
    told, showing = Told(), Showing()
    with reporting(told), executing(showing):
        watch(run, settings)
    return told, showing.shown


def test_a_night_like_the_others_says_nothing(run: Run) -> None:
    told, shown = watched(logged(run, 10, 10, 11, 10), MiningSettings(max_drift=0.5))
    assert (told.tables, shown) == ([], [])


def test_a_night_that_differs_is_shown_and_beyond_the_bound_held_back(run: Run) -> None:
    logged(run, 10, 10, 10, 40)
    told, shown = watched(run, MiningSettings())
    (rows,) = told.tables
    assert {row["measure"] for row in rows} >= {"exposures", "clicks"}
    assert all(abs(float(str(row["change"]))) > 0.5 for row in rows)
    assert [one.key for one in shown] == ["drift"]
    with pytest.raises(HeldBack, match=r"the night of 2026-03-04 is held back.*--set mining\.max_drift=null"):
        watched(run, MiningSettings(max_drift=1.0))
    watched(run, MiningSettings(max_drift=9.0))


def test_days_of_test_data_are_not_looked_at(run: Run) -> None:
    told, _ = watched(logged(run, 10, 10, 10, 40), MiningSettings(max_drift=0.1, test_from=FIRST + timedelta(3)))
    assert told.tables == []


def test_who_asks_to_learn_asks_for_all_that_is_there(run: Run) -> None:
    assert asked_to_learn(run) is None
    logged(run, 1, 1, 1)
    ask_to_learn(run)
    assert asked_to_learn(run) == FIRST + timedelta(2) == date.fromisoformat(noted(run)["learn"])
