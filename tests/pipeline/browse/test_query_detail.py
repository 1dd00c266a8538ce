"""All about one query, and a document."""

import pytest

from darklode.pipeline.base.errors import InputError
from darklode.pipeline.browse.catalogue import Catalogue
from darklode.pipeline.browse.query_detail import document_of, evidence, judged_pool, query_of
from helpers.browsing import ACME
from helpers.finished_run import CHUNK_IDS, QUERY_IDS, QUERY_TEXTS, RETRIEVERS
from helpers.small_log import query_id


def test_a_query_knows_its_counts_and_those_beside_it(benchmark: Catalogue) -> None:
    query = query_of(benchmark, ACME, QUERY_IDS[0])
    assert (query["text"], query["candidates"], query["relevant"], query["by_people"]) == (QUERY_TEXTS[0], 4, 2, 2)
    beside = [query[name] and query[name]["query_id"] for name in ("earlier", "later")]
    ordered = sorted(QUERY_IDS)
    at = ordered.index(QUERY_IDS[0])
    assert beside == [ordered[at - 1], ordered[at + 1]]


@pytest.mark.parametrize(("tenant", "name"), [(ACME, "q9"), ("", ""), ("b/i rch", "' OR true --")])
def test_a_query_that_is_not_there_is_said_not_to_be(benchmark: Catalogue, tenant: str, name: str) -> None:
    with pytest.raises(InputError, match="no such query"):
        query_of(benchmark, tenant, name)


def test_candidates_with_ranks_verdicts_and_people(benchmark: Catalogue) -> None:
    found = judged_pool(benchmark, query_of(benchmark, ACME, QUERY_IDS[0]))
    key = {"tenant": ACME, "id": CHUNK_IDS[0]}
    number = benchmark.column("SELECT passage FROM all_passages WHERE tenant = $tenant AND passage_id = $id", **key)[0]
    assert [(one["retriever"], one["rank"]) for one in found["ranks"][number]] == [(RETRIEVERS[1], 1), ("bm25", 2)]
    assert [(one["reviewer"], one["rationale"]) for one in found["answers"][number]] == [
        ("Ann", "a wrong page"),
        ("Ben", None),
    ]
    assert {name: len(rows) for name, rows in found["verdicts"].items()} == dict.fromkeys(CHUNK_IDS, 1)


def test_what_a_log_says_of_a_query(log: Catalogue) -> None:
    query = query_of(log, "default", query_id("reset password"))
    found = evidence(log, query)
    assert [(one["query"], one["searches"]) for one in found["spellings"]] == [
        ("Reset password", 1),
        ("reset password", 1),
    ]
    first = found["evidence"][0]
    assert (first["shown_id"], first["clicks"], first["title"]) == ("d1", 2, "Title of d1")
    (hop,) = [one for one in found["hops"] if one["kind"] == "click" and one["direction"] == "source of evidence"]
    assert (hop["query_text"], hop["terms"]) == ("reset api", ["reset"])


def test_a_document_with_its_chunk_and_the_queries_it_answers(benchmark: Catalogue, log: Catalogue) -> None:
    doc_id = CHUNK_IDS[0].split("#")[0]
    reading, answers = document_of(benchmark, ACME, doc_id, CHUNK_IDS[0])
    assert (reading.before, reading.chunk + reading.after) == ("", "one\ntwo")
    assert [one["query_id"] for one in answers] == sorted(QUERY_IDS[place] for place in (0, 2, 3))
    reading, answers = document_of(log, "default", "d1", None)
    assert reading.chunk == ""
    assert "reset password" in [one["query_text"].lower() for one in answers]
    with pytest.raises(InputError, match="no such document"):
        document_of(log, "tern", "d77", None)
