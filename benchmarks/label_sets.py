"""Yield and purity of labels from a raw log.

`darklode build` with default settings on stackfaq, whose rephrasings stand for a raw query log: how many of the kept
queries get a positive, and how many of the positives people confirm (a text of an answer in the question's thread).
"Stated" is the precision that the build states, from the judge's probabilities. The baseline is BM25's first result
of each query. Takes 5 minutes; `--quick` builds with the embedded judge only (1 min).

    python -m benchmarks.label_sets [--quick] [--collections FOLDER]
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

from benchmarks.collections_io import COLLECTIONS, existing, read_jsonl, read_qrels
from benchmarks.report import ResultTable, options, publish
from darklode.flows.runs import read_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.label_sets import label_sets

DARKLODE = str(Path(sys.executable).with_name("darklode"))
COLLECTION = "stackfaq"
PRESETS = {"embedded": "embedded", "local": "encoder"}
"""Presets and the names of their judges."""

# `confirmed` has the pairs of a query and a document that people confirm.
POSITIVES_SQL = {
    "test labels": """
        SELECT query_id, doc_id FROM qrels JOIN queries USING (tenant, query_id)
        JOIN (SELECT tenant, chunk_id, doc_id FROM chunks) USING (tenant, chunk_id)
        WHERE split = 'test' AND relevance > 0
    """,
    "training triplets": """
        SELECT t.query_id, c.doc_id FROM triplets t
        JOIN chunks c ON c.tenant = t.tenant AND c.chunk_id = t.positive_id
    """,
    "BM25's first result (baseline)": """
        SELECT query_id, doc_id FROM rankings JOIN (SELECT tenant, chunk_id, doc_id FROM chunks)
        USING (tenant, chunk_id) WHERE retriever = 'bm25' AND rank = 1
    """,
}
PURITY_SQL = """
    SELECT count(*), count(DISTINCT query_id), avg((c.query_id IS NOT NULL)::INT)
    FROM ({positives}) LEFT JOIN confirmed c USING (query_id, doc_id)
"""


def write_inputs(collection: Path, folder: Path) -> tuple[Path, Path]:
    """Write the documents, and the rephrasings as a query log; their paths."""
    with (folder / "queries.csv").open("w", newline="", encoding="utf-8") as file:
        rows = ((row["_id"], row["text"]) for row in read_jsonl(collection / "queries.jsonl"))
        csv.writer(file).writerows([("query_id", "query"), *rows])
    return existing(collection / "corpus.jsonl"), folder / "queries.csv"


def build(docs: Path, queries: Path, out: Path, preset: str, *assignments: str) -> Run:
    """Build a run in a process of its own; assignments are settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(out.parent / "prefect"), "DO_NOT_TRACK": "1"}
    command = [DARKLODE, "build", "--docs", str(docs), "--queries", str(queries), "--out", str(out)]
    command += ["--preset", preset, *(part for assignment in assignments for part in ("--set", assignment))]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return read_run(Run(str(out))).run


def measure(run: Run, judge: str, confirmed: list[tuple[str, str]]) -> list[list[object]]:
    """A row per set of positives: queries, share with a positive, positives, precision, stated precision."""
    tables = all_tables(run)
    stated = {row["labels"]: row for row in label_sets(tables).to_pylist()}
    rows: list[list[object]] = []
    with tables.connect() as connection:
        connection.execute("CREATE TEMP TABLE confirmed (query_id VARCHAR, doc_id VARCHAR)")
        connection.executemany("INSERT INTO confirmed VALUES (?, ?)", confirmed)
        n_kept = _first(connection, "SELECT count(*) FROM queries")[0]
        for name, positives in POSITIVES_SQL.items():
            n_positives, n_with_positive, precision = _first(connection, PURITY_SQL.format(positives=positives))
            own = stated.get(name, {"queries": n_kept, "precision": None})
            row = [judge, name, own["queries"], n_with_positive / own["queries"], n_positives, precision]
            rows.append([*row, own["precision"]])
    return rows


def _first(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[float, ...]:
    return tuple(connection.sql(query).fetchall()[0])


def main() -> None:
    """Build, compare, print and save."""
    parser = options(__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS, help="folder of the labelled collections")
    arguments = parser.parse_args()
    collection = existing(arguments.collections / COLLECTION)
    confirmed = [(query, document) for query, document, grade in read_qrels(collection / "qrels/test.tsv") if grade > 0]
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as scratch:
        docs, queries = write_inputs(collection, Path(scratch))
        for preset in ["embedded"] if arguments.quick else PRESETS:
            run = build(docs, queries, Path(scratch) / preset, preset)
            measured = measure(run, PRESETS[preset], confirmed)
            rows += measured if not rows else measured[:-1]  # the baseline is the same for each judge
    names = ["judge", "positives of", "queries", "share with one", "positives", "precision", "stated"]
    formats = ["", "", ",d", ".2f", ",d", ".3f", ".3f"]
    columns = dict(zip(names, formats, strict=True))
    publish("label_sets", [ResultTable("stackfaq as a raw log", columns, rows)], quick=arguments.quick)


if __name__ == "__main__":
    main()
