"""The learned term weighter is identified by what it learned."""

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.mine.term_weighting.kinds.log import KIND
from darklode.schemas.settings import CacheSettings
from darklode.schemas.tables import TABLES
from helpers.runs import put


def learned(run: Run, **weights: float) -> Tables:
    columns = {"term": list(weights), "weight": list(weights.values()), "documents": [1] * len(weights)}
    columns["queries"] = columns["documents"]
    put(run, "learned_term_weights", TABLES["learned_term_weights"].rows(columns | {"tenant": ["t"] * len(weights)}))
    return run.tables("learned_term_weights")


def terms(of: Tables) -> dict[str, float]:
    queries = pa.table({"tenant": ["t"], "query_id": ["q"], "text": ["rotate key"]})
    rows = KIND().term_weighter(of, CacheSettings()).terms(queries).to_pylist()
    return {row["term"]: row["importance"] for row in rows}


def test_weights_follow_the_learned_terms_and_another_log_changes_the_identity(run: Run) -> None:
    assert KIND.LEARNS
    assert KIND().missing() == []
    first = learned(run, rotat=0.2, key=0.8)
    identity, planned = KIND().term_weighter(first, CacheSettings()).identity, terms(first)
    assert planned["key"] > planned["rotat"]
    second = learned(run, rotat=0.9, key=0.1)
    assert KIND().term_weighter(second, CacheSettings()).identity != identity
    assert terms(second)["rotat"] > terms(second)["key"]


def test_without_anything_learned_it_plans_nothing_worse_than_a_guess() -> None:
    nothing = Tables.empty("learned_term_weights")
    assert (
        KIND().term_weighter(nothing, CacheSettings()).identity
        == KIND().term_weighter(nothing, CacheSettings()).identity
    )
