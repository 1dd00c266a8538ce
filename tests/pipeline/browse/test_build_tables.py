"""What is read of a benchmark: outcomes, people, ranks, negatives, and code that a chunk's border cut."""

from pathlib import Path

import pyarrow as pa

from darklode.pipeline.browse.catalogue import Catalogue, open_catalogue
from darklode.schemas.tables import TABLES
from helpers.browsing import ACME
from helpers.finished_run import CHUNK_IDS, ORDERS, QUERY_IDS, RETRIEVERS, finished_run
from helpers.report_runs import rewrite
from helpers.runs import put

PAIR = """
    SELECT x.*, f.retrievers FROM pairs x JOIN all_queries q USING (query) JOIN all_passages p USING (passage)
    JOIN finders f USING (found_by)
    WHERE q.tenant = $tenant AND q.query_id = $query_id AND p.passage_id = $passage_id
"""


def pair(catalogue: Catalogue, query: int, chunk: int) -> dict[str, object]:
    key = {"tenant": ACME, "query_id": QUERY_IDS[query], "passage_id": CHUNK_IDS[chunk]}
    (found,) = catalogue.rows(PAIR, **key)
    return found


def test_a_pair_has_what_was_said_of_it(benchmark: Catalogue) -> None:
    first, second, third = (pair(benchmark, 0, chunk) for chunk in (0, 1, 2))
    assert (first["outcome"], first["relevance"], first["people"]) == ("relevant", 1, "not relevant")
    assert (second["outcome"], second["relevance"], second["people"]) == ("not relevant", 0, "divided")
    assert (third["people"], third["retrievers"]) == (None, [RETRIEVERS[1]])


def test_unreadable_and_unjudged_are_two_things(folder: Path) -> None:
    run = finished_run(str(folder))

    def change(table: str, rows: list[dict[str, object]]) -> list[dict[str, object]]:
        kept = [row for row in rows if row.get("chunk_id") != CHUNK_IDS[1]]
        return [row | {"relevant": None} if row["chunk_id"] == CHUNK_IDS[0] else row for row in kept]

    rewrite(run, "judge", change)
    with open_catalogue(run) as catalogue:
        assert [pair(catalogue, 0, chunk)["outcome"] for chunk in (0, 1)] == ["unreadable", "unjudged"]


def test_ranks_are_those_of_the_lists(benchmark: Catalogue) -> None:
    rows = benchmark.rows("""
        SELECT r.retriever, r.rank, p.passage_id FROM ranks r JOIN all_queries q USING (query)
        JOIN all_passages p USING (passage) WHERE q.tenant = $tenant AND q.query_id = $query_id
        ORDER BY retriever, rank
    """, tenant=ACME, query_id=QUERY_IDS[1])  # fmt: skip
    expected = [(name, rank, CHUNK_IDS[c]) for name, order in ORDERS.items() for rank, c in enumerate(order, 1)]
    assert [(row["retriever"], row["rank"], row["passage_id"]) for row in rows] == sorted(expected)


def test_negatives_keep_their_order(benchmark: Catalogue) -> None:
    rows = benchmark.rows("""
        SELECT t.triplet_id, list(p.passage_id ORDER BY number) AS ids FROM (
            SELECT triplet_id, unnest(negatives) AS passage, generate_subscripts(negatives, 1) AS number
            FROM all_triplets
        ) t JOIN all_passages p USING (passage) GROUP BY triplet_id ORDER BY triplet_id
    """)
    found = {row["triplet_id"]: row["ids"] for row in rows}
    assert found["acme-0-0"] == [CHUNK_IDS[1], CHUNK_IDS[3]]
    assert found["acme-2-2"] == [CHUNK_IDS[3]]


def test_a_chunk_that_begins_within_code_is_known(folder: Path) -> None:
    run = finished_run(str(folder))
    texts = ["Do this:\n```sh\nkey rotate", "key show\n```\nDone.", "The end."]
    rows = [
        {"tenant": ACME, "chunk_id": f"c{place}", "doc_id": "d", "position": place, "start": 0, "end": 1, "text": text}
        for place, text in enumerate(texts)
    ]
    put(run, "chunks", pa.Table.from_pylist([row | {"content_hash": "h"} for row in rows], TABLES["chunks"].schema))
    with open_catalogue(run) as catalogue:
        found = catalogue.rows("SELECT passage_id, fenced FROM all_passages WHERE doc_id = 'd' ORDER BY passage_id")
    assert [row["fenced"] for row in found] == [False, True, False]
