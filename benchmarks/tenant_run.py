"""A run of many small tenants with random vectors; used by `tenants`."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measure import peak_megabytes
from benchmarks.memory import DIMENSIONS, ENCODER, content_hash, unit_vectors
from benchmarks.run_tables import write_columns
from darklode.flows.executor import InProcess, executing
from darklode.flows.jobs.adapt_tenants import adapt_tenants
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import NoLift
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.retrieve.encoders.caching import cache_id, hash_queries
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import CacheSettings, Settings

TEXTS, SPLITS = 100, {"train": 12, "validation": 4, "test": 6}
"""Texts and queries of a tenant."""


def make_run(root: Path, tenants: int) -> None:
    """A build with so many tenants, and all vectors in the cache; queries lie near their positives."""
    generator, n = np.random.default_rng(0), sum(SPLITS.values())
    vectors = unit_vectors(tenants * TEXTS, generator)
    hashes = [content_hash(row) for row in range(len(vectors))]
    positives = (np.arange(tenants)[:, None] * TEXTS + np.arange(n)).reshape(-1)
    queries = vectors[positives] + 1.5 * unit_vectors(len(positives), generator)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    texts = [f"query {row}" for row in range(len(positives))]
    cache = EmbeddingCache(str(root / "cache"), "float32")
    with cache.writer(ENCODER.encoder_id(), DIMENSIONS) as writer:
        writer.add(pa.array(hashes), vectors)
    cache.append(cache_id(ENCODER.encoder_id(), queries=True), hash_queries(texts)[0], queries)
    run, ids = Run(str(root / "run")), [f"q{row:06}" for row in range(len(positives))]
    owners = np.repeat([f"t{number:04}" for number in range(tenants)], n).tolist()
    splits = np.tile(np.repeat(list(SPLITS), list(SPLITS.values())), tenants).tolist()
    columns: dict[str, Any] = {"tenant": owners, "query_id": ids, "text": texts, "split": splits}
    columns["cluster_id"] = list(range(len(ids)))
    write_columns(run, "queries", columns, n_words=2, language="en", language_score=1.0, n_represented=1)
    names = [f"c{row:07}" for row in range(len(vectors))]
    pairs: dict[str, Any] = {"tenant": owners, "query_id": ids, "chunk_id": [names[row] for row in positives]}
    write_columns(run, "qrels", pairs, relevance=1, source="human")
    write_columns(run, "training_labels", pairs, relevance=1, source="judge")
    write_columns(run, "verdicts", {"query_id": [], "chunk_id": []}, judge_id="none")
    learned = [row for row, split in enumerate(splits) if split != "test"]
    triplets: dict[str, Any] = {"tenant": owners, "query_id": ids, "split": splits, "positive_id": pairs["chunk_id"]}
    triplets = {name: [values[row] for row in learned] for name, values in triplets.items()}
    triplets |= {"triplet_id": [str(row) for row in learned]}
    triplets |= dict.fromkeys(("negative_ids", "negatives", "negative_scores"), [[]] * len(learned))
    write_columns(run, "triplets", triplets, query="", positive="", source="pooled")
    chunks = {"tenant": np.repeat([f"t{number:04}" for number in range(tenants)], TEXTS).tolist()}
    chunks |= {"chunk_id": names, "doc_id": names, "content_hash": hashes}
    write_columns(run, "chunks", chunks, text="words", position=0, start=0, end=0)
    write_run(
        run, BenchmarkInputs(docs="docs", queries="queries"), Settings(cache=CacheSettings(root=str(root / "cache")))
    )


def adapt(root: Path, tenants: int, method: str) -> list[object]:
    """Adapt to all tenants of a run, with pooling; runs in its own process."""
    changes = {"adapt": AdaptSettings(method=method, max_steps=200, learning_rates=(3e-4,)).model_dump()}
    before, began, used = peak_megabytes(), time.perf_counter(), time.process_time()
    out = str(root / method)
    with executing(InProcess(needs_preflight=False)), contextlib.suppress(NoLift):
        adapt_tenants([str(root / "run")], ENCODER.model, out, settings=changes, pool_tenants=True)
    used = time.process_time() - used
    pooled = Run(out).manifests()["pooled_tenants"].seconds
    seconds = time.perf_counter() - began
    return [tenants, method, used, used / tenants, seconds, pooled, before, peak_megabytes()]
