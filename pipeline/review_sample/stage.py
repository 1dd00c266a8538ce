"""The stage that draws the sample for review."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa

from pipeline.artifacts import FunnelStep, Output, Stage, Tables
from pipeline.artifacts.tables import pieces
from pipeline.review_sample import sql, strata
from pipeline.review_sample.strata import Cells, Stratum, stratify
from schemas.review_tables import REVIEW_SAMPLE, REVIEW_STRATA
from schemas.settings import ReviewSettings

REVIEW_SAMPLE_STAGE = Stage("review_sample", 1, ("pool", "verdicts"), ("review_sample", "review_strata"))
"""With `judge.depth` adaptive it reads `unjudged` besides."""

PART_ROWS = 1 << 18


def review_sample(tables: Tables, output: Output, settings: ReviewSettings, *, seed: int) -> None:
    """Draw some queries of each tenant, and a stratified sample of their candidates; see `strata.stratify`.

    A pair stands for `pairs` ÷ `sampled` of its stratum in the whole run, not only in the sampled queries. Pairs are
    reviewed query by query, queries and their pairs in random order: the order tells a reviewer nothing, and whoever
    stops early has labelled a random part of the queries. All draws depend on the seed and on ids alone.

    Sources: DevRev-Search, 3.3 (10 % of the queries validated by people); Ohlsson, 1998 (permanent random numbers).

    Args:
        tables: holds `pool` and `verdicts`; where pairs were left unjudged, `unjudged` too.
        output: takes `review_sample` and `review_strata`.
        settings: share of the queries, number of pairs, share that all reviewers label.
        seed: of all draws.
    """
    with tables.connect() as connection:
        connection.execute(sql.CHOSEN, {"seed": str(seed), "share": settings.query_share})
        connection.execute(sql.COUNTED.format(pairs=_pairs(tables, "pool")))
        found = connection.sql(sql.CELLS).to_arrow_table()
        if found.num_rows:
            names = found["tenant"].combine_chunks().dictionary_encode()
            cells = _cells(found, names)
            total = int(cells.candidates.sum())
            chosen = stratify(cells, settings.pairs or total)
            _plan(connection, found, cells, chosen, names.dictionary.to_pylist())
            _write(
                connection,
                output,
                _pairs(tables, "(FROM pool SEMI JOIN chosen USING (tenant, query_id))"),
                seed,
                settings,
            )
            kept = sum(one.sampled for one in chosen)
            dropped = {"not in the sample": total - kept} if total > kept else {}
            output.count(FunnelStep("review_sample", "candidates of sampled queries", total, "pairs", kept, dropped))
            queries = connection.sql("SELECT count(*) FROM chosen").fetchall()
            output.facts["queries"] = int(queries[0][0])


def _pairs(tables: Tables, pool: str) -> str:
    """Every pair of the pool, or of a part of it, with what strata look at."""
    if "unjudged" not in tables:
        return sql.PAIRS.format(pool=pool, probability="v.probability", unjudged="")
    joined = "LEFT JOIN unjudged u USING (tenant, query_id, chunk_id)"
    return sql.PAIRS.format(pool=pool, probability="coalesce(v.probability, u.probability)", unjudged=joined)


def _cells(found: pa.Table, tenants: pa.DictionaryArray) -> Cells:
    numbers = {name: found[name].to_numpy().astype(np.int64) for name in found.column_names if name != "tenant"}
    return Cells(tenant=tenants.indices.to_numpy().astype(np.int64), **numbers)


def _plan(
    connection: duckdb.DuckDBPyConnection, found: pa.Table, cells: Cells, chosen: list[Stratum], tenants: list[str]
) -> None:
    """Make `cells` (which stratum each belongs to), `strata` and `planned` tables of the connection."""
    number = np.empty(found.num_rows, np.int64)
    for place, one in enumerate(chosen):
        number[one.cells] = place
    columns = {
        "number": list(range(len(chosen))),
        "stratum": [_name(place, one, cells, tenants) for place, one in enumerate(chosen)],
        "sampled": pa.array([one.sampled for one in chosen], pa.int64()),
    }
    connection.register("numbered", found.append_column("number", pa.array(number)))
    connection.register("named", pa.table(columns))
    connection.execute("CREATE TEMP TABLE cells AS FROM numbered")
    connection.execute("CREATE TEMP TABLE strata AS FROM named")
    connection.execute(sql.PLANNED)


def _name(place: int, one: Stratum, cells: Cells, tenants: list[str]) -> str:
    """What a person calls the stratum; the number keeps names apart."""
    tenant = "several tenants" if one.tenant is None else tenants[one.tenant]
    known = cells.permille[one.cells][cells.permille[one.cells] >= 0] / 1000
    band = f", {known.min():.3f} to {known.max():.3f}" if len(known) else ""
    who = sorted({strata.FOUND[found] for found in cells.found[one.cells]})
    return f"{place:03d} {tenant}: {strata.VERDICTS[one.verdict]}{band}, found by {' or '.join(who)}"


def _write(
    connection: duckdb.DuckDBPyConnection, output: Output, pairs: str, seed: int, settings: ReviewSettings
) -> None:
    connection.execute(sql.DRAWN.format(pairs=pairs), {"seed": str(seed)})
    for rows in pieces(connection, sql.SAMPLE, {"seed": str(seed), "shared": settings.shared}, PART_ROWS):
        output.write("review_sample", REVIEW_SAMPLE.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    rows = connection.sql(sql.STRATA, params={"verdicts": list(strata.VERDICTS)}).to_arrow_table()
    output.write("review_strata", REVIEW_STRATA.rows(dict(zip(rows.column_names, rows.columns, strict=True))))
