"""Cleaning held against people: which languages go, which queries stand for others, and how long it takes.

Usage: python -m benchmarks.cleaning [--collections DIR] [--log ROWS]
Needs the collections named in ENGLISH in DIR, ../shared/collections by default. Writes benchmarks/results/cleaning.*;
with --log it measures a log of so many rows alone, and prints it.

Languages: the queries of a collection are English, and 900 German, French and Spanish support queries of our own
(benchmarks/foreign_queries.py; the sample has its own beside them) are mixed in. The share of a foreign query's words
that documents know is measured on all collections but the one that is looked at. "Before" is the identification alone
from .5 on. Groups: two queries of stackfaq from one thread ask for the same, which no other collection tells. "Before"
credits a representative with its whole cluster. The log is made of the collections' queries, some with a slip of the
keyboard, some with other words; its documents are those of opensearch-docs.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.collections_io import COLLECTIONS, read_jsonl
from benchmarks.foreign_queries import SAMPLE, THINGS, foreign_queries
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run, Stage, Tables
from darklode.pipeline.prepare import clean as cleaning
from darklode.schemas.settings import CleanSettings
from darklode.schemas.tables import RAW_QUERIES, TABLES

ENGLISH = ("stackfaq", "insuranceqa", "homedepot", "cranfield", "vaswani", "cisi")
LOG_COLLECTIONS = ("stackfaq", "insuranceqa", "homedepot")
DATA = Path(__file__).parents[1] / "data" / "sample"
BEFORE = 0.5
OPEN = CleanSettings(noise=False, min_percentile=0, max_percentile=100, deduplicate=False)


@dataclass(frozen=True)
class Log:
    """Queries of a collection, English or not, and its documents."""

    english: list[str]
    foreign: list[str]
    documents: list[str]


def read_log(name: str, root: Path) -> Log:
    """A collection's queries with the foreign ones."""
    made = [text for language in THINGS for text in foreign_queries(language)]
    if name == "sample":
        return _sample(made)
    documents = [f"{row.get('title', '')}\n{row['text']}" for row in read_jsonl(root / name / "corpus.jsonl")]
    return Log([row["text"] for row in read_jsonl(root / name / "queries.jsonl")], made, documents)


def _sample(made: list[str]) -> Log:
    """The sample without what the filter of noise drops."""
    with (DATA / "queries.csv").open(encoding="utf-8") as lines:
        rows = {row["query_id"]: row["query"] for row in csv.DictReader(lines)}
    named = {_plain(rows[name]) for names in SAMPLE.values() for name in names.split()}
    table = pa.table({"query_id": list(rows), "tenant": ["t"] * len(rows), "text": list(rows.values())})
    from darklode.pipeline.prepare.noise import drop_noise

    texts = table.filter(pa.compute.invert(drop_noise(table, OPEN.model_copy(update={"noise": True})).is_dropped))[
        "text"
    ]
    english = [text for text in texts.to_pylist() if _plain(text) not in named]
    foreign = [text for text in texts.to_pylist() if _plain(text) in named]
    documents = [path.read_text(encoding="utf-8") for path in (DATA / "documents").rglob("*") if path.is_file()]
    return Log(english, foreign + made, documents)


def _plain(text: str) -> str:
    return " ".join(text.lower().removeprefix("hi, ").split()).rstrip(".")


def tables_of(folder: str, texts: list[str], documents: list[str]) -> Run:
    """A run that holds these queries and documents, of one tenant."""
    run = Run(folder)
    n, m = len(texts), len(documents)
    ids = [f"q{number:07d}" for number in range(n)]
    put(run, "raw_queries", RAW_QUERIES.rows({"tenant": ["t"] * n, "query_id": ids, "text": texts, "count": [1] * n}))
    names = [f"d{number:07d}" for number in range(m)]
    fixed = {"tenant": ["t"] * m, "source": ["benchmark"] * m, "content_hash": names}
    put(run, "documents", TABLES["documents"].rows(fixed | {"doc_id": names, "text": documents}))
    return run


def put(run: Run, table: str, rows: pa.Table) -> None:
    """Give a run a finished table."""
    stage = Stage(f"given_{table}", 1, (), (table,))
    run.execute(run.plan(stage, {}), lambda _tables, output: output.write(table, rows))


def queries_of(texts: list[str]) -> pa.Table:
    """What the filters see."""
    n = len(texts)
    return pa.table(
        {"tenant": ["t"] * n, "query_id": [str(i) for i in range(n)], "text": texts, "n_represented": [1] * n}
    )


def languages(logs: dict[str, Log]) -> list[dict[str, Any]]:
    """By collection: the share of English that is lost and of the others that goes, before and now."""
    from darklode.pipeline.prepare import language

    known = {name: _known_of_others(log) for name, log in logs.items()}
    found = []
    for name, log in logs.items():
        left_out = fmean(share for other, share in known.items() if other != name)
        row: dict[str, Any] = {"collection": name, "english": len(log.english), "others": len(log.foreign)}
        row |= {"known of others": known[name], "left out": left_out}
        chosen, language.KNOWN_OF_OTHERS = language.KNOWN_OF_OTHERS, left_out
        for label, gone in (("before", _identified(log)), ("now", _dropped(log))):
            row[f"lost {label}"] = float(gone[: len(log.english)].mean())
            row[f"dropped {label}"] = float(gone[len(log.english) :].mean())
        language.KNOWN_OF_OTHERS = chosen
        found.append(row)
    return found


def _with_tables(log: Log, act: Callable[[pa.Table, Tables], Any]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        tables = tables_of(folder, ["-"], log.documents).tables("documents")
        return act(queries_of(log.english + log.foreign), tables)


def _known_of_others(log: Log) -> float:
    from darklode.pipeline.prepare.language import _count_known_words

    words, known = _with_tables(log, lambda queries, tables: _count_known_words(queries, tables, OPEN))[
        len(log.english) :
    ].T
    return float(known.sum() / words.sum())


def _identified(log: Log) -> np.ndarray[Any, Any]:
    from darklode.pipeline.prepare.language import identify_languages

    names, scores = identify_languages(pa.array(log.english + log.foreign))
    return np.asarray((np.array(names.to_pylist()) != "en") & (scores >= BEFORE))


def _dropped(log: Log) -> np.ndarray[Any, Any]:
    from darklode.pipeline.prepare.language import drop_other_languages

    found = _with_tables(log, lambda queries, tables: drop_other_languages(queries, OPEN, tables))
    gone: np.ndarray[Any, Any] = found.dropped.to_numpy(zero_copy_only=False)
    return gone


def groups(root: Path) -> list[dict[str, Any]]:
    """Of the queries of stackfaq: how many are kept, and how many of those that others stand for share their thread."""
    from darklode.pipeline.prepare.cluster_sampling import pick_representatives

    rows = list(read_jsonl(root / "stackfaq" / "queries.jsonl"))
    log = Log([row["text"] for row in rows], [], read_log("stackfaq", root).documents)
    thread = np.array([row["_id"].split("-")[0] for row in rows])
    found = []
    for label, per_cluster in (("one of each cluster", 1), ("auto", "auto")):
        settings = OPEN.model_copy(update={"per_cluster": per_cluster})
        result = _with_tables(log, lambda queries, tables: pick_representatives(queries, settings, 13, tables))  # noqa: B023
        clusters, gone = result.queries["cluster_id"].to_numpy(), result.dropped.to_numpy(zero_copy_only=False)
        kept_of = dict(zip(clusters[~gone], thread[~gone], strict=True))
        before = [kept_of[clusters[row]] == thread[row] for row in np.flatnonzero(gone)] if per_cluster == 1 else []
        named = [(row, int(by)) for row, by in enumerate(result.represented_by.to_pylist()) if by is not None]
        now = [thread[row] == thread[by] for row, by in named]
        found.append(
            {"kept": label, "queries": len(rows), "stay": int((~gone).sum()), "counted before": len(before)}
            | {"of them same": fmean(before) if before else None, "counted now": len(now)}
            | {"now same": fmean(now) if now else None, "mean distance": result.facts["mean_distance"]}
        )
    return found


def made_log(root: Path, rows: int) -> tuple[list[str], list[str]]:
    """Queries of a log of so many rows, and documents: a third is asked again, a third slips, a third is longer."""
    source = [row["text"] for name in LOG_COLLECTIONS for row in read_jsonl(root / name / "queries.jsonl")]
    words = sorted({word for text in source for word in text.split()})
    chance = random.Random(13)
    texts = []
    for number in range(rows):
        text = chance.choice(source)
        if number % 3 == 1 and len(text) > 3:
            at = chance.randrange(1, len(text) - 1)
            text = text[:at] + text[at + 1] + text[at] + text[at + 2 :]
        elif number % 3 == 2:
            text = f"{text} {chance.choice(words)} {chance.choice(words)}"
        texts.append(text)
    return texts, [row["text"] for row in read_jsonl(root / "opensearch-docs" / "corpus.jsonl")]


def seconds(root: Path, rows: int, settings: CleanSettings) -> dict[str, Any]:
    """Clean a log of so many rows: seconds by the clock and of the processor, and what stays."""
    texts, documents = made_log(root, rows)
    with tempfile.TemporaryDirectory() as folder:
        run = tables_of(folder, texts, documents)
        plan = run.plan(cleaning.CLEAN, {})
        began, busy = time.perf_counter(), time.process_time()
        manifest = run.execute(plan, lambda tables, output: cleaning.clean(tables, output, settings, seed=13))
        taken, used = time.perf_counter() - began, time.process_time() - busy
    steps = {step.step: step.rows_out for step in manifest.funnel}
    return {
        "rows": rows,
        "per_cluster": settings.max_per_cluster,
        "wall s": taken,
        "processor s": used,
        "rows out": steps,
    }


def _markdown(figures: dict[str, Any]) -> str:
    parts = ["# Cleaning", machine(), (__doc__ or "").split("\n\n", 2)[2].strip(), "## Languages"]
    head = ["collection", "English", "others", "English lost, before", "now", "others dropped, before", "now"]
    head += ["known of others' words", "of the other collections'"]
    shares = ("lost before", "lost now", "dropped before", "dropped now", "known of others", "left out")
    rows = [
        [row["collection"], row["english"], row["others"], *(f"{row[key]:.3f}" for key in shares)]
        for row in figures["languages"]
    ]
    parts += [markdown_table(head, rows), "## Groups of stackfaq"]
    head = list(figures["groups"][0])
    parts.append(markdown_table(head, [[_cell(row[key]) for key in head] for row in figures["groups"]]))
    parts.append("## Time")
    head = ["rows", "per_cluster", "wall s", "processor s", "stay"]
    rows = [
        [f"{row['rows']:,}", row["per_cluster"], *(f"{row[key]:.1f}" for key in ("wall s", "processor s")), _stay(row)]
        for row in figures["time"]
    ]
    return "\n\n".join([*parts, markdown_table(head, rows)])


def _stay(row: dict[str, Any]) -> str:
    return f"{list(row['rows out'].values())[-1]:,}"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--log", type=int, help="measure a log of so many rows alone, and print it")
    arguments = parser.parse_args()
    if arguments.log:
        print(json.dumps(seconds(arguments.collections, arguments.log, CleanSettings())))
        return
    logs = {name: read_log(name, arguments.collections) for name in ("sample", *ENGLISH)}
    figures = {"languages": languages(logs), "groups": groups(arguments.collections)}
    figures["time"] = [
        seconds(arguments.collections, 100_000, CleanSettings(max_per_cluster=per_cluster))
        for per_cluster in ("auto", 1)
    ]
    write("cleaning", _markdown(figures), figures)


if __name__ == "__main__":
    main()
