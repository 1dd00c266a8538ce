"""Interface of term weighters, the tokenizer they share, and the stage `weight_terms`.

ScalingNote (4.1.1) calls a term weighter *planner*: it scores how important each term of a query is.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Part, Stage, Tables, key_of
from darklode.pipeline.base.sharding import SHARDS_PER_PLACE, Pieces, Spread, cuts, here
from darklode.pipeline.base.terms import Analyzer, words
from darklode.schemas.mined_tables import QUERY_TERMS


class TermWeighter(Protocol):
    """Scores the importance of each term of a query.

    Attributes:
        version: identifies everything that can change an importance.
    """

    version: str

    @property
    def identity(self) -> Mapping[str, str]:
        """Everything that can change an importance, for fingerprints."""
        return {"term_weighter": self.version}

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text, in order; each term of a query once."""
        ...


_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)(?![\w.]*\d)", re.I)
_SHORT_NUMBER = re.compile(r"\d{1,2}")


class Tokenizer:
    """Splits texts into stemmed terms without stop words.

    A number of one or two digits joins the word before it ("iphone 11"), or else the word after it ("2 days"). Longer
    numbers (error 429) and the parts of codes (pel-1402: pel, 1402) are terms; a version number is one term, without
    its v. Stemming is English; scripts without spaces are segmented by ICU.

    Args:
        every_word: keep stop words and short numbers as terms, and split scripts without spaces into character bigrams,
            so that any word matches as a phrase.
    """

    def __init__(self, *, every_word: bool = False) -> None:
        self._analyzer = Analyzer(stop_words=not every_word)
        self._every_word = every_word

    def tokenize(self, text: str) -> list[str]:
        """The terms, in order."""
        return [term for piece in self._pieces(text) for term in piece]

    def _pieces(self, text: str) -> Iterator[list[str]]:
        end = 0
        for match in _VERSION.finditer(text) if "." in text else ():
            yield self._words(text[end : match.start()])
            yield [match[1]]
            end = match.end()
        yield self._words(text[end:])

    def _words(self, text: str) -> list[str]:
        return self._analyzer.tokenize(text) if self._every_word else list(self._with_numbers(text))

    def _with_numbers(self, text: str) -> Iterator[str]:
        """Terms; short numbers are joined with an adjacent word."""
        term, loose = "", False
        for word in words(text, segmented=True):
            if _SHORT_NUMBER.fullmatch(word):
                term, loose = (f"{term} {word}", loose) if term else (word, True)
                continue
            stem = self._analyzer.stem(word)
            if term and not (loose and stem):
                yield term
                term = ""
            term, loose = f"{term} {stem}".strip(), False
        if term:
            yield term


WeightFunction = Callable[[str, str], Mapping[str, float]]
"""Importance by term, from tenant and query text."""


def weigh_terms(queries: pa.Table, weights: WeightFunction) -> pa.Table:
    """Rows of `query_terms` for rows of tenant, query_id and text; a query's terms are in the order of `weights`."""
    places: list[int] = []
    terms: list[str] = []
    importances: list[float] = []
    texts = zip(queries["tenant"].to_pylist(), queries["text"].to_pylist(), strict=True)
    for row, (tenant, text) in enumerate(texts):
        query_terms = weights(tenant, text)
        places += [row] * len(query_terms)
        terms += query_terms
        importances += query_terms.values()
    rows = pa.array(places, pa.int64())
    id_columns = {name: queries[name].take(rows) for name in ("tenant", "query_id")}
    return QUERY_TERMS.rows(id_columns | {"term": terms, "importance": pa.array(importances, pa.float32())})


WEIGHT_TERMS = Stage("weight_terms", 2, ("log_queries",), ("query_terms",))

QUERY_BATCH = 50_000
"""Queries whose terms are in memory together; a part's queries are counted in these batches."""

SHARD_QUERIES = 1 << 12
"""Minimum number of queries in a shard: each shard loads the learned weights."""


class TermWeighterFactory(Protocol):
    """Builds the term weighter on any machine; a factory can be pickled, a weighter need not be."""

    def __call__(self) -> TermWeighter: ...


@dataclass(frozen=True)
class TermWeightingShard:
    """Parts of `log_queries`, and the factory of their term weighter."""

    tables: Tables
    parts: tuple[Part, ...]
    factory: TermWeighterFactory
    basis: str

    @property
    def name(self) -> str:
        return f"weigh terms of {sum(part.rows for part in self.parts)} queries from {self.parts[0].day} on"

    @property
    def folder(self) -> str:
        return f"progress/{WEIGHT_TERMS.name}/{key_of(self.basis, [part.sha256 for part in self.parts])}"


def weight_terms(
    tables: Tables,
    output: Output,
    *,
    weighter: TermWeighter,
    factory: TermWeighterFactory | None = None,
    spread: Spread = here,
) -> None:
    """Write the importance of each query's terms, by tenant and query; one unit per part of `log_queries`.

    The weighter sees normal forms, so later spellings do not change a query's terms. A part holds the queries of one
    date, so a nightly run weighs new queries only; another weighter recomputes all.

    Args:
        tables: holds `log_queries`.
        output: receives `query_terms`.
        weighter: used on this machine.
        factory: builds the weighter in shards; None: everything runs here.
        spread: runs the shards.
    """
    parts = tables.parts("log_queries")
    bases = [key_of(part.sha256, weighter.version) for part in parts]
    missing = [part for part, basis in zip(parts, bases, strict=True) if not output.is_done(part.sha256, basis)]
    unit_key = output.unit_key("", weighter.version)
    shards = _make_shards(tables, missing, factory, unit_key, spread.places) if factory and spread is not here else []
    pieces = (
        chain.from_iterable(spread(weigh_shard, shards)) if len(shards) > 1 else _weigh_parts(tables, missing, weighter)
    )
    n_weighted = 0
    for done, (part, basis) in enumerate(zip(parts, bases, strict=True)):
        with output.unit(part.sha256, basis=basis) as unit:
            if not unit.done:
                unit.facts["weighted"] = _write_terms(islice(pieces, -(-part.rows // QUERY_BATCH)), output, part.day)
        n_weighted += unit.facts["weighted"]
        output.progress(done + 1, len(parts))
    queries = tables.rows("log_queries")
    dropped = {"no important term": queries - n_weighted} if n_weighted < queries else {}
    output.count(FunnelStep("weight_terms", "queries", queries, "queries", n_weighted, dropped))


def weigh_shard(shard: TermWeightingShard) -> Pieces:
    """The terms of a shard's queries, part by part."""
    return _weigh_parts(shard.tables, shard.parts, shard.factory())


def _weigh_parts(tables: Tables, parts: Iterable[Part], weighter: TermWeighter) -> Pieces:
    """Rows of `query_terms`, `QUERY_BATCH` queries at a time."""
    for queries in tables.iterate_parts(parts):
        for start in range(0, queries.num_rows, QUERY_BATCH):
            query_rows = queries.slice(start, QUERY_BATCH).select(["tenant", "query_id", "normal_form"])
            yield weighter.terms(query_rows.rename_columns(["tenant", "query_id", "text"]))


def _make_shards(
    tables: Tables, parts: Sequence[Part], factory: TermWeighterFactory, basis: str, places: int
) -> list[TermWeightingShard]:
    sizes = [part.rows for part in parts]
    max_shard_queries = max(SHARD_QUERIES, -(-sum(sizes) // (SHARDS_PER_PLACE * max(1, places))))
    return [
        TermWeightingShard(tables, tuple(parts[low:high]), factory, basis)
        for low, high in cuts(sizes, max_shard_queries)
    ]


def _write_terms(pieces: Iterable[pa.Table], output: Output, day: str | None) -> int:
    """Write the terms of a part's queries, first searched on `day`; returns the number of queries with a term."""
    n_weighted = 0
    for rows in pieces:
        output.write("query_terms", rows, day=day)
        n_weighted += rows.group_by(["tenant", "query_id"]).aggregate([]).num_rows
    return n_weighted
