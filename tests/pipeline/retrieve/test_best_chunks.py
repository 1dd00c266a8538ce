"""From documents to chunks: a document counts for its best chunk by BM25."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.retrieve.best_chunks import DocumentChunks, best_chunks
from darklode.pipeline.retrieve.retrievers.bm25 import Bm25
from darklode.schemas.tables import CHUNKS
from helpers.runs import put

TEXTS = [
    ("manual", "open the box and read the warranty"),
    ("manual", "reset the router with the small button"),
    ("faq", "billing starts on the first day"),
    ("manual", "the button is red, the router is black, the router blinks"),
    ("faq", "how to reset the password"),
]
DOC_IDS = pa.array([doc_id for doc_id, _ in TEXTS])


def chunks_of(folder: Path, texts: list[tuple[str, str]] = TEXTS) -> TenantChunks:
    n = len(texts)
    ids = [f"{doc_id}#{number}" for number, (doc_id, _) in enumerate(texts)]
    columns = {"tenant": ["t"] * n, "chunk_id": ids, "doc_id": [doc_id for doc_id, _ in texts]}
    numbers = {"position": [0] * n, "start": [0] * n, "end": [len(text) for _, text in texts]}
    rows = CHUNKS.rows(columns | numbers | {"text": [text for _, text in texts], "content_hash": ids})
    run = Run(str(folder))
    put(run, "chunks", rows)
    return TenantChunks(run.tables("chunks"), "t")


def test_a_document_counts_for_its_chunk_with_the_highest_score(tmp_path: Path) -> None:
    found = best_chunks(["reset the router", "billing"], [["manual", "faq"], ["faq"]], chunks_of(tmp_path))
    assert [rows.tolist() for rows in found] == [[1, 4], [2]]


def test_the_choice_is_that_of_a_search_restricted_to_the_document(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    words = np.array("red green blue black white router button cable".split())
    texts = [(f"d{rng.integers(40)}", " ".join(rng.choice(words, rng.integers(1, 9)))) for _ in range(300)]
    chunks = chunks_of(tmp_path, texts)
    bm25 = Bm25(TermSpace(chunks.batches()))
    queries = [" ".join(rng.choice(words, 3)) for _ in range(20)]
    documents = sorted({doc_id for doc_id, _ in texts})
    for query, rows in zip(queries, best_chunks(queries, [documents] * 20, chunks), strict=True):
        ranked = bm25.search([query], len(texts)).rows[0]
        order = [*ranked[ranked >= 0].tolist(), *range(len(texts))]  # after the hits, the first chunk
        assert rows.tolist() == [next(row for row in order if texts[row][0] == doc_id) for doc_id in documents]


def test_without_a_common_term_the_first_chunk_stands_for_the_document(tmp_path: Path) -> None:
    (rows,) = best_chunks(["zebra"], [["faq", "manual"]], chunks_of(tmp_path))
    assert rows.tolist() == [2, 0]


def test_an_unknown_document_has_no_chunk_and_a_repeated_one_the_same(tmp_path: Path) -> None:
    found = best_chunks(["reset", "reset"], [["nowhere", "faq", "faq"], []], chunks_of(tmp_path))
    assert [rows.tolist() for rows in found] == [[-1, 4, 4], []]


def test_all_chunks_of_documents_come_in_their_order() -> None:
    documents = DocumentChunks(DOC_IDS)
    document, row = documents.all_of(documents.numbers(pa.array(["faq", "nowhere", "manual"])))
    assert document.tolist() == [0, 0, 2, 2, 2]
    assert row.tolist() == [2, 4, 0, 1, 3]


def test_a_corpus_without_chunks_has_no_documents() -> None:
    documents = DocumentChunks(pa.array([], pa.string()))
    document, row = documents.all_of(documents.numbers(pa.array(["faq"])))
    assert (document.tolist(), row.tolist()) == ([], [])


def test_without_queries_there_is_nothing_to_choose(tmp_path: Path) -> None:
    assert best_chunks([], [], chunks_of(tmp_path)) == []
