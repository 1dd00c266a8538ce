"""The lists against a literal reading of the tables, filter by filter."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.browse.catalogue import Catalogue, open_catalogue
from darklode.pipeline.browse.filtering import ListRequest, find_rows
from darklode.pipeline.browse.lists import MAX_NEGATIVES, TRIPLET, lists_of
from darklode.schemas.tables import TABLES
from helpers.browsing import ACME, asked
from helpers.finished_run import CHUNK_IDS, QUERY_IDS
from helpers.report_runs import random_run
from helpers.runs import put, read, written

Pair = dict[str, Any]


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, list[Pair]]:
    """A run by chance, with its chunks; and its pairs as one would read them."""
    run = random_run(str(tmp_path_factory.mktemp("random") / "run"), 3)
    pool, verdicts = read(run, "pool"), read(run, "verdicts")
    ids = sorted({(row["tenant"], row["chunk_id"]) for row in pool})
    given = {"doc_id": "d", "position": 0, "start": 0, "end": 1, "content_hash": "h"}
    chunks = [given | {"tenant": tenant, "chunk_id": chunk, "text": f"text {chunk}!"} for tenant, chunk in ids]
    put(run, "chunks", pa.Table.from_pylist(chunks, TABLES["chunks"].schema))
    by_key = {(row["tenant"], row["query_id"], row["chunk_id"]): row for row in verdicts}
    split = {(row["tenant"], row["query_id"]): row["split"] for row in read(run, "queries")}
    pairs = [row | by_key[row["tenant"], row["query_id"], row["chunk_id"]] for row in pool]
    return run, [row | {"split": split[row["tenant"], row["query_id"]]} for row in pairs]


FILTERS: list[tuple[dict[str, str], Callable[[Pair], bool]]] = [
    ({}, lambda pair: True),
    ({"tenant": "tenant 1"}, lambda pair: pair["tenant"] == "tenant 1"),
    ({"split": "test"}, lambda pair: pair["split"] == "test"),
    ({"outcome": "relevant"}, lambda pair: pair["relevant"] is True),
    ({"outcome": "unreadable"}, lambda pair: pair["relevant"] is None),
    ({"retriever": "dense"}, lambda pair: "dense" in pair["retrievers"]),
    ({"only_retriever": "bm25"}, lambda pair: pair["retrievers"] == ["bm25"]),
    ({"min_probability": "0.9"}, lambda pair: pair["probability"] is not None and pair["probability"] >= 0.9),
    (
        {"max_probability": "0.1", "split": "train"},
        lambda pair: (pair["probability"] or 1) <= 0.1 and pair["split"] == "train",
    ),
    ({"q": "C7!"}, lambda pair: pair["chunk_id"].endswith("c7")),
]


@pytest.mark.parametrize(("given", "fits"), FILTERS)
def test_pairs_are_those_that_fit(
    random: tuple[Run, list[Pair]], given: dict[str, str], fits: Callable[[Pair], bool]
) -> None:
    run, pairs = random
    expected = sorted((one["tenant"], one["query_id"], one["chunk_id"]) for one in pairs if fits(one))
    with open_catalogue(run) as catalogue:
        first = asked(catalogue, "pairs", **given)
        rows = [
            row for page in range(first.pages) for row in asked(catalogue, "pairs", page=str(page + 1), **given).rows
        ]
    assert first.total == len(expected) > 0
    assert sorted((row["tenant"], row["query_id"], row["passage_id"]) for row in rows) == expected


def test_likeliest_pairs_come_first_and_unknown_ones_last(random: tuple[Run, list[Pair]]) -> None:
    run, pairs = random
    with open_catalogue(run) as catalogue:
        shown = [row["probability"] for row in asked(catalogue, "pairs", order="highest probability").rows]
    known = sorted((one["probability"] for one in pairs if one["probability"] is not None), reverse=True)
    assert shown == pytest.approx(known[: len(shown)])


def test_people_s_word_against_the_judge_s(benchmark: Catalogue) -> None:
    (row,) = asked(benchmark, "pairs", people="disagrees with the judge").rows
    assert (row["tenant"], row["query_id"], row["passage_id"]) == (ACME, QUERY_IDS[0], CHUNK_IDS[0])
    (row,) = asked(benchmark, "pairs", people="divided").rows
    assert row["passage_id"] == CHUNK_IDS[1]


def test_uncertain_pairs_of_queries_without_a_positive_are_near_misses(run: Run) -> None:
    """By query: a positive, an uncertain pair; one of each weight, 0 without content, null if unknown; a negative."""
    labels = {
        ("q1", "c1", 1, 0.9): "relevant",
        ("q1", "c2", None, 0.6): "uncertain",
        ("q2", "c1", None, 0.6): "near miss",
        ("q2", "c2", None, 0.0): "uncertain",
        ("q2", "c3", None, None): "uncertain",
        ("q3", "c1", 0, 0.1): "not relevant",
    }
    names = ("query_id", "chunk_id", "relevance", "weight")
    pairs = [dict(zip(names, pair, strict=True)) for pair in labels]
    written(run, "queries", [{"query_id": query} for query in ("q1", "q2", "q3")])
    written(run, "chunks", [{"chunk_id": chunk} for chunk in ("c1", "c2", "c3")])
    written(run, "pool", [{name: pair[name] for name in names[:2]} for pair in pairs])
    written(run, "qrels", [pair | {"source": "judge"} for pair in pairs])
    with open_catalogue(run) as catalogue:
        for label in set(labels.values()):
            rows = asked(catalogue, "pairs", label=label).rows
            found = {(row["query_id"], row["passage_id"]) for row in rows}
            assert found == {pair[:2] for pair, name in labels.items() if name == label}


def test_queries_with_and_without_an_answer(benchmark: Catalogue) -> None:
    without = asked(benchmark, "queries", positives="none").rows
    assert {row["query_id"] for row in without} == {QUERY_IDS[1]}
    assert asked(benchmark, "queries", positives="some").total == 6


def test_a_triplet_shows_its_first_negatives_and_where_all_are(benchmark: Catalogue) -> None:
    row = asked(benchmark, "triplets", tenant=ACME).rows[0]
    assert [one["passage_id"] for one in row["negatives"]] == [CHUNK_IDS[1], CHUNK_IDS[3]][:MAX_NEGATIVES]
    assert row["all_negatives"] == 2
    (one,) = find_rows(
        benchmark, TRIPLET, ListRequest.from_parameters(TRIPLET, {"tenant": ACME, "id": row["triplet_id"]})
    ).rows
    assert len(one["negatives"]) == 2


def test_rejects_by_reason_with_file_and_row(benchmark: Catalogue) -> None:
    (row,) = asked(benchmark, "rejects", reason="not UTF-8").rows
    assert (row["file"], row["line"], row["table"]) == ("a.csv", 7, "documents")
    (row,) = asked(benchmark, "rejects", q="arger %").rows
    assert row["reason"] == "no text"


def test_a_log_s_queries_by_what_people_did(log: Catalogue) -> None:
    assert [row["text"].lower() for row in asked(log, "queries", evidence="clicked").rows] == ["reset password"]
    assert asked(log, "queries", evidence="never clicked").total == 2
    assert asked(log, "queries", order="most clicked").rows[0]["clicks"] == 2
    assert list(lists_of(log)) == ["queries", "triplets", "rejects"]


@pytest.mark.parametrize("key", ["queries", "triplets", "rejects"])
def test_every_filter_and_order_of_a_log_can_be_asked(log: Catalogue, key: str) -> None:
    listing = lists_of(log)[key]
    for one in listing.filters:
        asked(log, key, **{one.name: "0.5" if not one.options else "x"})
    totals = {asked(log, key, order=order).total for order in listing.orders}
    assert len(totals) == 1
