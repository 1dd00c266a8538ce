"""What mining to the letter of ScalingNote, 4.1, keeps and what each rule of it does; tiers; an embedded ranker.

    python -m benchmarks.paper_mining [--days 6] [--searches 5000] [--work DIR]

Two logs are mined with the preset `scalingnote`: the sample's, whose simulated users look for one known article each,
and a made-up one of rare queries (benchmarks/click_log.py). Labelled collections tell how often the
embedded ranker's first document is relevant, and how often its drawn negative is. Writes
benchmarks/results/paper_mining.md and paper_mining.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.click_log import write_day, write_documents
from benchmarks.collections_io import COLLECTIONS, read_jsonl
from benchmarks.report import machine, markdown_table, write
from darklode.flows.config import load_settings
from darklode.flows.jobs.mine_logs import steps
from darklode.pipeline.base.artifacts import Run, Tables
from darklode.pipeline.base.relations import materialize
from darklode.pipeline.mine.one_hop import OneHop
from darklode.pipeline.mine.tiers import LOTS, tier_of
from darklode.schemas.settings import Settings

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "data" / "sample"
RANKED = ("cranfield", "cisi", "stackfaq")
QUERIES = 200
SEEDS = 50
NEVER = "9999-12-31"

KEPT = """
    SELECT count(*) AS pairs, count(DISTINCT (tenant, query_id, positive_id)) AS strongest,
           count(*) FILTER (source LIKE '%multi_hop') AS lent, count(*) FILTER (negative_id IS NULL) AS without_negative
    FROM mined_pairs
"""

DRAWS = """
    WITH own AS (
        SELECT tenant, query_id, positive_id, 'click' AS kind, negative_id FROM {click}
        UNION ALL SELECT tenant, query_id, positive_id, 'relevance', negative_id FROM {relevance}
    )
    SELECT count(*) FILTER (p.negative_id IS DISTINCT FROM o.negative_id AND via_query_id IS NULL) AS own_drawn_anew,
           count(*) FILTER (p.negative_id IS DISTINCT FROM o.negative_id AND via_query_id IS NOT NULL)
               AS lent_drawn_anew,
           count(*) FILTER (p.negative_id IS NULL AND o.negative_id IS NOT NULL) AS nothing_left
    FROM mined_pairs p JOIN own o
      ON o.tenant = p.tenant AND o.query_id = coalesce(p.via_query_id, p.query_id) AND o.positive_id = p.positive_id
     AND o.kind = split_part(p.source, '_', 1)
"""

TRUTH = """
    WITH judged AS (
        SELECT p.*, n.doc_id AS need, e.doc_id IS NOT NULL AS skipped
        FROM mined_pairs p JOIN log_queries q USING (tenant, query_id)
        JOIN needs n ON n.tenant = p.tenant AND n.query = q.text
        LEFT JOIN (SELECT DISTINCT tenant, query_id, doc_id FROM click_evidence) e
          ON e.tenant = p.tenant AND e.query_id = p.query_id AND e.doc_id = p.positive_id
    )
    SELECT source, source LIKE 'click_multi%' AND skipped AS skipped, count(*) AS pairs,
           avg(CAST(positive_id = need AS INTEGER)) AS positives, avg(CAST(negative_id = need AS INTEGER)) AS negatives
    FROM judged GROUP BY ALL ORDER BY ALL
"""

BY_QUERY = tier_of("p").replace(", p.positive_id", "")
TIERS = """
    SELECT avg(CAST(tier = 'small' AS DOUBLE)) AS small, avg(CAST(tier <> 'large' AS DOUBLE)) AS median
    FROM (SELECT {tier} AS tier FROM mined_pairs p)
"""

RELEVANT = """
    SELECT count(*) AS queries, avg(CAST(list_contains(t.docs, r.positive_id) AS INTEGER)) AS positives,
           avg(CAST(list_contains(t.docs, r.negative_ids[1]) AS INTEGER)) AS negatives
    FROM relevance_evidence r
    JOIN (SELECT DISTINCT query_id, session_id FROM impressions) i USING (query_id)
    JOIN truth t USING (session_id)
"""


def mined(folder: Path, logs: Path, docs: Path, *assignments: str) -> tuple[Tables, Settings]:
    """A run of the preset without the flow around it."""
    settings = load_settings("scalingnote", assignments=[*assignments, f"cache.root={folder / 'cache'}"])
    run = Run(str(folder / "run"))
    for step in steps(run, str(logs), str(docs), settings):
        if step.enabled:
            run.execute(step.plan(run), step.execute)
    return run.tables(), settings


def first(tables: Tables, query: str) -> dict[str, Any]:
    """The one row of an answer."""
    found: dict[str, Any] = tables.sql(query).to_pylist()[0]
    return found


def draws(tables: Tables, settings: Settings) -> dict[str, Any]:
    """How many pairs have another negative than the query whose evidence it is drew for itself."""
    hop = OneHop(settings.click, NEVER, settings.seed)
    with tables.connect() as connection:
        pairs = hop.pairs(connection, materialize(connection, "SELECT tenant, query_id FROM log_queries"))
        rows = connection.sql(DRAWS.format(**pairs._asdict())).to_arrow_table().to_pylist()
    return dict(rows[0])


def tiers(tables: Tables) -> dict[str, Any]:
    """Shares of the pairs in the tiers over many seeds, drawn by pair and by query: the least and the most."""
    found: dict[str, Any] = {}
    with tables.connect() as connection:
        for name, tier in (("by pair", tier_of("p")), ("by query", BY_QUERY)):
            given = {"lots": LOTS, "small": 0.0076, "median": 0.167}
            rows = [
                connection.sql(TIERS.format(tier=tier), params=given | {"seed": seed}).fetchall()[0]
                for seed in range(SEEDS)
            ]
            shares = zip(*rows, strict=True)
            found[name] = {of: (min(some), max(some)) for of, some in zip(("small", "median"), shares, strict=True)}
    return found


def truth(tables: Tables) -> list[dict[str, Any]]:
    """Of the sample's pairs whose need is on record: how often positive and negative are the article sought."""
    with (ROOT / "data" / "sample_needs.csv").open(encoding="utf-8") as lines:
        needs = [row | {"query": " ".join(row["query"].lower().split())} for row in csv.DictReader(lines)]
    with tables.connect() as connection:
        connection.register("needs", pa.Table.from_pylist(needs))
        rows: list[dict[str, Any]] = connection.sql(TRUTH).to_arrow_table().to_pylist()
    return rows


def ranked(work: Path, name: str) -> dict[str, Any]:
    """How often the embedded ranker's positives and negatives are relevant in a labelled collection."""
    source, work = COLLECTIONS / name, work / name
    work.mkdir(parents=True)
    docs = [
        {"doc_id": d["_id"], "title": d.get("title", ""), "text": d["text"]}
        for d in read_jsonl(source / "corpus.jsonl")
    ]
    (work / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in docs), encoding="utf-8")
    relevant: dict[str, list[str]] = {}
    for line in (source / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, doc, score = line.split("\t")
        if int(score) > 0:
            relevant.setdefault(query, []).append(doc)
    asked = [row for row in read_jsonl(source / "queries.jsonl") if row["_id"] in relevant][:QUERIES]
    shown = {"timestamp": "2026-03-01T08:00:00Z", "doc_id": docs[0]["doc_id"], "position": 1, "clicked": False}
    rows = [shown | {"query": row["text"], "session_id": row["_id"]} for row in asked]
    (work / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = ("relevance.ranker=judge", "logs.mask_personal_data=false")
    tables, _ = mined(work, work / "log.jsonl", work / "docs.jsonl", *given)
    known = [{"session_id": row["_id"], "docs": relevant[row["_id"]]} for row in asked]
    with tables.connect() as connection:
        connection.register("truth", pa.Table.from_pylist(known))
        return dict(connection.sql(RELEVANT).to_arrow_table().to_pylist()[0])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=int, default=6, help="of the made-up log; 0: the sample alone")
    parser.add_argument("--searches", type=int, default=5000)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = given.work or Path(scratch)
        logs = {"sample": mined(work / "sample", SAMPLE, SAMPLE, "relevance.ranker=judge")}
        rows = sum(write_day(work / "log", day, given.searches) for day in range(given.days))
        if rows:
            write_documents(work / "docs" / "documents.parquet")
            logs["made up"] = mined(work / "made", work / "log", work / "docs", "relevance.ranker=none")
        found = {
            "impressions": rows,
            "kept": {name: first(one[0], KEPT) | draws(*one) for name, one in logs.items()},
            "tiers": {name: tiers(one[0]) for name, one in logs.items()},
            "truth": truth(logs["sample"][0]),
            "ranker": {name: ranked(work, name) for name in RANKED},
        }
    write("paper_mining", _text(found), found)


def _text(found: Mapping[str, Any]) -> str:
    kept = [
        (name, *(f"{row[key]:,}" for key in KEPT_COLUMNS), f"{1 - row['strongest'] / row['pairs']:.1%}")
        for name, row in found["kept"].items()
    ]
    tiered = [
        (name, how, *(f"{least:.2%} to {most:.2%}" for least, most in shares.values()))
        for name, both in found["tiers"].items()
        for how, shares in both.items()
    ]
    truths = [
        (
            row["source"] + (", skipped by the borrower" if row["skipped"] else ""),
            f"{row['pairs']:,}",
            _share(row["positives"]),
            _share(row["negatives"]),
        )
        for row in found["truth"]
    ]
    ranks = [
        (name, row["queries"], _share(row["positives"]), _share(row["negatives"]))
        for name, row in found["ranker"].items()
    ]
    parts = [
        f"# Mining to the letter of the paper\n\n{machine()}; the made-up log has {found['impressions']:,} rows.",
        "## Pairs under `mining.merge: all`",
        markdown_table(["log", *(key.replace("_", " ") for key in KEPT_COLUMNS), "lost under strongest"], kept),
        f"## Shares of the pairs in the tiers, over {SEEDS} seeds (wanted: 0.76 % and 16.7 %)",
        markdown_table(["log", "drawn", "small", "small and median"], tiered),
        "## The sample's pairs whose need is on record: share that is the article sought",
        markdown_table(["source", "pairs", "of positives", "of negatives"], truths),
        "## The embedded judge as a ranker: share that is relevant",
        markdown_table(["collection", "queries", "of positives", "of negatives"], ranks),
    ]
    return "\n\n".join(parts)


KEPT_COLUMNS = ("pairs", "strongest", "lent", "own_drawn_anew", "lent_drawn_anew", "nothing_left", "without_negative")


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


if __name__ == "__main__":
    main()
