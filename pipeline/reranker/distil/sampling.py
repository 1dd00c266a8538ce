"""The stage `distilled_pairs`: queries held out, soft targets, and the importance sample that is trained on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Doubles, Ints, Mask
from darklode.pipeline.judge.logistic import Logistic
from darklode.pipeline.judge.pairs import distinct
from darklode.schemas.distil_tables import DISTILLED_PAIRS

DISTILLED_PAIRS_STAGE = Stage("distilled_pairs", 1, (), (DISTILLED_PAIRS.name,))

SOURCE_TABLES = ("queries", "chunks", "pool", "verdicts")
"""Tables of the judged run; `human_labels`, too, if it has them."""

TRAIN, VALIDATION, TEST = "train", "validation", "test"

TEST_SHARE, VALIDATION_SHARE = 0.3, 0.1
"""Shares of the queries. Calibration, threshold and comparison are cross-fitted within the test queries."""

MAX_TEST_PAIRS, MAX_VALIDATION_PAIRS = 6_000, 1_500
"""Maximum number of pairs, in whole queries: a core scores 50 to 100 pairs a second."""

HARD_SHARE = 0.5
"""Share of the draws in proportion to a pair's hardness; the others are uniform, so that no weight exceeds 2."""

VERDICTS_SQL = """
    SELECT v.tenant, v.query_id, v.chunk_id, v.relevant, v.probability, v.grade, v.prompt_tokens, v.completion_tokens,
           p.best_rank, len(p.retrievers) AS n_retrievers, {people} AS people, {weight} AS people_weight
    FROM verdicts v JOIN pool p USING (tenant, query_id, chunk_id) {labels}
    WHERE v.tenant = $1 AND v.relevant IS NOT NULL ORDER BY v.query_id, v.chunk_id
"""


def distilled_pairs(_tables: Tables, output: Output, source: Tables, tenant: str, n_draws: int, *, seed: int) -> None:
    """Write a tenant's readable verdicts with their part, soft target and number of draws.

    Args:
        output: receives `distilled_pairs`: drawn training pairs, and all pairs of validation and test queries.
        source: the judged run's tables `SOURCE_TABLES`, and `human_labels` if it has any.
        tenant: the tenant.
        n_draws: training pairs to draw, with repetition.
        seed: seed of the parts and of the draw.

    Raises:
        ArtifactError: fewer than ten queries have verdicts, or all training labels are equal.
    """
    rows = load_verdicts(source, tenant)
    query_ids, query = distinct(rows["query_id"]) if rows.num_rows else (pa.array([]), np.empty(0, np.int64))
    if len(query_ids) < MIN_QUERIES:
        raise ArtifactError(
            f"tenant {tenant} has verdicts on {len(query_ids)} queries; a judge is distilled from {MIN_QUERIES} or more"
        )
    random = np.random.default_rng([seed, 31])
    is_labelled = np.bincount(query, pc.is_valid(rows["people"]).to_numpy()) > 0
    part = _parts(query, is_labelled, random)[query]
    relevant = rows["relevant"].to_numpy()
    targets = soft_targets(relevant, _floats(rows["probability"]), _floats(rows["grade"]))
    training = np.flatnonzero(part == TRAIN)
    if len(np.unique(relevant[training])) < 2:
        raise ArtifactError(f"all verdicts on the {len(training)} training pairs are equal: there is nothing to learn")
    draws, weight = np.ones(len(part), np.int64), np.ones(len(part))
    hard = hardness(rows.take(pa.array(training)), targets[training])
    draws[training], weight[training] = importance_draws(hard, n_draws, random)
    columns = {name: rows[name] for name in ("tenant", "query_id", "chunk_id", "relevant", "people", "people_weight")}
    columns |= {"part": part, "target": targets.astype(np.float32), "weight": weight.astype(np.float32)}
    table = pa.table(columns | {"draws": draws.astype(np.int32)}).filter(pa.array(draws > 0))
    output.write(DISTILLED_PAIRS.name, table.select(DISTILLED_PAIRS.schema.names).cast(DISTILLED_PAIRS.schema))
    output.facts |= {
        "verdicts": rows.num_rows,
        "relevant": int(relevant.sum()),
        **{f"{name} queries": len(np.unique(query[part == name])) for name in (TRAIN, VALIDATION, TEST)},
        "tokens per verdict": [pc.mean(rows[name]).as_py() for name in ("prompt_tokens", "completion_tokens")],
        "soft targets": "probabilities" if rows["probability"].null_count < rows.num_rows else "grades",
    }
    n_dropped = int((draws == 0).sum())
    dropped = {"not drawn for training": n_dropped} if n_dropped else {}
    output.count(FunnelStep(DISTILLED_PAIRS_STAGE.name, "verdicts", rows.num_rows, "pairs", table.num_rows, dropped))


MIN_QUERIES = 10
"""With fewer queries, no part of them says anything about new ones."""


def load_verdicts(source: Tables, tenant: str) -> pa.Table:
    """Readable verdicts with people's labels, ordered by query and chunk."""
    parts = {"people": "CAST(NULL AS BOOLEAN)", "weight": "CAST(NULL AS DOUBLE)", "labels": ""}
    if "human_labels" in source:
        has_weight = "weight" in source.dataset("human_labels").schema.names
        parts = {
            "people": "h.relevance > 0",
            "weight": "h.weight" if has_weight else "CAST(NULL AS DOUBLE)",
            "labels": "LEFT JOIN human_labels h USING (tenant, query_id, chunk_id)",
        }
    return source.sql(VERDICTS_SQL.format(**parts), [tenant])


def _floats(column: pa.ChunkedArray) -> Doubles:
    return np.asarray(pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy())


def _parts(query: Ints, is_labelled: Mask, random: np.random.Generator) -> NDArray[np.str_]:
    """Part of each query, shape (n_queries,): test queries are those with people's labels first, else at random."""
    n_queries, sizes = len(is_labelled), np.bincount(query)
    order = random.permutation(n_queries)
    order = order[np.argsort(~is_labelled[order], kind="stable")]
    part = np.full(n_queries, TRAIN, dtype="<U10")
    test = _first(order, sizes, TEST_SHARE, MAX_TEST_PAIRS)
    part[test] = TEST
    others = random.permutation(np.setdiff1d(order, test))
    part[_first(others, sizes, VALIDATION_SHARE * n_queries / len(others), MAX_VALIDATION_PAIRS)] = VALIDATION
    return part


def _first(order: Ints, sizes: Ints, share: float, max_pairs: int) -> Ints:
    """The first queries, at least two, up to a share of them and a number of pairs."""
    n_within = int(np.searchsorted(np.cumsum(sizes[order]), max_pairs, side="right"))
    return order[: max(2, min(round(share * len(order)), n_within))]


def soft_targets(relevant: Mask, probability: Doubles, grade: Doubles) -> Doubles:
    """Probability of relevance to learn from each verdict, shape (n_pairs,).

    The teacher's probability; without one, its grade: grades of not relevant pairs are spread evenly over 0 to .5
    (exclusive), those of relevant pairs over .5 to 1; without both, its label.

    Args:
        relevant: the labels.
        probability: NaN if there is none.
        grade: NaN if there is none.
    """
    target = relevant.astype(np.float64)
    has_grade = np.isfinite(grade)
    if (relevant & has_grade).any():
        lowest, highest = grade[relevant & has_grade].min(), grade[has_grade].max()
        below = 0.5 * np.clip(grade, 0, None) / max(lowest, 1)
        above = 0.5 + 0.5 * (grade - lowest + 1) / (highest - lowest + 1)
        target = np.where(has_grade, np.clip(np.where(relevant, above, below), 0, 1), target)
    return np.asarray(np.where(np.isfinite(probability), probability, target))


def hardness(rows: pa.Table, target: Doubles) -> Doubles:
    """Distance of each target from what the retrievers' ranks alone predict, shape (n_pairs,).

    Args:
        rows: best_rank (null: in no list), n_retrievers and relevant.
        target: the targets, shape (n_pairs,).
    """
    rank = pc.fill_null(rows["best_rank"], 1_000).to_numpy()
    features = np.column_stack([np.log1p(rank), rows["n_retrievers"].to_numpy()])
    expected = Logistic.fit(features, rows["relevant"].to_numpy()).probability(features)
    return np.asarray(np.abs(target - expected))


def importance_draws(hard: Doubles, n_draws: int, random: np.random.Generator) -> tuple[Ints, Doubles]:
    """Times that each pair is drawn, and the weight of each draw, both of shape (n_pairs,).

    Systematic sampling: a pair is drawn its expected number of times, rounded up or down. With the weights,
    1 / (n_pairs x probability of a draw), the expected loss is that of uniform draws (importance sampling;
    Katharopoulos and Fleuret 2018).

    Args:
        hard: hardness of each pair, >= 0.
        n_draws: total number of draws.
        random: offset of the systematic sample.
    """
    total = hard.sum()
    probability = np.full(len(hard), 1 / len(hard))
    if total > 0:
        probability = (1 - HARD_SHARE) * probability + HARD_SHARE * hard / total
    edges = np.floor(np.cumsum(probability) * n_draws + random.random()).astype(np.int64)
    draws = np.diff(edges, prepend=0)
    return draws, 1 / (len(hard) * probability)
