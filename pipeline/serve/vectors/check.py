"""Whether an index is what was recorded: its files, its run, its encoder, and what recorded queries find."""

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
from darklode.pipeline.serve.check import COSINE, SAME, SCORE, Finding, returns
from darklode.pipeline.serve.vectors.filling import opened
from darklode.pipeline.serve.vectors.given import Given
from darklode.pipeline.serve.vectors.library import among, codebook_of, numbers_in
from darklode.pipeline.serve.vectors.probes import BASE, vectors_of
from darklode.pipeline.serve.vectors.record import Facts, encoder_facts
from darklode.pipeline.serve.vectors.searcher import Searcher
from darklode.schemas.serving_tables import INDEX_FOUND, INDEX_QUERIES


@dataclass(frozen=True)
class IndexCheck:
    """A finished index, and what it was made from, as that is now.

    Attributes:
        searcher: the opened index.
        given: its run or file of vectors.
    """

    searcher: Searcher
    given: Given

    def findings(self) -> Iterator[Finding]:
        """All that is looked at, in order, until something differs."""
        for look in (self._files, self._codes, self._source, self._encoder, self._queries, self._first_ten):
            for finding in look():
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

    def _files(self) -> Iterator[Finding]:
        for row in self._facts["files"]:
            mine = sha256(self._run.store.read(row["file"]) or b"").hexdigest()
            yield _same(f"file {row['file']}", mine[:16], row["sha256"][:16])

    def _codes(self) -> Iterator[Finding]:
        """What was fitted, how long vectors are, and which are there."""
        index = opened(self._run.store)
        yield _same("codebook", codebook_of(index), self._facts["codebook"])
        yield _same("dimensions", int(index.d), self._facts["dimensions"])
        numbers = self.searcher.texts["number"].to_numpy()
        lacking = int((~among(numbers, numbers_in(index))).sum())
        yield Finding("texts in the index", not lacking, f"{lacking:,} of {len(numbers):,} are not in it")
        yield _same("count", len(numbers), self._facts["count"])

    def _source(self) -> Iterator[Finding]:
        """The run has the texts that were indexed."""
        mine, now = self.searcher.texts, self.given.rows()
        place = pc.index_in(now["text_id"], value_set=mine["text_id"].combine_chunks())
        same = pc.fill_null(pc.equal(mine["content_hash"].take(place), now["content_hash"]), False)
        came, kept = now.num_rows - (pc.sum(same).as_py() or 0), pc.sum(same).as_py() or 0
        gone = mine.num_rows - kept
        said = f"{came:,} came or changed, {gone:,} went or changed" + (
            "; `darklode index update`" if came + gone else ""
        )
        yield Finding(f"texts of {self.given.url}", not came + gone, said)

    def _encoder(self) -> Iterator[Finding]:
        """The encoder is the one that the vectors are by."""
        now, recorded = encoder_facts(self.searcher.encoder), self._facts["encoder"]
        for name in (*(one for one in SAME if one in recorded), "id"):
            yield _same(f"{name} of the encoder", now[name], recorded[name])

    def _queries(self) -> Iterator[Finding]:
        """Recorded queries get from the encoder the vectors that recall was measured with."""
        rows = self._tables.read(INDEX_QUERIES.name)
        mine = rows.filter(pc.and_(pc.equal(rows["part"], BASE), pc.is_valid(rows["text"]))).slice(0, self._asked)
        if not mine.num_rows:
            yield Finding("queries encoded again", True, "there are none: the index is of a file of vectors")
            return
        again, recorded = self.searcher.encode(mine["text"].to_pylist()), vectors_of(mine, BASE)
        lengths = np.maximum(np.linalg.norm(again, axis=1), np.finfo(np.float32).tiny)
        least = float((np.einsum("ij,ij->i", again, recorded) / lengths).min())
        yield Finding("queries encoded again", least >= COSINE, f"cosine with the recorded vectors {least:.5f} or more")

    def _first_ten(self) -> Iterator[Finding]:
        """Recorded queries find what they found."""
        queries = vectors_of(self._tables.read(INDEX_QUERIES.name), BASE)[: self._asked]
        found, agree = self.searcher.search(queries), 0
        for query in range(len(queries)):
            scores = found.scores[query][found.rows[query] >= 0].tolist()
            named = zip(found.ids(query), scores, strict=True)
            now = [{"text_id": name, "score": score} for name, score in named]
            agree += returns(_of(self._recorded, query), now, {})
        said = f"of {agree} of {len(queries)} recorded queries, scores ± {SCORE:g}"
        yield Finding("first ten", agree == len(queries), said)

    @cached_property
    def _recorded(self) -> pa.Table:
        return self._tables.read(INDEX_FOUND.name)

    @property
    def _asked(self) -> int:
        return int(pc.max(self._recorded["query"]).as_py() or 0) + 1


def _of(rows: pa.Table, query: int) -> Sequence[Facts]:
    found: list[Facts] = rows.filter(pc.equal(rows["query"], query)).sort_by("rank").to_pylist()
    return found


def _same(what: str, mine: Any, recorded: Any) -> Finding:
    seen = f"{mine or 'none'}" if mine == recorded else f"{mine or 'none'}, and {recorded or 'none'} was recorded"
    return Finding(what, mine == recorded, seen)


def demand_same(url: str, findings: Sequence[Finding]) -> None:
    """Refuse what differs.

    Raises:
        DoesNotFit: the message names the first thing that does.
    """
    for one in findings:
        if not one.fits:
            raise DoesNotFit(f"{url} is not as it was recorded: {one.what}: {one.seen}")
