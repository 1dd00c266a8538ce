"""Stages that read and write piece by piece, on made-up tables of three sizes: peak memory and processor seconds.

    python -m benchmarks.streaming [--rows 300000 1000000 3000000] [--stages pool,ingest_logs] [--limits 2GB 256MB]

A process a size and stage. A day's log has so many impressions; pool reads as many ranked chunks; the mined triplets
are made of as many pairs, over a tenth as many documents of 40 words. Each is measured with what DuckDB may hold as it
comes, and with less, so that it writes to disk what a larger job would. Writes benchmarks/results/streaming.md and
streaming.json.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import click_log
from benchmarks.report import machine, markdown_table, write
from benchmarks.scaling import Point, once, run_stage
from darklode.flows.config import load_settings
from darklode.flows.jobs import build_benchmark, mine_logs
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Output, Run, Stage, Step, Tables, tables
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.tables import TABLES

LISTED, SHOWN = 420, 10
RANKED = f"""
    SELECT 't' AS tenant, 'q' || lpad(CAST(i // {LISTED} AS VARCHAR), 9, '0') AS query_id,
           CASE WHEN i % 2 = 0 THEN 'bm25' ELSE 'vectors' END AS retriever,
           CAST(i % {LISTED} // 2 + 1 AS INTEGER) AS rank,
           'document-' || CAST(hash(i // 3) % 1000000 AS VARCHAR) || '#0123456789ab' AS chunk_id,
           CAST(1.0 / (i % {LISTED} + 1) AS FLOAT) AS score
    FROM range($rows) t(i)
"""
ASKED = """
    SELECT 't' AS tenant, 'q' || lpad(CAST(i AS VARCHAR), 9, '0') AS query_id, 'how to rotate secret ' || i AS text,
           5::INTEGER AS n_words, 'en' AS language, 1::FLOAT AS language_score, 1::INTEGER AS cluster_id,
           1::INTEGER AS n_represented, 'train' AS split
    FROM range($rows) t(i)
"""
DAY = "CAST(DATE '2026-03-01' AS DATE)"
PAIRED = f"""
    SELECT 't' AS tenant, 'q' || lpad(CAST(i // 5 AS VARCHAR), 9, '0') AS query_id,
           'd' || hash(i) % ($rows // 10) AS positive_id, 'd' || hash(i + $rows) % ($rows // 10) AS negative_id,
           NULL::FLOAT AS positive_score, NULL::FLOAT AS negative_score,
           CASE WHEN i % 5 < 2 THEN 'click_one_hop' ELSE 'click_multi_hop' END AS source, NULL::VARCHAR AS via_query_id,
           NULL::VARCHAR[] AS terms, {DAY} AS date
    FROM range($rows) t(i)
"""
LOGGED = f"""
    SELECT 't' AS tenant, 'q' || lpad(CAST(i AS VARCHAR), 9, '0') AS query_id, 'word' || i || ' of that' AS text,
           'word' || i || ' of that' AS normal_form, {DAY} AS date FROM range($rows // 5) t(i)
"""
CLUSTERED = f"""
    SELECT 't' AS tenant, 'q' || lpad(CAST(i AS VARCHAR), 9, '0') AS query_id, {DAY} AS date,
           NULL::VARCHAR AS near_query_id, 'q' || lpad(CAST(i AS VARCHAR), 9, '0') AS cluster_id,
           CASE WHEN i % 10 = 0 THEN 'validation' ELSE 'train' END AS split FROM range($rows // 5) t(i)
"""
TEXTS = """
    SELECT 't' AS tenant, 'd' || i AS doc_id, 'title ' || i AS title, NULL::VARCHAR AS topic,
           array_to_string(list_transform(range(40), lambda w: 'word' || hash(i * 40 + w) % 80000), ' ') AS text,
           NULL::VARCHAR AS url, 'made up' AS source, md5(CAST(i AS VARCHAR)) AS content_hash
    FROM range($rows // 10) t(i)
"""


def put(run: Run, table: str, sql: str, rows: int) -> None:
    """Give a run a table, as if a stage had written it."""
    stage = Stage(f"given_{table}", 1, (), TABLES[table].files)

    def work(_tables: Tables, output: Output) -> None:
        with scratch() as connection:
            connection.execute("SET preserve_insertion_order = true")
            output.write_answer(table, connection, sql, {"rows": rows} if "$rows" in sql else {})

    run.execute(run.plan(stage, {}), work)


def build_job(_run: Run, _rows: int) -> list[Step]:
    """Of `darklode build`."""
    return build_benchmark.steps("", "", load_settings(assignments=["pool.retrievers=[bm25]"]))


def mine_job(run: Run, rows: int) -> list[Step]:
    """Of `darklode mine`, of one day, without a ranker."""
    del rows
    log = str(Path(run.store.url).parent / "log")
    return mine_logs.steps(run, log, "", load_settings(assignments=["relevance.ranker=none"]), [click_log.FIRST])


def ranked(folder: Path, rows: int) -> None:
    """What `pool` reads."""
    run = Run(str(folder / "run"))
    put(run, "rankings", RANKED, rows)
    put(run, "queries", ASKED, -(-rows // LISTED))


def paired(folder: Path, rows: int) -> None:
    """What `mined_triplets` reads."""
    run = Run(str(folder / "run"))
    write_run(run, MinedInputs(logs="", docs=""), load_settings(assignments=["relevance.ranker=none"]))
    tables = {"mined_pairs": PAIRED, "log_queries": LOGGED, "query_clusters": CLUSTERED, "documents": TEXTS}
    for table, sql in tables.items():
        put(run, table, sql, rows)


def logged(folder: Path, rows: int) -> None:
    """A day of a log."""
    write_run(
        Run(str(folder / "run")), MinedInputs(logs="", docs=""), load_settings(assignments=["relevance.ranker=none"])
    )
    click_log.write_day(folder / "log", 0, rows // SHOWN)


GIVEN: Mapping[Callable[[Path, int], None], tuple[Callable[..., list[Step]], tuple[str, ...]]] = {
    ranked: (build_job, ("pool",)),
    paired: (mine_job, ("mined_triplets",)),
    logged: (
        mine_job,
        ("ingest_logs", "day_figures", "admit_days", "click_model", "click_evidence", "log_queries"),
    ),
}


def _limited(limit: str, *given: Any) -> Point:
    tables.MEMORY_LIMIT = limit
    return run_stage(*given)


def _fill(given: Callable[[Path, int], None], folder: Path, rows: int) -> Point:
    given(folder, rows)
    return {}


def measured(sizes: list[int], limits: list[str], wanted: set[str]) -> dict[str, dict[str, dict[str, Point]]]:
    """Points by stage, DuckDB's limit and rows."""
    found: dict[str, dict[str, dict[str, Point]]] = {}
    for given, (job, stages) in GIVEN.items():
        for rows in sizes if not wanted or wanted & set(stages) else ():
            with tempfile.TemporaryDirectory(prefix="darklode-streaming-") as place:
                folder = Path(place)
                once(_fill, given, folder, rows)
                for name, limit in product(stages, limits):
                    point = once(_limited, limit, job, (rows,), str(folder / "run"), name)
                    found.setdefault(name, {}).setdefault(limit, {})[str(rows)] = point
                    took = f"{point['seconds']:>8.2f} s {point['megabytes']:>6.0f} MB"
                    print(f"{name:<16} {limit:>6} {rows:>11,} {took}", flush=True)
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[300_000, 1_000_000, 3_000_000])
    parser.add_argument("--stages", default="")
    parser.add_argument("--limits", nargs="+", default=[tables.MEMORY_LIMIT, "256MB"])
    asked = parser.parse_args()
    found = measured(asked.rows, asked.limits, set(filter(None, asked.stages.split(","))))
    head = (
        "stage",
        "DuckDB's limit",
        *(f"{rows:,} rows: MB" for rows in asked.rows),
        *(f"{rows:,}: s" for rows in asked.rows),
    )
    table = [
        (name, limit, *(f"{point['megabytes']:.0f}" for point in of.values()),
         *(f"{point['seconds']:.1f}" for point in of.values()))
        for name, limits in found.items() for limit, of in limits.items()
    ]  # fmt: skip
    write("streaming", f"# Stages piece by piece\n\n{machine()}\n\n{markdown_table(head, table)}", found)


if __name__ == "__main__":
    main()
