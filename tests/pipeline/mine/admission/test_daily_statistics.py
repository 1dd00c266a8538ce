"""A day's figures and marks, counted by hand."""

from dataclasses import replace
from datetime import timedelta

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.mine.admission.daily_statistics import MARKS_PER_DAY, N_HEAD_QUERIES
from helpers.days import days, judged
from helpers.runs import read
from helpers.small_log import FIRST, Search

SEARCHES = [
    Search("default", "a", 61, "one", ("d1", "d2"), frozenset({2})),
    Search("default", "a", 62, "one", ("d1", "d3")),
    Search("default", "b", 600, "two", ("d1",), frozenset({1})),
    Search("tern", "c", 0, "one", ("d1",)),
]


def test_a_days_figures_are_those_of_its_searches(run: Run) -> None:
    judged(run, {FIRST: SEARCHES})
    ours, theirs = read(run, "day_figures")
    counts = {"rows": 5, "impressions": 5, "searches": 3, "clicks": 2, "sessions": 2, "queries": 2, "documents": 3}
    zero = dict.fromkeys(("repeats", "bots", "without_position", "without_session", "twins"), 0)
    lists = {name: ours.pop(name) for name in ("shown_at", "clicked_at", "searched_at")}
    assert ours == counts | zero | {"top_query": 2, "top_session": 2, "tenant": "default", "date": FIRST}
    assert {name: values[:2] for name, values in lists.items()} == {  # type: ignore[index]
        "shown_at": [3, 2],
        "clicked_at": [1, 1],
        "searched_at": [0, 2],
    }
    assert [len(values) for values in lists.values()] == [20, 20, 24]  # type: ignore[arg-type]
    assert (theirs["tenant"], theirs["searches"]) == ("tern", 1)


def test_searches_that_equal_another_one_are_twins(run: Run) -> None:
    copies = [replace(one, session=f"copy of {one.session}") for one in SEARCHES]
    other = [replace(SEARCHES[0], minute=63), replace(SEARCHES[0], clicked=frozenset())]
    judged(run, {FIRST: [*SEARCHES, *copies, *other]})
    assert [row["twins"] for row in read(run, "day_figures")] == [3, 1]


def test_bots_are_counted_apart(run: Run) -> None:
    hasty = [Search("default", "bot", 5, f"q{number}", ("d1",)) for number in range(40)]
    judged(run, {FIRST: [*SEARCHES, *hasty]})
    (ours, _) = read(run, "day_figures")
    assert (ours["bots"], ours["searches"], ours["rows"]) == (40, 3, 45)


def test_marks_are_the_same_ids_every_day(run: Run) -> None:
    judged(run, {FIRST: SEARCHES, FIRST + timedelta(1): [replace(one, session="z") for one in SEARCHES]})
    rows = read(run, "day_marks")
    by_day = [[row["mark"] for row in rows if row["date"] == FIRST + timedelta(number)] for number in (0, 1)]
    assert by_day[0] == by_day[1]
    kinds = [(row["kind"], row["shown"], row["clicks"]) for row in rows if row["date"] == FIRST]
    queries, documents = [(2, 1), (1, 1), (1, 0)], [(3, 1), (1, 1), (1, 0), (1, 0)]
    pairs = [(2, 0), (1, 1), (1, 0), (1, 1), (1, 0)]
    named = {"query": queries, "document": documents, "pair": pairs}
    assert sorted(kinds) == sorted((kind, *counts) for kind, some in named.items() for counts in some)


def test_marks_are_bounded(run: Run) -> None:
    many = [Search("default", f"s{n}", n % 1440, f"q{n}", (f"d{n}",)) for n in range(MARKS_PER_DAY + 50)]
    judged(run, {FIRST: many})
    kinds = [row["kind"] for row in read(run, "day_marks")]
    assert [kinds.count(kind) for kind in ("query", "document", "pair")] == [
        MARKS_PER_DAY,
        MARKS_PER_DAY,
        N_HEAD_QUERIES,
    ]


def test_a_day_that_stands_is_not_read_again(run: Run) -> None:
    judged(run, days(3))
    before = run.manifests()["day_figures"].units
    judged(run, days(4))
    assert before.items() <= run.manifests()["day_figures"].units.items()
