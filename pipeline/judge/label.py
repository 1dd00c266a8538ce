"""The stage `label`: two label sets from verdicts and, if configured, from people.

`qrels` are for evaluation and must be precise; `training_labels` are for training, where more positives help. Both hold
the same pairs. A pair that the judge calls relevant, but not surely enough for the set's wanted precision, has the
relevance null: neither positive nor negative.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.database import pieces
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.artifacts.parquet_writer import TABLE_GROUP_ROWS
from darklode.pipeline.base.doubtful_labels import LIKELIHOOD_SQL
from darklode.pipeline.base.types import Doubles
from darklode.pipeline.judge.logistic import MIN_PROBABILITY
from darklode.schemas.judging import LabelSettings
from darklode.schemas.tables import TABLES

LABEL = Stage("label", 6, ("queries", "chunks", "pool", "verdicts"), ("qrels", "training_labels"))

OVERRIDING_LABEL = replace(LABEL, reads=(*LABEL.reads, "human_labels"))
"""The same stage with `labels.human_overrides`."""

PLAUSIBLE = 0.2
"""Probability from which on a pair that the judge calls not relevant is uncertain in the training labels: it is no hard
negative, and becomes a training positive if its query has no better one. With an encoder judge, 65 to 82 % of the best
pairs between this and the threshold are relevant (homedepot; other collections have hardly any).
"""

MIN_TEST_QUERIES = 30
"""Test queries that get a positive, their best one, even if the judge does not reach the wanted precision: with fewer,
intervals are too wide for any comparison. The shortfall is reported.
"""

JUDGE_LABELS_SQL = f"""
    SELECT tenant, query_id, chunk_id,
           CASE WHEN relevant THEN greatest(coalesce(grade, 1), 1) ELSE 0 END AS relevance, 'judge' AS source,
           CAST({LIKELIHOOD_SQL} AS DOUBLE) AS likelihood
    FROM verdicts WHERE relevant IS NOT NULL
"""

# Human labels without grades (only 0 and 1) say nothing about the grade of a relevant pair: it keeps the judge's grade,
# or gets the lowest grade that the judge gives to a relevant pair.
OVERRIDDEN_LABELS_SQL = f"""
    WITH judge_labels AS ({JUDGE_LABELS_SQL}), scales AS (
        SELECT (SELECT max(relevance) FROM human_labels) > 1 AS graded_by_people,
               (SELECT min(relevance) FROM judge_labels WHERE relevance > 0) AS lowest
    )
    SELECT * FROM judge_labels ANTI JOIN human_labels USING (tenant, query_id, chunk_id)
    UNION ALL
    SELECT tenant, query_id, chunk_id,
           CASE WHEN h.relevance = 0 OR graded_by_people THEN h.relevance
                ELSE coalesce(nullif(j.relevance, 0), lowest, h.relevance) END,
           'human', (h.relevance > 0)::DOUBLE
    FROM scales, human_labels h LEFT JOIN judge_labels j USING (tenant, query_id, chunk_id)
"""

# Chunks of documents that people judged relevant; whether they are is unknown: they are neither positive nor negative.
UNKNOWN_LABELS_SQL = """
    SELECT tenant, query_id, chunk_id, CAST(NULL AS INTEGER) AS relevance, 'human' AS source,
           CAST(NULL AS DOUBLE) AS likelihood
    FROM judged_chunks ANTI JOIN human_labels USING (tenant, query_id, chunk_id)
    ANTI JOIN ({judge_labels}) USING (tenant, query_id, chunk_id)
    WHERE relevance IS NULL
"""

BINARY_LABELS_SQL = "SELECT * REPLACE (least(relevance, 1) AS relevance) FROM ({labels})"

# `slope` and `intercept` are those of `calibration`; clipping keeps the log-odds finite.
WEIGHTED_LABELS_SQL = f"""
    SELECT l.* EXCLUDE (likelihood, clipped),
           CASE WHEN source = 'human' OR slope IS NULL THEN likelihood
                ELSE 1 / (1 + exp(-(intercept + slope * ln(clipped / (1 - clipped)))))
           END AS weight
    FROM (
        SELECT *, greatest(least(likelihood, 1 - {MIN_PROBABILITY}), {MIN_PROBABILITY}) AS clipped FROM ({{labels}})
    ) l LEFT JOIN calibrations USING (tenant)
"""

CALIBRATIONS_SQL = "SELECT tenant, slope, intercept FROM calibration"
NO_CALIBRATIONS_SQL = "SELECT '' AS tenant, CAST(NULL AS DOUBLE) AS slope, CAST(NULL AS DOUBLE) AS intercept LIMIT 0"

PROBABILITIES_SQL = """
    SELECT tenant, split = 'test' AS is_test, weight FROM weighted_labels JOIN queries USING (tenant, query_id)
    WHERE relevance > 0 AND source = 'judge' AND weight IS NOT NULL
"""

# The best positive of the test queries that are surest of one, at most `$n` per tenant.
BEST_TEST_POSITIVES_SQL = """
    CREATE TEMP TABLE best_test_positives AS WITH best_positives AS (
        SELECT tenant, query_id, chunk_id, coalesce(weight, 1) AS weight
        FROM weighted_labels JOIN queries USING (tenant, query_id) ANTI JOIN short_chunks USING (tenant, chunk_id)
        WHERE relevance > 0 AND split = 'test'
        QUALIFY row_number() OVER (
            PARTITION BY tenant, query_id ORDER BY source, relevance DESC, weight DESC NULLS LAST, chunk_id
        ) = 1
    )
    SELECT tenant, query_id, chunk_id, weight FROM best_positives
    QUALIFY row_number() OVER (PARTITION BY tenant ORDER BY weight DESC, query_id) <= $n
"""

# Letters and digits outside Markdown headings and links; a CJK character counts as three letters.
HEADINGS_AND_LINKS = r"(?m)^[ \t]*#{1,6}[ \t].*$|!?\[[^\]]*\]\([^)]*\)|https?://\S+"
NOT_CJK = r"[^\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}]"
SHORT_CHUNKS_SQL = rf"""
    CREATE TEMP TABLE short_chunks AS
    WITH contents AS (
        SELECT tenant, chunk_id, regexp_replace(text, '{HEADINGS_AND_LINKS}', ' ', 'g') AS content
        FROM chunks SEMI JOIN (
            FROM weighted_labels WHERE (relevance > 0 OR weight >= $plausible) AND source = 'judge'
        ) USING (tenant, chunk_id)
    )
    SELECT tenant, chunk_id FROM contents
    WHERE length(regexp_replace(content, '[^\pL\pN]', '', 'g'))
          + 2 * length(regexp_replace(content, '{NOT_CJK}', '', 'g')) < $min_letters
"""

# Human labels, and judge labels without a probability, are never uncertain. A judge's label of a short text has the
# weight 0, so that it does not become the training positive of a query without a better one.
LABELS_OF_SPLIT_SQL = """
    SELECT tenant, query_id, chunk_id, source,
           CASE WHEN source = 'judge' AND s.chunk_id IS NOT NULL THEN 0 ELSE weight END AS weight,
           CASE WHEN source = 'human' THEN relevance
                WHEN relevance = 0 THEN CASE WHEN l.weight >= plausible THEN NULL ELSE 0 END
                WHEN coalesce(l.weight >= cut, true) AND s.chunk_id IS NULL OR b.chunk_id IS NOT NULL THEN relevance
           END AS relevance
    FROM weighted_labels l JOIN {cuts} USING (tenant)
    LEFT JOIN (SELECT tenant, query_id, split FROM queries) USING (tenant, query_id)
    LEFT JOIN short_chunks s USING (tenant, chunk_id)
    LEFT JOIN (SELECT tenant, query_id, chunk_id FROM best_test_positives) b USING (tenant, query_id, chunk_id)
    WHERE coalesce(split, '') = $split ORDER BY tenant, query_id, chunk_id
"""

SHORT_TENANTS_SQL = """
    SELECT DISTINCT tenant FROM best_test_positives JOIN test_cuts USING (tenant) WHERE weight < cut ORDER BY tenant
"""

HUMAN_LABEL_COUNTS_SQL = f"""
    SELECT count(*) AS human, count(*) FILTER (j.relevance IS NULL) AS only_human,
           count(*) FILTER ((j.relevance > 0) <> (h.relevance > 0)) AS overruled
    FROM human_labels h LEFT JOIN ({JUDGE_LABELS_SQL}) j USING (tenant, query_id, chunk_id)
"""

# A query counts as having no positive only if every candidate has a label; an unreadable one might be relevant.
QUERY_OUTCOMES_SQL = """
    WITH candidate_counts AS (
        SELECT tenant, query_id, count(*) AS candidates, count(relevance) AS labelled
        FROM pool LEFT JOIN weighted_labels USING (tenant, query_id, chunk_id) GROUP BY tenant, query_id
    ),
    certain_queries AS (SELECT DISTINCT tenant, query_id, true AS is_certain FROM qrels WHERE relevance > 0),
    positive_queries AS (
        SELECT DISTINCT tenant, query_id, true AS is_positive FROM weighted_labels WHERE relevance > 0
    ),
    outcomes AS (
        SELECT CASE WHEN is_certain THEN 'answered' WHEN is_positive THEN 'only uncertain positives'
                    WHEN candidates IS NULL THEN 'no candidate found'
                    WHEN labelled < candidates THEN 'no positive among the labelled candidates'
                    ELSE 'no positive found' END AS outcome
        FROM queries LEFT JOIN candidate_counts USING (tenant, query_id)
        LEFT JOIN certain_queries USING (tenant, query_id) LEFT JOIN positive_queries USING (tenant, query_id)
    )
    SELECT outcome, count(*) AS queries FROM outcomes GROUP BY outcome ORDER BY outcome
"""


def write_labels(tables: Tables, output: Output, settings: LabelSettings) -> None:
    """Write the relevance of every readable verdict, for evaluation and for training.

    A relevant pair has the judge's grade, or 1 without a grade; other pairs have 0, whatever their grade. Null verdicts
    get no row. With `human_overrides`, human labels replace verdicts, and are added where there is none. With `binary`,
    a relevant pair has 1, whatever its grade.

    The judge's positives are certain from the probability on at which their expected precision, the mean of their
    probabilities, is the wanted one (`precision_cut`); so are human labels, and labels without a probability. Others,
    and texts with fewer than `min_letters` letters, have the relevance null; the weight of such a text is 0. Where that
    leaves fewer than `MIN_TEST_QUERIES` test queries with a positive, the best ones of as many are certain, too. In the
    training labels, negatives from `PLAUSIBLE` on are uncertain as well. Where people labelled pairs of the pool,
    `calibration`, which was fitted to their labels, corrects the probabilities.

    Args:
        tables: must contain `queries`, `chunks`, `pool` and `verdicts`; with `human_overrides` also `human_labels`;
            `calibration` if the judge was compared with people; with `judged_chunks`, other chunks of relevant
            documents are uncertain unless the judge labelled them.
        output: receives `qrels`, one folder per split, and `training_labels` of train and validation. The funnel counts
            labels and queries by outcome; facts count human labels, those without a verdict, and those that overrule
            one.
        settings: wanted precision of both sets, whether human labels override the judge, and whether grades are
            dropped.
    """
    total = tables.rows("verdicts")
    with tables.connect() as connection:
        _create_weighted_labels(
            connection, settings, is_calibrated="calibration" in tables, has_judgments="judged_chunks" in tables
        )
        connection.execute(SHORT_CHUNKS_SQL, {"min_letters": settings.min_letters, "plausible": PLAUSIBLE})
        connection.execute(BEST_TEST_POSITIVES_SQL, {"n": MIN_TEST_QUERIES})
        _create_cuts(connection, settings)
        n_qrels = n_uncertain = 0
        for split in ("train", "validation", "test", ""):  # human labels may have queries that the run lacks
            for rows in _write_split(connection, output, "qrels", "test_cuts", split):
                n_qrels += rows.num_rows
                n_uncertain += rows["relevance"].null_count
                output.progress(n_qrels, total)
        for split in ("train", "validation"):
            for _rows in _write_split(connection, output, "training_labels", "training_cuts", split):
                pass
        if settings.human_overrides:
            output.facts |= connection.sql(HUMAN_LABEL_COUNTS_SQL).to_arrow_table().to_pylist()[0]
        output.facts |= {
            "uncertain": n_uncertain,
            "short_of_precision": _tenants(connection, SHORT_TENANTS_SQL),
        }
        judged = n_qrels - output.facts.get("only_human", 0)
        dropped = {"unreadable reply": total - judged} if total > judged else {}
        output.count(FunnelStep("label", "verdicts", total, "labels", n_qrels, dropped))
        output.current_tables("qrels").view(connection, "qrels", "qrels")
        output.count(_outcome_step(connection))


def _create_weighted_labels(
    connection: duckdb.DuckDBPyConnection, settings: LabelSettings, *, is_calibrated: bool, has_judgments: bool
) -> None:
    """Create the views `calibrations` (tenant, slope, intercept) and `weighted_labels`."""
    labels = OVERRIDDEN_LABELS_SQL if settings.human_overrides else JUDGE_LABELS_SQL
    if has_judgments:
        labels = f"{labels} UNION ALL {UNKNOWN_LABELS_SQL.format(judge_labels=JUDGE_LABELS_SQL)}"
    labels = BINARY_LABELS_SQL.format(labels=labels) if settings.binary else labels
    connection.execute("CREATE VIEW calibrations AS " + (CALIBRATIONS_SQL if is_calibrated else NO_CALIBRATIONS_SQL))
    connection.execute("CREATE VIEW weighted_labels AS " + WEIGHTED_LABELS_SQL.format(labels=labels))


def _write_split(
    connection: duckdb.DuckDBPyConnection, output: Output, table: str, cuts: str, split: str
) -> Iterator[pa.Table]:
    """Write the labels of a split, and yield them in pieces."""
    with output.row_group_writer(table, PART_ROWS, split) as write_rows:
        for rows in pieces(connection, LABELS_OF_SPLIT_SQL.format(cuts=cuts), {"split": split}, TABLE_GROUP_ROWS):
            write_rows(TABLES[table].rows({name: rows[name] for name in TABLES[table].schema.names}))
            yield rows


def _create_cuts(connection: duckdb.DuckDBPyConnection, settings: LabelSettings) -> None:
    """Create the tables `test_cuts` and `training_cuts` with a row per tenant: `cut`, the minimum probability of a
    certain positive, and `plausible`, that of an uncertain negative.
    """
    positives = connection.sql(PROBABILITIES_SQL).to_arrow_table()
    tenants = _tenants(connection, "SELECT DISTINCT tenant FROM weighted_labels ORDER BY tenant")
    training_positives = positives.filter(pc.invert(positives["is_test"]))
    for table, rows, precision, plausible in (
        ("test_cuts", positives, settings.test_precision, np.inf),
        ("training_cuts", training_positives, settings.training_precision, PLAUSIBLE),
    ):
        of_tenants = (rows.filter(pc.equal(rows["tenant"], tenant))["weight"].to_numpy() for tenant in tenants)
        cuts = [precision_cut(probabilities, precision) for probabilities in of_tenants]
        columns = {"tenant": pa.array(tenants, pa.string()), "cut": pa.array(cuts, pa.float64())}
        columns["plausible"] = pa.repeat(plausible, len(tenants))
        connection.register(table, pa.table(columns))


def _tenants(connection: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    return [tenant for (tenant,) in connection.sql(query).fetchall()]


def precision_cut(probabilities: Doubles, precision: float) -> float:
    """Minimum probability from which on the mean of the probabilities is at least `precision`; infinity if none is.

    Args:
        probabilities: of the judge's positives, in any order, shape (n,).
        precision: wanted share of relevant pairs, which the mean estimates if the probabilities are calibrated.
    """
    values, counts = np.unique(probabilities, return_counts=True)
    values, counts = values[::-1], counts[::-1]
    is_precise = np.cumsum(values * counts) >= precision * np.cumsum(counts)
    return float(values[is_precise].min(initial=np.inf))


def _outcome_step(connection: duckdb.DuckDBPyConnection) -> FunnelStep:
    """Funnel step of queries by outcome."""
    rows = connection.sql(QUERY_OUTCOMES_SQL).to_arrow_table().to_pylist()
    queries = {row["outcome"]: row["queries"] for row in rows}
    answered = queries.pop("answered", 0)
    n_requested = answered + sum(queries.values())
    return FunnelStep("answers", "queries", n_requested, "queries with a positive", answered, queries)
