"""Ids of another system as chunk rows."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.external_hits import HitMapper, MapDocuments, Ranking
from helpers.external import external_run


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    chunks = TenantChunks(external_run(str(tmp_path / "run")).tables("chunks"), "acme")
    return Corpus(chunks.batches, chunks.n, tmp_path, None, chunks)


def ranking(*ids: str) -> Ranking:
    return Ranking(pa.array(ids, pa.string()), np.arange(len(ids), 0, -1).astype(np.float32))


def rows(corpus: Corpus, query: str, *ids: str, map_documents: MapDocuments = "best") -> list[int]:
    hits = HitMapper(corpus, map_documents).hits([query], [ranking(*ids)], 10)
    return [row for row in hits.rows[0].tolist() if row >= 0]


def test_an_id_may_be_written_in_three_ways(corpus: Corpus) -> None:
    ids = ["odd id", "odd%20id", "acme/odd%20id", "acme/manual#a", "zeta/manual", "", "odd id"]
    known_as, is_document = HitMapper(corpus, "best").resolve(pa.array(ids))
    assert known_as.to_pylist() == ["odd id", "odd id", "odd id", "manual#a", None, None, "odd id"]
    assert is_document.to_pylist() == [True, True, True, False, False, False, True]


def test_an_id_of_a_chunk_is_not_taken_for_a_document(corpus: Corpus) -> None:
    assert rows(corpus, "reset the router", "manual#a") == [0]
    assert rows(corpus, "reset the router", "manual") == [1]
    assert rows(corpus, "reset the router", "manual", "manual#a", map_documents="all") == [0, 1]


def test_lists_of_several_queries_are_kept_apart(corpus: Corpus) -> None:
    rankings = [ranking("faq", "manual"), ranking(), ranking("unknown", "manual")]
    hits = HitMapper(corpus, "best").hits(["reset the router", "billing", "open"], rankings, 2)
    assert hits.rows.tolist() == [[3, 1], [-1, -1], [0, -1]]
    assert hits.scores[0].tolist() == [2.0, 1.0]
    assert np.isnan(hits.scores[1]).all()
    assert hits.scores[2, 0] == 1.0


def test_no_more_hits_than_chunks(corpus: Corpus) -> None:
    assert HitMapper(corpus, "best").hits(["open"], [ranking("faq")], 420).rows.shape == (1, 5)


def test_a_corpus_without_ids_cannot_be_mapped(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="without chunk ids"):
        HitMapper(Corpus(lambda: iter([["text"]]), 1, tmp_path), "best")
