"""The stage `review_sample`: draw a stratified sample of pairs for human review."""

from __future__ import annotations

from functools import partial

import duckdb
import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables
from darklode.pipeline.base.artifacts.database import pieces
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.validate import strata
from darklode.pipeline.validate.purposes import Purpose, covers_all_queries, level_sql
from darklode.pipeline.validate.strata import Cells, Stratum, stratify, stratify_by_level
from darklode.schemas.review_tables import REVIEW_SAMPLE, REVIEW_STRATA
from darklode.schemas.settings import ReviewSettings

REVIEW_SAMPLE_STAGE = Stage("review_sample", 1, ("pool", "verdicts"), ("review_sample", "review_strata"))
"""With adaptive judging it also reads `unjudged`."""


def review_sample(
    tables: Tables,
    output: Output,
    settings: ReviewSettings,
    *,
    seed: int,
    purpose: Purpose = "validate",
    threshold: float = 0.5,
) -> None:
    """Sample queries of each tenant, then pairs of these queries, stratified (`strata.stratify`).

    For a purpose other than `validate`, pairs of all queries are sampled by their priority (`purposes`).

    A sampled pair represents `pairs` ÷ `sampled` pairs of its stratum in the whole run. Pairs are reviewed query by
    query in random order, so the order reveals nothing, and an unfinished review is still a random sample of queries.
    Sampling depends on the seed and ids only.

    Args:
        tables: must contain `pool` and `verdicts`; with adaptive judging also `unjudged`; and `purposes.TABLES_READ`.
        output: receives `review_sample` and `review_strata`.
        settings: settings of the review: share of queries, number of pairs, share of pairs that all reviewers label.
        seed: random seed of the sample.
        purpose: what the labels are for.
        threshold: the judge's threshold, for the purpose `calibrate`.

    Sources: DevRev-Search, 3.3 (10 % of the queries validated by people); Ohlsson, 1998 (permanent random numbers).
    """
    pairs_of = partial(_pairs, tables, purpose, threshold)
    query_share = 1.0 if covers_all_queries(purpose) else settings.query_share
    with tables.connect() as connection:
        connection.execute(SAMPLED_QUERIES_SQL, {"seed": str(seed), "share": query_share})
        connection.execute(PAIR_COUNTS_SQL.format(pairs=pairs_of("pool")))
        cell_rows = connection.sql(CELLS_SQL).to_arrow_table()
        if cell_rows.num_rows:
            tenants = cell_rows["tenant"].combine_chunks().dictionary_encode()
            cells = _cells(cell_rows, tenants)
            n_candidates = int(cells.candidates.sum())
            n_pairs = settings.max_pairs or n_candidates
            level = cell_rows["level"].to_numpy().astype(np.int64)
            planned_strata = (
                stratify(cells, n_pairs) if purpose == "validate" else stratify_by_level(cells, level, n_pairs)
            )
            _plan(connection, cell_rows, cells, planned_strata, tenants.dictionary.to_pylist())
            _write(
                connection,
                output,
                pairs_of("(FROM pool SEMI JOIN sampled_queries USING (tenant, query_id))"),
                seed,
                settings,
            )
            n_sampled = sum(stratum.sampled for stratum in planned_strata)
            dropped = {"not in the sample": n_candidates - n_sampled} if n_candidates > n_sampled else {}
            output.count(
                FunnelStep("review_sample", "candidates of sampled queries", n_candidates, "pairs", n_sampled, dropped)
            )
            query_counts = connection.sql("SELECT count(*) FROM sampled_queries").fetchall()
            output.facts["queries"] = int(query_counts[0][0])


def _pairs(tables: Tables, purpose: Purpose, threshold: float, pool: str) -> str:
    """Build the SQL of the pool's pairs, or a part of them, with the columns that define strata."""
    probability, join = "v.probability", ""
    if "unjudged" in tables:
        probability = "coalesce(v.probability, u.probability)"
        join = "LEFT JOIN unjudged u USING (tenant, query_id, chunk_id)"
    level, level_join = level_sql(purpose, probability, threshold)
    return PAIRS_SQL.format(pool=pool, probability=probability, level=level, joins=f"{join} {level_join}")


def _cells(cell_rows: pa.Table, tenants: pa.DictionaryArray) -> Cells:
    """Convert rows of the query `CELLS_SQL` to arrays."""
    numbers = {name: cell_rows[name].to_numpy().astype(np.int64) for name in CELL_COLUMNS}
    return Cells(tenant=tenants.indices.to_numpy().astype(np.int64), **numbers)


CELL_COLUMNS = ("verdict", "found_by", "permille", "pairs", "candidates")


def _plan(
    connection: duckdb.DuckDBPyConnection, cell_rows: pa.Table, cells: Cells, chosen: list[Stratum], tenants: list[str]
) -> None:
    """Create the tables `cells` (with strata), `strata` and `stratum_plans`."""
    stratum_numbers = np.empty(cell_rows.num_rows, np.int64)
    for stratum_number, stratum in enumerate(chosen):
        stratum_numbers[stratum.cells] = stratum_number
    columns = {
        "number": list(range(len(chosen))),
        "stratum": [_name(stratum_number, stratum, cells, tenants) for stratum_number, stratum in enumerate(chosen)],
        "sampled": pa.array([stratum.sampled for stratum in chosen], pa.int64()),
    }
    connection.register("cell_rows", cell_rows.append_column("number", pa.array(stratum_numbers)))
    connection.register("stratum_rows", pa.table(columns))
    connection.execute("CREATE TEMP TABLE cells AS FROM cell_rows")
    connection.execute("CREATE TEMP TABLE strata AS FROM stratum_rows")
    connection.execute(STRATUM_PLANS_SQL)


def _name(number: int, stratum: Stratum, cells: Cells, tenants: list[str]) -> str:
    """Build the readable name of a stratum; its number makes it unique."""
    tenant = "several tenants" if stratum.tenant is None else tenants[stratum.tenant]
    probabilities = cells.permille[stratum.cells][cells.permille[stratum.cells] >= 0] / 1000
    band = f", {probabilities.min():.3f} to {probabilities.max():.3f}" if len(probabilities) else ""
    retriever_counts = sorted({strata.FINDER_COUNTS[found_by] for found_by in cells.found_by[stratum.cells]})
    return f"{number:03d} {tenant}: {strata.VERDICTS[stratum.verdict]}{band}, found by {' or '.join(retriever_counts)}"


def _write(
    connection: duckdb.DuckDBPyConnection, output: Output, pairs: str, seed: int, settings: ReviewSettings
) -> None:
    """Draw the planned pairs, and write the sample and its strata."""
    connection.execute(DRAWN_PAIRS_SQL.format(pairs=pairs), {"seed": str(seed)})
    for rows in pieces(connection, SAMPLE_ROWS_SQL, {"seed": str(seed), "shared": settings.overlap_share}, PART_ROWS):
        output.write("review_sample", REVIEW_SAMPLE.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    rows = connection.sql(STRATA_ROWS_SQL, params={"verdicts": list(strata.VERDICTS)}).to_arrow_table()
    output.write("review_strata", REVIEW_STRATA.rows(dict(zip(rows.column_names, rows.columns, strict=True))))


# The tables below are temporary and are created in this order: `sampled_queries`, `pair_counts` (pairs of the run by
# their stratification values), then by `_plan` `cells`, `strata` and `stratum_plans`, then `drawn_pairs`.

# A random number per row, independent of other rows, row order and DuckDB's version.
RANDOM_NUMBER_SQL = "md5_number_lower(concat_ws(chr(0), $seed, '{purpose}', {columns}))"

SAMPLED_QUERIES_SQL = f"""
    CREATE TEMP TABLE sampled_queries AS
    WITH pool_queries AS (SELECT DISTINCT tenant, query_id FROM pool)
    SELECT tenant, query_id FROM pool_queries
    QUALIFY row_number() OVER (
        PARTITION BY tenant ORDER BY {RANDOM_NUMBER_SQL.format(purpose="query", columns="tenant, query_id")}, query_id
    ) <= greatest(1, CAST(round($share * count(*) OVER (PARTITION BY tenant)) AS BIGINT))
"""

PAIRS_SQL = """
    SELECT p.tenant, p.query_id, p.chunk_id, p.retrievers,
           CASE WHEN v.judge_id IS NULL THEN 3 WHEN v.relevant IS NULL THEN 2 WHEN v.relevant THEN 0 ELSE 1 END
               AS verdict,
           CAST(len(p.retrievers) > 1 AS INTEGER) AS found_by,
           coalesce(CAST(round(1000 * {probability}) AS INTEGER), -1) AS permille, {level} AS level
    FROM {pool} p LEFT JOIN verdicts v USING (tenant, query_id, chunk_id) {joins}
"""

PAIR_COUNTS_SQL = """
    CREATE TEMP TABLE pair_counts AS
    SELECT tenant, verdict, found_by, permille, level, retrievers, count(*) AS pairs,
           count(*) FILTER (c.query_id IS NOT NULL) AS candidates
    FROM ({pairs}) LEFT JOIN sampled_queries c USING (tenant, query_id)
    GROUP BY tenant, verdict, found_by, permille, level, retrievers
"""

CELLS_SQL = """
    SELECT tenant, verdict, found_by, permille, level, CAST(sum(pairs) AS BIGINT) AS pairs,
           CAST(sum(candidates) AS BIGINT) AS candidates
    FROM pair_counts GROUP BY ALL ORDER BY tenant, verdict, found_by, permille, level
"""

STRATUM_PLANS_SQL = """
    CREATE TEMP TABLE stratum_plans AS
    SELECT number, stratum, sampled, CAST(sum(cells.pairs) AS BIGINT) AS pairs
    FROM cells JOIN strata USING (number) GROUP BY number, stratum, sampled
"""

RANDOM_START_SQL = RANDOM_NUMBER_SQL.format(purpose="start", columns="number, finder_group")

# Within a stratum, the sample is spread over groups of pairs: by the retriever, or the number of retrievers, that found
# them. Each group is laid out evenly from its own random start, and the first `sampled` of all are taken (Ohlsson,
# 1998). A pair keeps its random number, so that a rebuilt run samples mostly the same pairs.
DRAWN_PAIRS_SQL = f"""
    CREATE TEMP TABLE drawn_pairs AS
    WITH candidates AS (
        SELECT tenant, query_id, chunk_id, number,
               CASE found_by WHEN 0 THEN retrievers[1] ELSE CAST(len(retrievers) AS VARCHAR) END AS finder_group,
               {RANDOM_NUMBER_SQL.format(purpose="pair", columns="tenant, query_id, chunk_id")} AS draw
        FROM ({{pairs}}) JOIN cells USING (tenant, verdict, found_by, permille, level)
    ), placed_pairs AS (
        SELECT *, (row_number() OVER group_order - {RANDOM_START_SQL} / 18446744073709551616.0)
                  / count(*) OVER (PARTITION BY number, finder_group) AS place
        FROM candidates
        WINDOW group_order AS (PARTITION BY number, finder_group ORDER BY draw, tenant, query_id, chunk_id)
    )
    SELECT tenant, query_id, chunk_id, stratum_plans.* FROM placed_pairs JOIN stratum_plans USING (number)
    QUALIFY row_number() OVER (PARTITION BY number ORDER BY place, draw, tenant, query_id, chunk_id) <= sampled
"""

SAMPLE_ROWS_SQL = f"""
    WITH shuffled_pairs AS (
        SELECT *, {RANDOM_NUMBER_SQL.format(purpose="order of queries", columns="tenant, query_id")} AS query_random,
               {RANDOM_NUMBER_SQL.format(purpose="order of pairs", columns="tenant, query_id, chunk_id")}
                   AS pair_random,
               {RANDOM_NUMBER_SQL.format(purpose="shared", columns="tenant, query_id, chunk_id")} AS shared_random
        FROM drawn_pairs
    )
    SELECT tenant, query_id, chunk_id,
           CAST(row_number() OVER (ORDER BY query_random, tenant, query_id, pair_random, chunk_id) - 1 AS INTEGER)
               AS position,
           stratum, pairs, sampled, pairs / sampled AS weight,
           row_number() OVER (ORDER BY shared_random, tenant, query_id, chunk_id)
               <= round($shared * count(*) OVER ()) AS shared
    FROM shuffled_pairs ORDER BY position
"""

STRATA_ROWS_SQL = """
    WITH numbered_cells AS (
        SELECT tenant, retrievers, number, pair_counts.pairs, verdict
        FROM pair_counts JOIN cells USING (tenant, verdict, found_by, permille, level)
    ), retriever_pairs AS (
        SELECT number, tenant, verdict, NULL AS retriever, pairs FROM numbered_cells UNION ALL
        SELECT number, tenant, verdict, unnest(retrievers), pairs FROM numbered_cells
    )
    SELECT stratum, CAST(number AS INTEGER) AS position, tenant, retriever, $verdicts[verdict + 1] AS verdict,
           CAST(sum(pairs) AS BIGINT) AS pairs
    FROM retriever_pairs JOIN strata USING (number) GROUP BY ALL ORDER BY position, tenant, retriever NULLS FIRST
"""
