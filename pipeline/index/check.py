"""Compare an index with its record: files, run, encoder, and the results of recorded queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.base.types import Facts
from darklode.pipeline.index.build import open_index
from darklode.pipeline.index.faiss_io import codebook_of, is_member, numbers_in
from darklode.pipeline.index.probes import BASE_PART, tenants_of, vectors_of
from darklode.pipeline.index.record import encoder_facts
from darklode.pipeline.index.searcher import VectorSearcher
from darklode.pipeline.index.source import VectorSource
from darklode.pipeline.index.texts import find_texts
from darklode.pipeline.train.release.compatibility import (
    ENCODER_FACTS,
    MIN_COSINE,
    SCORE_TOLERANCE,
    CheckFinding,
    returns_same,
)
from darklode.schemas.serving_tables import INDEX_QUERIES, INDEX_RESULTS


@dataclass(frozen=True)
class IndexCheck:
    """A finished index and the current state of its source.

    Attributes:
        searcher: the opened index.
        source: its run or file of vectors.
    """

    searcher: VectorSearcher
    source: VectorSource

    def findings(self) -> Iterator[CheckFinding]:
        """Run the checks in order; stop at the first difference."""
        for check in (self._files, self._codes, self._source, self._encoder, self._queries, self._first_ten):
            for finding in check():
                yield finding
                if not finding.fits:
                    return

    @cached_property
    def _run(self) -> Run:
        return Run(self.searcher.url, untouched=True)

    @cached_property
    def _tables(self) -> Tables:
        return self._run.tables()

    @property
    def _facts(self) -> Facts:
        return self.searcher.facts

    def _files(self) -> Iterator[CheckFinding]:
        for row in self._facts["files"]:
            file_hash = sha256(self._run.store.read(row["file"]) or b"").hexdigest()
            yield compare_facts(f"file {row['file']}", file_hash[:16], row["sha256"][:16])

    def _codes(self) -> Iterator[CheckFinding]:
        """Codebook, dimensions, and the texts whose vectors the index contains."""
        index = open_index(self._run.store)
        yield compare_facts("codebook", codebook_of(index), self._facts["codebook"])
        yield compare_facts("dimensions", int(index.d), self._facts["dimensions"])
        numbers = self.searcher.texts["number"].to_numpy()
        n_missing = int((~is_member(numbers, numbers_in(index))).sum())
        yield CheckFinding("texts in the index", not n_missing, f"{n_missing:,} of {len(numbers):,} are missing")
        yield compare_facts("count", len(numbers), self._facts["count"])

    def _source(self) -> Iterator[CheckFinding]:
        """The run has the same texts as when it was indexed."""
        indexed, now = self.searcher.texts, self.source.rows()
        row_in_index = find_texts(now, indexed)
        same = pc.fill_null(pc.equal(indexed["content_hash"].take(row_in_index), now["content_hash"]), False)
        n_unchanged = pc.sum(same).as_py() or 0
        n_added, n_removed = now.num_rows - n_unchanged, indexed.num_rows - n_unchanged
        detail = f"{n_added:,} added or changed, {n_removed:,} removed or changed" + (
            "; run `darklode index update`" if n_added + n_removed else ""
        )
        yield CheckFinding(f"texts of {self.source.url}", not n_added + n_removed, detail)

    def _encoder(self) -> Iterator[CheckFinding]:
        """The encoder is the one recorded with the vectors."""
        now, recorded = encoder_facts(self.searcher.encoder), self._facts["encoder"]
        for name in (*(field for field in ENCODER_FACTS if field in recorded), "id"):
            yield compare_facts(f"{name} of the encoder", now[name], recorded[name])

    def _queries(self) -> Iterator[CheckFinding]:
        """The encoder gives the recorded queries the same vectors as when recall was measured."""
        rows = self._tables.read(INDEX_QUERIES.name)
        query_rows = rows.filter(pc.and_(pc.equal(rows["part"], BASE_PART), pc.is_valid(rows["text"]))).slice(
            0, self._n_recorded_queries
        )
        if not query_rows.num_rows:
            yield CheckFinding("queries encoded again", True, "none recorded: built from a file of vectors")
            return
        again, recorded = self.searcher.encode(query_rows["text"].to_pylist()), vectors_of(query_rows, BASE_PART)
        lengths = np.maximum(np.linalg.norm(again, axis=1), np.finfo(np.float32).tiny)
        min_cosine = float((np.einsum("ij,ij->i", again, recorded) / lengths).min())
        yield CheckFinding(
            "queries encoded again",
            min_cosine >= MIN_COSINE,
            f"minimum cosine {min_cosine:.5f}",
        )

    def _first_ten(self) -> Iterator[CheckFinding]:
        """Recorded queries have the recorded results."""
        queries = vectors_of(self._tables.read(INDEX_QUERIES.name), BASE_PART)[: self._n_recorded_queries]
        tenants = tenants_of(self._tables.read(INDEX_QUERIES.name), BASE_PART)[: self._n_recorded_queries]
        results, agree = self.searcher.search_by_tenant(queries, tenants), 0
        for query in range(len(queries)):
            scores = results.scores[query][results.rows[query] >= 0].tolist()
            ids_and_scores = zip(results.ids(query), scores, strict=True)
            now = [{"text_id": name, "score": score} for name, score in ids_and_scores]
            agree += returns_same(_rows_of_query(self._recorded_rows, query), now, {})
        detail = f"unchanged for {agree} of {len(queries)} recorded queries, scores ± {SCORE_TOLERANCE:g}"
        yield CheckFinding("first ten", agree == len(queries), detail)

    @cached_property
    def _recorded_rows(self) -> pa.Table:
        return self._tables.read(INDEX_RESULTS.name)

    @property
    def _n_recorded_queries(self) -> int:
        return int(pc.max(self._recorded_rows["query"]).as_py() or 0) + 1


def _rows_of_query(rows: pa.Table, query: int) -> Sequence[Facts]:
    rows_found: list[Facts] = rows.filter(pc.equal(rows["query"], query)).sort_by("rank").to_pylist()
    return rows_found


def compare_facts(subject: str, value: Any, recorded: Any) -> CheckFinding:
    """Compare a value of the index with the one recorded when it was built."""
    detail = f"{value or 'none'}" if value == recorded else f"{value or 'none'}, recorded {recorded or 'none'}"
    return CheckFinding(subject, value == recorded, detail)


def require_same(url: str, findings: Sequence[CheckFinding]) -> None:
    """Raise the first difference.

    Raises:
        DoesNotFit: something differs.
    """
    for finding in findings:
        if not finding.fits:
            raise DoesNotFit(f"{url} differs from its record: {finding.subject}: {finding.detail}")
