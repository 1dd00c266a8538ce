"""The test set: later days, unseen queries, and a pool that holds more than what is paired."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.triplets.test_set import TEST_SET, test_set
from darklode.schemas.mining import AssociateSettings, MiningSettings
from helpers.runs import execute, read
from helpers.small_log import DOCS, FIRST, HOP, Search, corpus, mine, query_id, random_log

test_set.__test__ = False  # type: ignore[attr-defined]
SPLIT = FIRST + timedelta(4)
LENDING = AssociateSettings(rule="paper", max_lenders_per_query=2)


def write(run: Run, *, apart: bool = False, **given: Any) -> None:
    settings = MiningSettings.model_validate(given)
    execute(run, TEST_SET, lambda tables, output: test_set(tables, output, HOP, settings, apart=apart, lending=LENDING))


@pytest.mark.slow
@pytest.mark.parametrize("most", [None, 2, 0])
def test_it_says_how_new_queries_are_and_training_holds_no_later_one(run: Run, most: int | None) -> None:
    log = random_log(3, days=8)
    mine(run, log, hop=replace(HOP, before=SPLIT.isoformat()), docs=corpus([*DOCS, "x1", "x2", "x3"]))
    write(run, test_from=SPLIT, test_pool_size=most)
    before = {(s.tenant, query_id(s.query)) for day, some in log.items() if day < SPLIT for s in some}
    after = {(s.tenant, query_id(s.query)) for day, some in log.items() if day >= SPLIT for s in some}
    tested = {(row["tenant"], row["query_id"]) for row in read(run, "mined_test")}
    assert tested
    assert tested <= after
    kinds = {(row["tenant"], row["query_id"]): row["kind"] for row in read(run, "mined_test")}
    assert {key for key, kind in kinds.items() if kind == "seen"} == tested & before
    assert set(kinds.values()) == {"seen", "unseen"}
    trained = read(run, "triplets")
    assert {(row["tenant"], row["query_id"]) for row in trained} <= before
    assert all(row["date"] < SPLIT for row in trained)  # type: ignore[operator]
    clicked = {
        (s.tenant, query_id(s.query), s.shown[place - 1])
        for day, some in log.items()
        for s in some
        for place in s.clicked
        if day >= SPLIT
    }
    found = {(r["tenant"], r["query_id"], r["doc_id"]) for r in read(run, "mined_test") if "click" in str(r["source"])}
    assert found == clicked
    pool = read(run, "mined_test_pool")
    for tenant in {name for name, _ in tested}:
        paired = {row["doc_id"] for row in pool if row["tenant"] == tenant and row["paired"]}
        assert paired == {row["doc_id"] for row in read(run, "mined_test") if row["tenant"] == tenant}
        others = [row for row in pool if row["tenant"] == tenant and not row["paired"]]
        assert len(others) == (12 - len(paired) if most is None else most)


def test_lent_pairs_are_of_lenders_that_training_does_not_know(run: Run) -> None:
    asked = {
        FIRST: {"reset password": "d0"},
        SPLIT: {"reset password": "d1", "export reset": "d2", "export list": "d3", "export webhook": "d4"},
    }
    log = {
        day: [Search("default", text, at, text, (doc,), frozenset({1})) for at, (text, doc) in enumerate(some.items())]
        for day, some in asked.items()
    }
    mine(run, log, hop=replace(HOP, before=SPLIT.isoformat()))

    def lent() -> dict[object, set[object]]:
        rows = [row for row in read(run, "mined_test") if row["source"] == "click_multi_hop"]
        return {query: {row["doc_id"] for row in rows if row["query"] == query} for query in asked[SPLIT]}

    write(run, test_from=SPLIT)
    assert not any(lent().values())
    write(run, test_from=SPLIT, test_multi_hop=True)
    assert lent() == {
        "reset password": {"d2"},
        "export reset": {"d3", "d4"},
        "export list": {"d2", "d4"},
        "export webhook": {"d2", "d3"},
    }, "nobody borrows d0 or d1 from the query of the training period"


ASKED = {
    FIRST: {"reset password": "d0", "api key": "d1"},
    FIRST + timedelta(1): {"refund invoice": "d2"},
    FIRST + timedelta(2): {"reset password": "d3", "Reset  pasword?": "d0", "key apis": "d4", "export all": "d2"},
    FIRST + timedelta(3): {"exports": "d5", "webhook": "d6"},
}
PERIOD = FIRST + timedelta(2)


def clicked(run: Run, *, apart: bool) -> dict[object, tuple[object, ...]]:
    """Two days of training and two of tests: what the test set says of each clicked document."""
    log = {
        day: [
            Search("default", text, at, text, ("d8", doc), frozenset({2}))
            for at, (text, doc) in enumerate(some.items())
        ]
        for day, some in ASKED.items()
    }
    mine(run, log, hop=replace(HOP, before=PERIOD.isoformat()), apart=apart)
    write(run, apart=apart, test_from=PERIOD)
    rows = [row for row in read(run, "mined_test") if row["source"] == "click_one_hop"]
    return {row["query"]: (row["kind"], row["doc_id"], row["shares_positive"]) for row in rows}


def test_a_query_is_seen_a_variant_of_a_seen_one_or_unseen_and_may_share_a_positive(run: Run) -> None:
    found = clicked(run, apart=False)
    assert {query: (kind, doc) for query, (kind, doc, _) in found.items()} == {
        "reset password": ("seen", "d3"),
        "Reset  pasword?": ("variant", "d0"),
        "key apis": ("variant", "d4"),
        "export all": ("unseen", "d2"),
        "exports": ("unseen", "d5"),
        "webhook": ("unseen", "d6"),
    }
    trained = {row["positive_id"] for row in read(run, "triplets") if row["split"] == "train"}
    sharing = {row["query"] for row in read(run, "mined_test") if row["doc_id"] in trained}
    assert {query for query, (_, _, shares) in found.items() if shares} == sharing & set(found)
    assert set() < sharing & set(found) < set(found)


def test_positives_apart_leave_no_query_that_shares_one(run: Run) -> None:
    everything = clicked(run, apart=False)
    apart = clicked(run, apart=True)
    assert apart == {query: said for query, said in everything.items() if not said[2]}
    manifest = run.manifest(TEST_SET)
    assert manifest is not None
    step = manifest.funnel[0]
    assert step.dropped["shares a positive with training"] == step.rows_in - step.rows_out > 0


def test_without_a_day_there_is_none(run: Run) -> None:
    mine(run, random_log(3))
    write(run)
    assert read(run, "mined_test") == read(run, "mined_test_pool") == []
