"""Candidates of a real run: the fusion that is best on validation, to the depth asked for."""

import pyarrow.compute as pc

from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.reranker.candidates import CANDIDATES_STAGE, FUSIONS, load_lists
from helpers.reranked import CANDIDATES, RERANKER_SIDES, RerankedRun


def test_every_query_has_as_many_candidates_as_asked_for(reranked: RerankedRun) -> None:
    rows = reranked.out.tables().read("rerank_candidates")
    counts = pc.value_counts(rows["query_id"]).field("counts").to_pylist()
    assert set(counts) == {CANDIDATES}
    assert len(counts) == sum(RERANKER_SIDES.values()) - 1  # one train query nearly duplicates a test query
    manifest = reranked.out.manifest(CANDIDATES_STAGE)
    assert manifest is not None
    assert manifest.facts["encoder weight"] in FUSIONS


def test_lists_carry_the_texts_and_labels_of_their_queries(reranked: RerankedRun) -> None:
    tables = reranked.out.tables()
    queries = tables.sql("SELECT query_id, text FROM adaptation_queries WHERE split = 'test' ORDER BY query_id LIMIT 3")
    lists = load_lists(tables, reranked.finder.sources, queries, tables.read("adaptation_labels"))
    names, texts = lists.pairs()
    assert names[::CANDIDATES] == queries["text"].to_pylist()
    own = lists.own_order()
    assert own["query_id"].to_pylist()[::CANDIDATES] == queries["query_id"].to_pylist()
    stored = dict(
        zip(
            *(
                reranked.finder.sources[0].tables.read("chunks", ["chunk_id", "text"])[name].to_pylist()
                for name in ("chunk_id", "text")
            ),
            strict=True,
        )
    )
    assert [stored[text_id] for text_id in lists.rows["text_id"].to_pylist()] == texts
    assert set(lists.labels["query_id"].to_pylist()) == set(queries["query_id"].to_pylist())
    values = compute_measures([own], lists.labels, lists.ids.to_pylist(), ["nDCG@10"])
    assert lists.ndcg(own) == values.mean()
