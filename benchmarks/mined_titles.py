"""A mined run of documents with titles: simulated users search two labelled collections.

The documents and queries are those of stackfaq and cranfield, which have titles. A query is searched eight times, the
test queries within four days, the others within the five before; an engine shows ten of BM25's first twenty and the
relevant documents, in an order that is only partly right; users who look by place (benchmarks/made_users.py) click by
the collections' labels. The stages of `darklode mine` do the rest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from benchmarks.adapt import labelled, side
from benchmarks.collections_io import read_jsonl
from benchmarks.made_users import DRAWN, MISTAKEN, NOISE, SIGNAL, by_place
from darklode.flows.config import load_settings
from darklode.flows.jobs.mine_logs import steps
from darklode.pipeline.base.artifacts import Run

TITLED = ("stackfaq", "cranfield")
FOUND, SHOWN, SEARCHES = 20, 10, 8
FIRST, LEARNED, TESTED = datetime(2026, 3, 1, tzinfo=UTC), 5, 4
"""Days on which train and validation queries are asked, and then test queries."""


@dataclass
class Asked:
    """A query: whether it is one of the test, and what is relevant by the labels."""

    test: bool
    relevant: set[str]


Queries = dict[str, Asked]
"""By text."""


def mined(collections: Path, root: Path) -> tuple[Run, Queries]:
    """The run, and the queries that were asked."""
    documents, asked = _given(collections)
    root.mkdir(parents=True, exist_ok=True)
    _write(root / "docs.jsonl", documents)
    _write(root / "log.jsonl", searches(documents, asked, np.random.default_rng(0)))
    given = [f"cache.root={root / 'cache'}", "relevance.ranker=none", "logs.mask_personal_data=false"]
    given += [f"mining.test_from={(FIRST + timedelta(LEARNED)).date()}"]
    settings, run = load_settings(assignments=given), Run(str(root / "run"))
    for step in steps(run, str(root / "log.jsonl"), str(root / "docs.jsonl"), settings):
        if step.enabled and not (plan := step.plan(run)).is_up_to_date:
            run.execute(plan, step.execute)
    return run, asked


def _given(collections: Path) -> tuple[list[dict[str, Any]], Queries]:
    documents, asked = list[dict[str, Any]](), Queries()
    for name in TITLED:
        rows = read_jsonl(collections / name / "corpus.jsonl")
        documents += [{"doc_id": f"{name}-{row['_id']}", "title": row["title"], "text": row["text"]} for row in rows]
        texts = {row["_id"]: " ".join(row["text"].split()) for row in read_jsonl(collections / name / "queries.jsonl")}
        for query, document, grade in labelled(collections / name, "test"):
            if grade > 0:
                one = asked.setdefault(texts[query], Asked(test=side(query, undivided=True) == "test", relevant=set()))
                one.relevant.add(f"{name}-{document}")
    return documents, asked


def searches(documents: list[dict[str, Any]], asked: Queries, chance: np.random.Generator) -> list[dict[str, Any]]:
    """Rows of the log."""
    rows, ids = list[dict[str, Any]](), [row["doc_id"] for row in documents]
    index, place = bm25s.BM25(), {one: number for number, one in enumerate(ids)}
    index.index(bm25s.tokenize([f"{row['title']} {row['text']}" for row in documents], show_progress=False), False)
    for number, (query, one) in enumerate(asked.items()):
        scores = index.get_scores(list(bm25s.tokenize(query, return_ids=False, show_progress=False)[0]))
        best = np.union1d(np.argsort(-scores, kind="stable")[:FOUND], sorted(place[doc] for doc in one.relevant))
        relevant = np.array([ids[doc] in one.relevant for doc in best])
        thought = SIGNAL * relevant + scores[best] / max(scores[best].std(), 1e-9) / 2
        for turn in range(SEARCHES):
            shown = np.argsort(-(thought + NOISE * chance.normal(size=len(best))))[:SHOWN]
            clicked = _clicks(relevant[shown], chance)
            day = LEARNED + chance.integers(TESTED) if one.test else chance.integers(LEARNED)
            when = FIRST + timedelta(days=int(day), seconds=int(chance.integers(86_400)))
            at = {"timestamp": when.isoformat(), "session_id": f"s{number}-{turn}", "query": query}
            rows += [
                at | {"doc_id": ids[best[seen]], "position": rank, "clicked": bool(click)}
                for rank, (seen, click) in enumerate(zip(shown, clicked, strict=True), 1)
            ]
    return rows


def _clicks(relevant: Any, chance: np.random.Generator) -> Any:
    return by_place(np.where(relevant, DRAWN, MISTAKEN)[None], chance)[0]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
