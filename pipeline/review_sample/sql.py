"""What the sample is drawn with, in SQL; `{pairs}` is `PAIRS` of all the pool or of a part of it."""

# A number for each row that no other row, order of rows or version of DuckDB can change.
DRAW = "md5_number_lower(concat_ws(chr(0), $seed, '{what}', {columns}))"

CHOSEN = f"""
    CREATE TEMP TABLE chosen AS
    WITH asked AS (SELECT DISTINCT tenant, query_id FROM pool)
    SELECT tenant, query_id FROM asked
    QUALIFY row_number() OVER (
        PARTITION BY tenant ORDER BY {DRAW.format(what="query", columns="tenant, query_id")}, query_id
    ) <= greatest(1, CAST(round($share * count(*) OVER (PARTITION BY tenant)) AS BIGINT))
"""

PAIRS = """
    SELECT p.tenant, p.query_id, p.chunk_id, p.retrievers,
           CASE WHEN v.judge_id IS NULL THEN 3 WHEN v.relevant IS NULL THEN 2 WHEN v.relevant THEN 0 ELSE 1 END
               AS verdict,
           CAST(len(p.retrievers) > 1 AS INTEGER) AS found,
           coalesce(CAST(round(1000 * {probability}) AS INTEGER), -1) AS permille
    FROM {pool} p LEFT JOIN verdicts v USING (tenant, query_id, chunk_id) {unjudged}
"""

COUNTED = """
    CREATE TEMP TABLE counted AS
    SELECT tenant, verdict, found, permille, retrievers, count(*) AS pairs,
           count(*) FILTER (c.query_id IS NOT NULL) AS candidates
    FROM ({pairs}) LEFT JOIN chosen c USING (tenant, query_id)
    GROUP BY tenant, verdict, found, permille, retrievers
"""

CELLS = """
    SELECT tenant, verdict, found, permille, CAST(sum(pairs) AS BIGINT) AS pairs,
           CAST(sum(candidates) AS BIGINT) AS candidates
    FROM counted GROUP BY tenant, verdict, found, permille ORDER BY tenant, verdict, found, permille
"""

PLANNED = """
    CREATE TEMP TABLE planned AS
    SELECT number, stratum, sampled, CAST(sum(cells.pairs) AS BIGINT) AS pairs
    FROM cells JOIN strata USING (number) GROUP BY number, stratum, sampled
"""

START = DRAW.format(what="start", columns="number, who")

# Within a stratum the draw is spread over who found a pair: the one retriever, or so many. Each of these groups is laid
# out evenly from a place of its own, and the first so many of all are drawn (Ohlsson, 1998). A pair keeps its number in
# every draw, so that a run which was built again asks about mostly the same pairs.
DRAWN = f"""
    CREATE TEMP TABLE drawn AS
    WITH candidates AS (
        SELECT tenant, query_id, chunk_id, number,
               CASE found WHEN 0 THEN retrievers[1] ELSE CAST(len(retrievers) AS VARCHAR) END AS who,
               {DRAW.format(what="pair", columns="tenant, query_id, chunk_id")} AS draw
        FROM ({{pairs}}) JOIN cells USING (tenant, verdict, found, permille)
    ), laid AS (
        SELECT *, (row_number() OVER alike - {START} / 18446744073709551616.0)
                  / count(*) OVER (PARTITION BY number, who) AS place
        FROM candidates WINDOW alike AS (PARTITION BY number, who ORDER BY draw, tenant, query_id, chunk_id)
    )
    SELECT tenant, query_id, chunk_id, planned.* FROM laid JOIN planned USING (number)
    QUALIFY row_number() OVER (PARTITION BY number ORDER BY place, draw, tenant, query_id, chunk_id) <= sampled
"""

SAMPLE = f"""
    WITH mixed AS (
        SELECT *, {DRAW.format(what="order of queries", columns="tenant, query_id")} AS of_query,
               {DRAW.format(what="order of pairs", columns="tenant, query_id, chunk_id")} AS of_pair,
               {DRAW.format(what="shared", columns="tenant, query_id, chunk_id")} AS of_shared
        FROM drawn
    )
    SELECT tenant, query_id, chunk_id,
           CAST(row_number() OVER (ORDER BY of_query, tenant, query_id, of_pair, chunk_id) - 1 AS INTEGER) AS position,
           stratum, pairs, sampled, pairs / sampled AS weight,
           row_number() OVER (ORDER BY of_shared, tenant, query_id, chunk_id)
               <= round($shared * count(*) OVER ()) AS shared
    FROM mixed ORDER BY position
"""

STRATA = """
    WITH numbered AS (
        SELECT tenant, retrievers, number, counted.pairs, verdict
        FROM counted JOIN cells USING (tenant, verdict, found, permille)
    ), every AS (
        SELECT number, tenant, verdict, NULL AS retriever, pairs FROM numbered UNION ALL
        SELECT number, tenant, verdict, unnest(retrievers), pairs FROM numbered
    )
    SELECT stratum, CAST(number AS INTEGER) AS position, tenant, retriever, $verdicts[verdict + 1] AS verdict,
           CAST(sum(pairs) AS BIGINT) AS pairs
    FROM every JOIN strata USING (number) GROUP BY ALL ORDER BY position, tenant, retriever NULLS FIRST
"""
