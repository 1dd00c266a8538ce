"""The test set: later days, unseen queries, and a pool that holds more than what is paired."""

from datetime import timedelta

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.triplets.test_set import TEST_SET, test_set
from helpers.runs import execute, read
from helpers.small_log import DOCS, FIRST, HOP, corpus, mine, query_id, random_log

test_set.__test__ = False  # type: ignore[attr-defined]
SPLIT = FIRST + timedelta(4)


@pytest.mark.parametrize("most", [None, 2, 0])
def test_it_holds_later_queries_alone_and_training_holds_none_of_them(run: Run, most: int | None) -> None:
    log = random_log(3, days=8)
    from dataclasses import replace

    mine(run, log, hop=replace(HOP, before=SPLIT.isoformat()), docs=corpus([*DOCS, "x1", "x2", "x3"]))
    execute(run, TEST_SET, lambda tables, output: test_set(tables, output, HOP, test_from=SPLIT, most=most))
    before = {(s.tenant, query_id(s.query)) for day, some in log.items() if day < SPLIT for s in some}
    after = {(s.tenant, query_id(s.query)) for day, some in log.items() if day >= SPLIT for s in some}
    tested = {(row["tenant"], row["query_id"]) for row in read(run, "mined_test")}
    assert tested
    assert tested <= after - before
    trained = read(run, "triplets")
    assert {(row["tenant"], row["query_id"]) for row in trained} <= before
    assert all(row["date"] < SPLIT for row in trained)  # type: ignore[operator]
    clicked = {
        (s.tenant, query_id(s.query), s.shown[place - 1])
        for some in log.values()
        for s in some
        for place in s.clicked
        if (s.tenant, query_id(s.query)) in after - before
    }
    found = {(r["tenant"], r["query_id"], r["doc_id"]) for r in read(run, "mined_test") if "click" in str(r["source"])}
    assert found == clicked
    pool = read(run, "mined_test_pool")
    for tenant in {name for name, _ in tested}:
        paired = {row["doc_id"] for row in pool if row["tenant"] == tenant and row["paired"]}
        assert paired == {row["doc_id"] for row in read(run, "mined_test") if row["tenant"] == tenant}
        others = [row for row in pool if row["tenant"] == tenant and not row["paired"]]
        assert len(others) == (12 - len(paired) if most is None else most)


def test_without_a_day_there_is_none(run: Run) -> None:
    mine(run, random_log(3))
    execute(run, TEST_SET, lambda tables, output: test_set(tables, output, HOP, test_from=None, most=None))
    assert read(run, "mined_test") == read(run, "mined_test_pool") == []
