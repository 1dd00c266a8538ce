"""The pairs of the sample as a page shows them: loaded once, neighbours looked up when asked for, texts marked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.terms import Analyzer, tokens
from darklode.pipeline.validate.review.journal import pair_name

TABLES_READ = ("review_sample", "queries", "chunks", "documents")
JUDGE_TABLE = "verdicts"

_PAIRS = """
    WITH sample AS (
        SELECT *, min(position) OVER of_query AS first, count(*) OVER of_query AS query_pairs,
               row_number() OVER (of_query ORDER BY position, chunk_id) AS query_pair
        FROM review_sample WINDOW of_query AS (PARTITION BY tenant, query_id)
    )
    SELECT s.tenant, s.query_id, s.chunk_id, s.shared,
           dense_rank() OVER (ORDER BY s.first, s.tenant, s.query_id) AS query_number, s.query_pair, s.query_pairs,
           q.text AS query, c.doc_id, c.position AS place, c.title, c.heading, c.text, d.url,
           {judge}
    FROM sample s
    LEFT JOIN queries q ON q.tenant = s.tenant AND q.query_id = s.query_id
    LEFT JOIN chunks c ON c.tenant = s.tenant AND c.chunk_id = s.chunk_id
    LEFT JOIN documents d ON d.tenant = c.tenant AND d.doc_id = c.doc_id
    {verdicts}
    ORDER BY s.first, s.tenant, s.query_id, s.query_pair
"""
_BLIND = "CAST(NULL AS BOOLEAN) AS relevant, CAST(NULL AS FLOAT) AS probability, CAST(NULL AS INTEGER) AS grade"
_SHOWN = "v.relevant, v.probability, v.grade"
_VERDICTS = """
    LEFT JOIN (
        SELECT tenant, query_id, chunk_id, any_value(relevant) AS relevant, any_value(probability) AS probability,
               any_value(grade) AS grade
        FROM verdicts SEMI JOIN review_sample USING (tenant, query_id, chunk_id) GROUP BY ALL
    ) v ON v.tenant = s.tenant AND v.query_id = s.query_id AND v.chunk_id = s.chunk_id
"""
_AROUND = """
    SELECT position, heading, text FROM chunks
    WHERE tenant = $tenant AND doc_id = $doc_id AND position IN ($place - 1, $place + 1)
"""


@dataclass(frozen=True)
class Pair:
    """One pair of the sample.

    Attributes:
        place: of the chunk in its document, from 0.
        query_number: which of the sample's queries it is, from 1.
        query_pair: which of the query's `query_pairs` pairs it is, from 1.
        relevant, probability, grade: the judge's; always None in a blind review.
    """

    tenant: str
    query_id: str
    chunk_id: str
    shared: bool
    query_number: int
    query_pair: int
    query_pairs: int
    query: str
    doc_id: str
    place: int
    title: str | None
    heading: str | None
    text: str
    url: str | None
    relevant: bool | None
    probability: float | None
    grade: int | None

    @property
    def name(self) -> str:
        """See `pair_name`."""
        return pair_name(self.tenant, self.query_id, self.chunk_id)


@dataclass(frozen=True)
class Neighbour:
    """The chunk before or after one."""

    heading: str | None
    text: str


class Deck:
    """The pairs in their order of review, by row.

    It keeps what it was opened on: a run that is built anew meanwhile changes nothing here.

    Attributes:
        rows: row of each pair by its name.
        shared: whether every reviewer labels it, shape (n_pairs,).
        queries: number of queries.
        tenants: number of tenants.
    """

    def __init__(self, pairs: pa.Table, connection: duckdb.DuckDBPyConnection) -> None:
        self._pairs = pairs.combine_chunks()
        self._connection = connection
        self._busy = threading.Lock()
        ids = zip(*(pairs[name].to_pylist() for name in ("tenant", "query_id", "chunk_id")), strict=True)
        self.rows = {pair_name(*one): row for row, one in enumerate(ids)}
        self.shared: NDArray[np.bool_] = pairs["shared"].to_numpy().astype(bool)
        self.queries = int(pc.max(pairs["query_number"]).as_py() or 0)
        self.tenants = len(pc.unique(pairs["tenant"]))

    def __len__(self) -> int:
        return int(self._pairs.num_rows)

    def __getitem__(self, row: int) -> Pair:
        return Pair(**self._pairs.slice(row, 1).to_pylist()[0])

    def around(self, row: int) -> tuple[Neighbour | None, Neighbour | None]:
        """The chunks before and after a pair's in its document, None where there is none.

        Raises:
            ArtifactError: the tables are gone, because the run was built anew.
        """
        pair = self[row]
        asked = {"tenant": pair.tenant, "doc_id": pair.doc_id, "place": pair.place}
        try:
            with self._busy:
                found = self._connection.sql(_AROUND, params=asked).fetchall()
        except (duckdb.Error, OSError) as error:
            raise ArtifactError("the run has been built anew since this review was started; start it again") from error
        by_place = {place: Neighbour(heading, text) for place, heading, text in found}
        return by_place.get(pair.place - 1), by_place.get(pair.place + 1)


@contextmanager
def open_deck(tables: Tables, *, show_judge: bool) -> Iterator[Deck]:
    """The deck of a run, for the length of a block.

    Args:
        tables: holds TABLES_READ, and `verdicts` if the judge is shown.
        show_judge: load what the judge said, too.

    Raises:
        ArtifactError: the sample names a query or chunk that the run no longer has, or no pair at all.
    """
    judge, verdicts = (_SHOWN, _VERDICTS) if show_judge else (_BLIND, "")
    with tables.connect() as connection:
        pairs = connection.sql(_PAIRS.format(judge=judge, verdicts=verdicts)).to_arrow_table()
        _check(pairs, tables.url)
        yield Deck(pairs, connection)


def _check(pairs: pa.Table, url: str) -> None:
    if not pairs.num_rows:
        raise ArtifactError(f"the sample of {url} holds no pair to review; raise review.query_share or review.pairs")
    for name, text in (("query_id", "query"), ("chunk_id", "text")):
        lost = pairs[name].filter(pc.is_null(pairs[text]))
        if len(lost):
            raise ArtifactError(f"the sample of {url} names {name} {lost[0].as_py()!r}, which the run no longer has")


_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"\s*([-*+]|\d+[.)])\s")


@dataclass(frozen=True)
class Piece:
    """Some characters of a text, and whether they are to be marked."""

    text: str
    marked: bool


@dataclass(frozen=True)
class TextBlock:
    """Lines of a text; `fixed` ones are code or a table, whose characters stand below each other."""

    fixed: bool
    lines: list[list[Piece]]


class Marker:
    """Marks the terms of a query, stemmed as the run's BM25 stems them."""

    def __init__(self, analyzer: Analyzer, query: str) -> None:
        self._analyzer = analyzer
        self._terms = frozenset(analyzer.tokenize(query))

    def pieces(self, text: str) -> list[Piece]:
        """The whole text in order, cut where marks begin and end."""
        found, at = [], 0
        for start, end in self._spans(text):
            found += [Piece(text[at:start], False)] if start > at else []
            found.append(Piece(text[start:end], True))
            at = end
        return found + ([Piece(text[at:], False)] if at < len(text) else [])

    def blocks(self, text: str) -> list[TextBlock]:
        """The text's lines: fenced or indented code and Markdown's tables apart from prose."""
        blocks: list[TextBlock] = []
        for fixed, line in _lines(text):
            if not blocks or blocks[-1].fixed != fixed:
                blocks.append(TextBlock(fixed, []))
            blocks[-1].lines.append(self.pieces(line))
        return blocks

    def _spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where terms of the query stand; overlapping pairs of characters are joined."""
        begun: tuple[int, int] | None = None
        for start, end in tokens(text):
            if not self._terms.intersection(self._analyzer.tokenize(text[start:end])):
                continue
            if begun and start < begun[1]:
                begun = begun[0], end
                continue
            if begun:
                yield begun
            begun = start, end
        if begun:
            yield begun


def _lines(text: str) -> Iterator[tuple[bool, str]]:
    """Each line, and whether it is fixed."""
    fenced = before = False
    blank = True
    for line in text.split("\n"):
        fence = _FENCE.match(line) is not None
        indented = line.startswith(("    ", "\t")) and not _ITEM.match(line) and (blank or before)
        fixed = fenced or fence or line.lstrip().startswith("|") or (indented and bool(line.strip()))
        yield fixed, line
        fenced ^= fence
        before, blank = fixed, not line.strip()
