"""Features of a pair from the run itself: retrievers' scores and ranks, word and character overlap, and lengths."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import astuple, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import key_of
from darklode.pipeline.base.chunk_texts import TenantChunks, view
from darklode.pipeline.base.terms import TermSpace
from darklode.pipeline.judge.adaptive.pool_features import RETRIEVERS_SQL
from darklode.pipeline.judge.character_overlap import CharacterOverlap
from darklode.pipeline.judge.embedded import EmbeddedJudge, Features
from darklode.pipeline.judge.pairs import distinct
from darklode.pipeline.retrieve.pool import RRF_K
from darklode.schemas.pooling import RETRIEVERS

# A chunk that is not in a retriever's list gets the list's lowest score, the highest that it can have.
_CREATE_RANKING_FEATURES_SQL = """
    CREATE TEMP TABLE ranking_features AS
    WITH lists AS (SELECT query_id, chunk_id, retriever, rank, score FROM rankings WHERE tenant = $tenant),
    lowest_scores AS (SELECT query_id, {lowest_scores} FROM lists GROUP BY query_id),
    pair_scores AS (SELECT query_id, chunk_id, {pair_scores} FROM lists GROUP BY query_id, chunk_id)
    SELECT query_id, chunk_id, {columns}, p.fused_score, ln(coalesce(p.best_rank, 1 + max(p.best_rank) OVER ())),
           len(p.retrievers)
    FROM pool p LEFT JOIN lowest_scores l USING (query_id) LEFT JOIN pair_scores s USING (query_id, chunk_id)
    WHERE p.tenant = $tenant ORDER BY query_id, chunk_id
"""

_REQUESTED_FEATURES_SQL = """
    SELECT f.* EXCLUDE (query_id, chunk_id)
    FROM requested_pairs p LEFT JOIN ranking_features f USING (query_id, chunk_id) ORDER BY p.pair_index
"""

PRIOR_VARIANCE, ENCODER_PRIOR_VARIANCE = 0.3, 0.3
"""Prior variance of all weights together, and of the weight of one encoder's score. Of nine combinations, chosen by the
kappa of 100 and 400 labels on six collections, one left out in turn (benchmarks/judge_learning.py)."""

_OTHER_FEATURES = 3 + len(fields(Features)) + 2 + 2  # pool, embedded judge, characters, lengths
_Floats = NDArray[np.float64]


class RankingFeatures:
    """Features of the pairs of a tenant's pool.

    For each retriever the score (the lowest of its list if not retrieved) and the reciprocal rank (0 if not retrieved);
    the fused score, log of the best rank and number of retrievers; the features of the embedded judge; the overlap in
    character trigrams; log lengths of query and chunk in characters. Memory does not grow with the pool, because DuckDB
    spills to disk.

    Args:
        chunks: the tenant's chunks; the run has `pool` and `rankings`.

    Attributes:
        prior_variance: of the weights in a logistic regression (`Logistic.fit`), shape (n_features,): a retriever that
            is not embedded, such as an encoder, has a score that means the same for every query, and a larger variance.
    """

    def __init__(self, chunks: TenantChunks) -> None:
        tables = chunks.tables
        lists = [part.sha256 for table in ("rankings", "pool") for part in tables.parts(table)]
        self.measure_id = key_of(chunks.digest, lists)
        space = TermSpace(chunks.batches())
        self._embedded, self._characters = EmbeddedJudge(space), CharacterOverlap(space)
        exit_stack = ExitStack()
        self._connection = exit_stack.enter_context(tables.connect())
        weakref.finalize(self, exit_stack.close)
        tenant = {"tenant": chunks.tenant}
        names = [name for (name,) in self._connection.execute(RETRIEVERS_SQL, tenant).fetchall()]
        self._connection.execute(_join_rankings_sql(names), tenant)
        self.prior_variance = _prior_variance(names)

    def __call__(self, pairs: pa.Table) -> _Floats:
        """NaN if the pool does not contain the pair."""
        embedded_features = np.column_stack(astuple(self._embedded.features(pairs)))
        (queries, query), (texts, text) = distinct(pairs["query"]), distinct(view(pairs))
        character_overlap = self._characters(queries.to_pylist(), texts.to_pylist(), query, text)
        lengths = [pc.utf8_length(pairs[name]).to_numpy() for name in ("query", "text")]
        return np.column_stack(
            [self._ranking_columns(pairs), embedded_features, character_overlap, np.log1p(np.stack(lengths, axis=1))]
        )

    def _ranking_columns(self, pairs: pa.Table) -> _Floats:
        pair_ids = pairs.select(["query_id", "chunk_id"]).append_column(
            "pair_index", pa.array(np.arange(pairs.num_rows))
        )
        self._connection.register("requested_pairs", pair_ids)
        rows = self._connection.sql(_REQUESTED_FEATURES_SQL).to_arrow_table()
        columns = [pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy() for column in rows.columns]
        return np.stack(columns, axis=1)


def _prior_variance(names: list[str]) -> _Floats:
    """Prior variance of each feature's weight; `names` are the retrievers, in the order of their columns."""
    n_features = 2 * len(names) + _OTHER_FEATURES
    variance = np.full(n_features, PRIOR_VARIANCE / n_features)
    scores = 2 * np.arange(len(names))
    variance[scores[[name not in RETRIEVERS.own_kinds() for name in names]]] = ENCODER_PRIOR_VARIANCE
    return variance


def _join_rankings_sql(names: list[str]) -> str:
    """SQL that creates the table of features: two columns per retriever, and three for the pool."""
    numbers = range(len(names))
    retriever_conditions = ["retriever = '" + name.replace("'", "''") + "'" for name in names]
    return _CREATE_RANKING_FEATURES_SQL.format(
        lowest_scores=", ".join(
            f"min(score) FILTER ({condition}) AS lowest_{n}" for n, condition in enumerate(retriever_conditions)
        ),
        pair_scores=", ".join(
            f"max(score) FILTER ({condition}) AS score_{n}, max(rank) FILTER ({condition}) AS rank_{n}"
            for n, condition in enumerate(retriever_conditions)
        ),
        columns=", ".join(
            f"coalesce(score_{n}, lowest_{n}, 0) AS score_{n}, "
            f"coalesce({RRF_K + 1} / ({RRF_K} + rank_{n}), 0) AS rank_{n}"
            for n in numbers
        ),
    )
