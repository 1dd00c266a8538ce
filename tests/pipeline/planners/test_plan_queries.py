"""The stage that plans: each date once, all anew with another planner."""

from dataclasses import dataclass, field

import pyarrow as pa
from daily_queries import give

from conftest import execute, read
from pipeline.artifacts import Manifest, Run
from pipeline.planners.plan import PLAN_QUERIES, plan_queries
from pipeline.planners.planned import planned


@dataclass
class Counting:
    """A planner that gives every word 0.5, but `the`, and remembers what it was asked."""

    version: str = "counting"
    asked: list[str] = field(default_factory=list)

    def terms(self, queries: pa.Table) -> pa.Table:
        self.asked += queries["text"].to_pylist()
        return planned(queries, lambda _tenant, text: {word: 0.5 for word in text.split() if word != "the"})


def plan(run: Run, planner: Counting) -> Manifest:
    return execute(run, PLAN_QUERIES, lambda tables, output: plan_queries(tables, output, planner=planner))


def test_it_writes_each_querys_terms(run: Run) -> None:
    give(run, ["reset key", "the"], ["key"])
    manifest = plan(run, Counting())
    rows = [(row["query_id"], row["term"], row["importance"]) for row in read(run, "query_terms")]
    assert rows == [("reset key", "reset", 0.5), ("reset key", "key", 0.5), ("key", "key", 0.5)]
    assert (manifest.funnel[0].rows_in, manifest.funnel[0].dropped) == (3, {"no important term": 1})


def test_a_night_asks_about_its_own_queries(run: Run) -> None:
    give(run, ["reset key"])
    plan(run, planner := Counting())
    give(run, ["reset key"], ["key", "card"])
    plan(run, planner)
    assert planner.asked == ["reset key", "key", "card"]
    assert len(read(run, "query_terms")) == 4


def test_another_planner_is_asked_about_all(run: Run) -> None:
    give(run, ["reset key"], ["key"])
    plan(run, Counting())
    plan(run, other := Counting("other"))
    assert other.asked == ["reset key", "key"]
