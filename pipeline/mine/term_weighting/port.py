"""The planner as a port, a query's terms and how important each is (ScalingNote, 4.1.1), and the stage that asks it.

Terms are words that can be important: what queries and documents are compared by.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Protocol

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Part, Stage, Tables, key_of
from darklode.pipeline.base.sharding import SHARDS, Pieces, Spread, cuts, here
from darklode.pipeline.base.terms import Analyzer, words
from darklode.schemas.mined_tables import QUERY_TERMS


class Planner(Protocol):
    """Gives term importances.

    Attributes:
        version: names all that can change an importance.
    """

    version: str

    @property
    def identity(self) -> Mapping[str, str]:
        """All that can change an importance, for fingerprints."""
        return {"planner": self.version}

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text, in their order, each term of a query once."""
        ...


_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)(?![\w.]*\d)", re.I)
_SHORT_NUMBER = re.compile(r"\d{1,2}")


class Tokenizer:
    """Texts to terms of one word.

    Stop words are left out. A number of one or two digits is one term with the word that it stands behind ("iphone
    11"), else with the next ("2 days"). Longer ones (error 429) and codes (pel-1402: pel, 1402) are terms; a version
    number is a single one, without its v. Words are stemmed (English), so that plural and singular meet; scripts
    without spaces are cut into words by ICU's dictionaries.

    Args:
        every_word: stop words and short numbers are terms of their own, and scripts without spaces become pairs of
            characters, which are found side by side wherever a word stands.
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
        """Terms, short numbers together with the word next to them."""
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


Plan = Callable[[str, str], Mapping[str, float]]
"""Term → importance, of a tenant and a query's text."""


def plan_terms(queries: pa.Table, plan: Plan) -> pa.Table:
    """Rows of `query_terms` for rows of tenant, query_id and text, a query's terms in the order that `plan` gives."""
    places: list[int] = []
    terms: list[str] = []
    importances: list[float] = []
    texts = zip(queries["tenant"].to_pylist(), queries["text"].to_pylist(), strict=True)
    for row, (tenant, text) in enumerate(texts):
        query_terms = plan(tenant, text)
        places += [row] * len(query_terms)
        terms += query_terms
        importances += query_terms.values()
    rows = pa.array(places, pa.int64())
    id_columns = {name: queries[name].take(rows) for name in ("tenant", "query_id")}
    return QUERY_TERMS.rows(id_columns | {"term": terms, "importance": pa.array(importances, pa.float32())})


PLAN_QUERIES = Stage("plan_queries", 2, ("log_queries",), ("query_terms",))

QUERIES_AT_ONCE = 50_000

SHARD_QUERIES = 1 << 12
"""Queries in a shard, at least: each shard loads what the planner has learned."""


class PlannerFactory(Protocol):
    """Makes the planner wherever that is; it can be pickled, as a planner need not."""

    def __call__(self) -> Planner: ...


@dataclass(frozen=True)
class Planning:
    """A shard: parts of `log_queries`, and who makes their planner."""

    tables: Tables
    parts: tuple[Part, ...]
    maker: PlannerFactory
    basis: str

    @property
    def name(self) -> str:
        return f"plan {sum(part.rows for part in self.parts)} queries from {self.parts[0].day} on"

    @property
    def folder(self) -> str:
        return f"progress/{PLAN_QUERIES.name}/{key_of(self.basis, [part.sha256 for part in self.parts])}"


def plan_queries(
    tables: Tables, output: Output, *, planner: Planner, maker: PlannerFactory | None = None, spread: Spread = here
) -> None:
    """Write the importance of each query's terms, by tenant and query; each part of `log_queries` is a unit.

    The planner sees the normal form, so that no spelling that comes later changes what a query's terms are.

    A part holds the queries of one date, so a night asks about its own; with another planner all are asked anew.

    Args:
        tables: holds `log_queries`.
        output: takes `query_terms`.
        planner: is asked.
        maker: makes it elsewhere; None: it is asked here.
        spread: where it is asked.
    """
    parts = tables.parts("log_queries")
    bases = [key_of(part.sha256, planner.version) for part in parts]
    missing = [part for part, basis in zip(parts, bases, strict=True) if not output.is_done(part.sha256, basis)]
    unit_key = output.unit_key("", planner.version)
    shards = _shards(tables, missing, maker, unit_key, spread.places) if maker and spread is not here else []
    pieces = chain.from_iterable(spread(plan, shards)) if len(shards) > 1 else _terms(tables, missing, planner)
    planned = 0
    for done, (part, basis) in enumerate(zip(parts, bases, strict=True)):
        with output.unit(part.sha256, basis=basis) as unit:
            if not unit.done:
                unit.facts["planned"] = _write(islice(pieces, -(-part.rows // QUERIES_AT_ONCE)), output)
        planned += unit.facts["planned"]
        output.progress(done + 1, len(parts))
    queries = tables.rows("log_queries")
    dropped = {"no important term": queries - planned} if planned < queries else {}
    output.count(FunnelStep("plan_queries", "queries", queries, "queries", planned, dropped))


def plan(shard: Planning) -> Pieces:
    """The terms of a shard's queries, part by part."""
    return _terms(shard.tables, shard.parts, shard.maker())


def _terms(tables: Tables, parts: Iterable[Part], planner: Planner) -> Pieces:
    """Rows of `query_terms`, of so many queries of a part at once."""
    for part in parts:
        queries = tables.part(part)
        for start in range(0, queries.num_rows, QUERIES_AT_ONCE):
            query_rows = queries.slice(start, QUERIES_AT_ONCE).select(["tenant", "query_id", "normal_form"])
            yield planner.terms(query_rows.rename_columns(["tenant", "query_id", "text"]))


def _shards(tables: Tables, parts: Sequence[Part], maker: PlannerFactory, basis: str, places: int) -> list[Planning]:
    sizes = [part.rows for part in parts]
    max_shard_queries = max(SHARD_QUERIES, -(-sum(sizes) // (SHARDS * max(1, places))))
    return [Planning(tables, tuple(parts[low:high]), maker, basis) for low, high in cuts(sizes, max_shard_queries)]


def _write(pieces: Iterable[pa.Table], output: Output) -> int:
    """Write the terms of a part's queries; the number of queries that have any."""
    planned = 0
    for rows in pieces:
        output.write("query_terms", rows)
        planned += rows.group_by(["tenant", "query_id"]).aggregate([]).num_rows
    return planned
