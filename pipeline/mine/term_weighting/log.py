"""Term weights learned from documents and log: rare terms whose presence in a document predicts clicks weigh most."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import date
from itertools import pairwise

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, digest
from darklode.pipeline.mine.term_weighting.port import TermWeighter, Tokenizer, weigh_terms
from darklode.schemas.mined_tables import LEARNED_TERM_WEIGHTS

UNSEEN_TERM_WEIGHT = 1.0
"""Weight of a term that neither documents nor log contain: the maximum of a learned weight."""


class LogTermWeighter(TermWeighter):
    """Term importance from learned weights: a term's weight divided by the highest weight in its query.

    The best term of every query has importance 1, so a threshold of 0.5 selects terms that weigh at least half as much.
    An unseen term gets the maximum weight, so no query without it can replace this one. A query with several terms, all
    unseen, has no terms.

    Args:
        learned: rows of `learned_term_weights`.
        version: fingerprint of these rows.
    """

    def __init__(self, learned: pa.Table, version: str) -> None:
        self.version = f"log planner 2 {version}"
        self._tokenizer = Tokenizer()
        self._weights: dict[str, dict[str, float]] = defaultdict(dict)
        learned_columns = (learned[name].to_pylist() for name in ("tenant", "term", "weight"))
        for tenant, term, weight in zip(*learned_columns, strict=True):
            self._weights[tenant][term] = weight

    def terms(self, queries: pa.Table) -> pa.Table:
        """Rows of `query_terms` for rows of tenant, query_id and text; a query's terms are in text order."""
        return weigh_terms(queries, self.weights)

    def weights(self, tenant: str, text: str) -> dict[str, float]:
        """Importance by term; phrases are matched from left to right, and their words are not counted again."""
        learned = self._weights.get(tenant, {})
        importances = {term: learned.get(term, UNSEEN_TERM_WEIGHT) for term in self._segment(text, learned)}
        if len(importances) > 1 and not learned.keys() & importances:
            return {}
        max_importance = max(importances.values(), default=0.0)
        return {term: weight / max_importance for term, weight in importances.items()} if max_importance else {}

    def _segment(self, text: str, weights: dict[str, float]) -> list[str]:
        """Split a text into terms: two adjacent words if they are a learned phrase, else one word."""
        words = self._tokenizer.tokenize(text)
        segments: list[str] = []
        position = 0
        while position < len(words):
            phrase = " ".join(words[position : position + 2])
            is_phrase = position + 1 < len(words) and phrase in weights
            segments.append(phrase if is_phrase else words[position])
            position += 2 if is_phrase else 1
        return segments


TERM_COUNTS_SCHEMA = pa.schema(
    [("tenant", pa.string()), ("id", pa.string()), ("term", pa.string()), ("n", pa.int32()), ("pair", pa.bool_())]
)


def count_into(connection: duckdb.DuckDBPyConnection, table: str, texts: Iterable[pa.Table]) -> None:
    """Create a table with the count of each term and of each pair of adjacent terms in each text.

    Args:
        connection: gets the table (tenant, id, term, n, pair); the words of a pair are separated by a space.
        table: its name.
        texts: rows of tenant, id and text; a missing text is empty.
    """
    tokenizer = Tokenizer()
    connection.register("no_counts", TERM_COUNTS_SCHEMA.empty_table())
    connection.execute(f"CREATE TABLE {table} AS FROM no_counts")
    for rows in texts:
        connection.register("term_counts", _count_terms(rows, tokenizer))
        connection.execute(f"INSERT INTO {table} FROM term_counts")
        connection.unregister("term_counts")
    connection.unregister("no_counts")


def _count_terms(rows: pa.Table, tokenizer: Tokenizer) -> pa.Table:
    """Rows of `TERM_COUNTS_SCHEMA`: each text's terms and pairs of adjacent terms, with their counts."""
    term_rows: list[tuple[int, str, int, bool]] = []
    for text_row, text in enumerate(rows["text"].to_pylist()):
        terms = tokenizer.tokenize(text or "")
        term_rows += [(text_row, term, n, False) for term, n in Counter(terms).items()]
        term_rows += [(text_row, pair, n, True) for pair, n in Counter(_adjacent_pairs(terms)).items()]
    text_rows = pa.array([text_row for text_row, *_ in term_rows], pa.int64())
    columns = {
        "tenant": rows["tenant"].take(text_rows),
        "id": rows["id"].take(text_rows),
        "term": [term for _, term, _, _ in term_rows],
        "n": [n for _, _, n, _ in term_rows],
        "pair": [pair for *_, pair in term_rows],
    }
    return pa.table(columns, schema=TERM_COUNTS_SCHEMA)


def _adjacent_pairs(terms: list[str]) -> Iterator[str]:
    """Pairs of different adjacent words; a term with a space (a word and its number) is in no pair."""
    for term, next_term in pairwise(terms):
        if term != next_term and " " not in term and " " not in next_term:
            yield f"{term} {next_term}"


FIT_TERM_WEIGHTS = Stage(
    "fit_term_weights", 3, (), ("learned_term_weights",), consults=("documents", "log_queries", "click_evidence")
)

MIN_PAIR_TEXTS = 5
"""Minimum number of texts, documents and queries, that contain a phrase."""
MIN_PAIR_DOCUMENTS = 2
"""Minimum number of documents that contain a phrase."""
MIN_NPMI = 0.5
"""Minimum normalized pointwise mutual information of a phrase; see `_CREATE_PHRASES_SQL`."""
SHRINKAGE = 10.0
"""Pseudo-documents added to the clicked and to the skipped documents, so that few clicks give no extreme lift."""
MAX_LIFT = 2.0
"""Lifts are clipped to the range from 1 / MAX_LIFT to MAX_LIFT; a weight is the lift-th root of the term's rarity."""
NO_DOCUMENT_FACTOR = 0.5
"""Factor for terms that occur in several queries but in no document."""
DOCUMENT_BATCH = 1024
"""Documents tokenized together: bounds the memory that texts take."""
PART_ROWS = 200_000

# Normalized pointwise mutual information (NPMI) over the texts: 1 for words that only occur together, 0 for independent
# ones.
_CREATE_PHRASES_SQL = f"""
    CREATE TABLE phrases AS
    WITH all_counts AS (
        SELECT *, true AS document FROM document_term_counts
        UNION ALL SELECT *, false AS document FROM query_term_counts
    ),
    totals AS (SELECT tenant, sum(n)::DOUBLE AS total FROM all_counts WHERE NOT pair GROUP BY tenant),
    word_counts AS (SELECT tenant, term, sum(n)::DOUBLE AS n FROM all_counts WHERE NOT pair GROUP BY tenant, term),
    pair_counts AS (
        SELECT tenant, term, sum(n)::DOUBLE AS n FROM all_counts WHERE pair
        GROUP BY tenant, term
        HAVING count(*) >= {MIN_PAIR_TEXTS} AND count(*) FILTER (document) >= {MIN_PAIR_DOCUMENTS}
    )
    SELECT tenant, pair_counts.term
    FROM pair_counts JOIN totals USING (tenant)
    JOIN word_counts AS a ON a.tenant = pair_counts.tenant AND a.term = split_part(pair_counts.term, ' ', 1)
    JOIN word_counts AS b ON b.tenant = pair_counts.tenant AND b.term = split_part(pair_counts.term, ' ', 2)
    WHERE ln(pair_counts.n * total / (a.n * b.n)) >= {MIN_NPMI} * ln(total / pair_counts.n)
"""

_CREATE_TERMS_SQL = """
    CREATE TABLE {table} AS
    SELECT tenant, id, term FROM {counts} WHERE NOT pair OR (tenant, term) IN (FROM phrases)
"""

# `terms_by_document` and `terms_by_query`: all terms and phrases, without other pairs. Each (query, document) counts
# once: as clicked if it ever was, as skipped if it was only shown.
_CREATE_LIFTS_SQL = f"""
    CREATE TABLE lifts AS
    WITH shown AS (
        SELECT tenant, query_id, doc_id, sum(clicks) > 0 AS clicked FROM click_evidence WHERE date <= $through
        GROUP BY tenant, query_id, doc_id HAVING sum(clicks) > 0 OR sum(exposures) > 0
    ), term_matches AS (
        SELECT shown.tenant, q.term, clicked, d.term IS NOT NULL AS in_document
        FROM shown JOIN terms_by_query AS q ON q.tenant = shown.tenant AND q.id = shown.query_id
        JOIN (SELECT DISTINCT tenant, id FROM terms_by_document) AS corpus
            ON corpus.tenant = shown.tenant AND corpus.id = shown.doc_id
        LEFT JOIN terms_by_document AS d ON d.tenant = shown.tenant AND d.id = shown.doc_id AND d.term = q.term
    ), counts AS (
        SELECT tenant, term, count(*) FILTER (clicked) AS clicks, count(*) FILTER (NOT clicked) AS skips,
            count(*) FILTER (clicked AND in_document) AS clicks_with_term,
            count(*) FILTER (NOT clicked AND in_document) AS skips_with_term
        FROM term_matches GROUP BY tenant, term
    ), shares AS (
        SELECT *, {SHRINKAGE} * (clicks_with_term + skips_with_term + 0.5) / (clicks + skips + 1) AS prior FROM counts
    )
    SELECT tenant, term,
        ((clicks_with_term + prior) / (clicks + {SHRINKAGE}))
            / ((skips_with_term + prior) / (skips + {SHRINKAGE})) AS lift
    FROM shares WHERE clicks > 0 AND skips > 0
"""

# `n`: number of texts; `df`: number of texts with the term.
_RARITY_SQL = "ln((coalesce({n}, 0) + 1) / (coalesce({df}, 0) + 0.5)) / ln((coalesce({n}, 0) + 1) / 0.5)"

_TERM_WEIGHTS_SQL = f"""
    WITH totals AS (
        SELECT tenant, n_documents, n_queries
        FROM (SELECT tenant, count(*) AS n_documents FROM documents GROUP BY tenant)
        FULL JOIN (SELECT tenant, count(DISTINCT id) AS n_queries FROM terms_by_query GROUP BY tenant) USING (tenant)
    ), document_counts AS (SELECT tenant, term, count(*) AS documents FROM terms_by_document GROUP BY tenant, term),
    query_counts AS (SELECT tenant, term, count(*) AS queries FROM terms_by_query GROUP BY tenant, term),
    rarities AS (
        SELECT tenant, term, coalesce(documents, 0)::BIGINT AS documents, coalesce(queries, 0)::BIGINT AS queries, lift,
            least({_RARITY_SQL.format(n="n_documents", df="documents")},
                  {_RARITY_SQL.format(n="n_queries", df="queries")})
                * CASE WHEN documents IS NULL AND queries > 1 THEN {NO_DOCUMENT_FACTOR} ELSE 1 END AS rarity
        FROM document_counts FULL JOIN query_counts USING (tenant, term) LEFT JOIN totals USING (tenant)
        LEFT JOIN lifts USING (tenant, term)
    )
    SELECT tenant, term, documents, queries, round(lift, 6)::FLOAT AS lift,
        round(rarity ** (1 / greatest({1 / MAX_LIFT}, least({MAX_LIFT}, coalesce(lift, 1)))), 6)::FLOAT AS weight
    FROM rarities ORDER BY tenant, term
"""


def fit_term_weights(tables: Tables, output: Output, *, through: date | None) -> None:
    """Learn term weights from `documents`, and from `log_queries` and `click_evidence` up to a date.

    weight = rarity ^ (1 / lift), with lift clipped to 1/2 to 2.

    Rarity is a normalized idf, ln((N + 1) / (df + 0.5)) divided by its maximum: the smaller of the values among
    documents and among queries, so that a word in many different queries is weak; halved (`NO_DOCUMENT_FACTOR`) if
    several queries but no document contain the term. Lift is the share of clicked documents with the term ÷ that of
    skipped documents with it, both shrunk to their common share by `SHRINKAGE` pseudo-documents. Two adjacent words
    with a high NPMI, in at least two documents, are a term as well.

    Args:
        tables: tables that contain these three.
        output: receives `learned_term_weights`.
        through: last day to learn from; None: documents only.
    """
    with tables.connect() as connection:
        count_into(connection, "document_term_counts", _documents(tables))
        count_into(connection, "query_term_counts", _queries(tables, through))
        connection.execute(_CREATE_PHRASES_SQL)
        for terms_table, counts_table in (
            ("terms_by_document", "document_term_counts"),
            ("terms_by_query", "query_term_counts"),
        ):
            connection.execute(_CREATE_TERMS_SQL.format(table=terms_table, counts=counts_table))
        connection.execute(_CREATE_LIFTS_SQL, {"through": through or date.min})
        learned = connection.sql(_TERM_WEIGHTS_SQL).to_arrow_table()
    for start in range(0, learned.num_rows, PART_ROWS):
        piece = learned.slice(start, PART_ROWS)
        output.write(
            "learned_term_weights", LEARNED_TERM_WEIGHTS.rows({name: piece[name] for name in piece.column_names})
        )
    output.facts |= {
        "version": digest(output.parts["learned_term_weights"]),
        "through": through and through.isoformat(),
    }
    output.count(FunnelStep("fit_term_weights", "documents", tables.rows("documents"), "terms", learned.num_rows))


def _documents(tables: Tables) -> Iterator[pa.Table]:
    """Title and text of each document."""
    for rows in tables.batches("documents", ["tenant", "doc_id", "title", "text"], DOCUMENT_BATCH):
        text = pc.binary_join_element_wise(pc.fill_null(rows["title"], ""), rows["text"], "\n")
        yield pa.table({"tenant": rows["tenant"], "id": rows["doc_id"], "text": text})


def _queries(tables: Tables, through: date | None) -> Iterator[pa.Table]:
    if through is None:
        return
    for rows in tables.batches("log_queries", ["tenant", "query_id", "normal_form", "date"]):
        rows_through = rows.filter(pc.less_equal(rows["date"], pa.scalar(through)))
        yield pa.table(
            {"tenant": rows_through["tenant"], "id": rows_through["query_id"], "text": rows_through["normal_form"]}
        )
