"""Peak memory of the judge stage: run as a process of its own by benchmarks.judging, which reads its last line."""

import argparse
import hashlib
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.chat_loops import serving
from darklode.pipeline.base.artifacts import Run, Stage
from darklode.pipeline.judge.ledger import Ledger
from darklode.pipeline.judge.ledger_judge import LedgerJudge
from darklode.pipeline.judge.llm.judge import LlmJudge
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.port import PAIRS
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.pipeline.judge.threshold import Thresholded
from darklode.schemas.judging import JudgeSettings
from darklode.schemas.tables import CHUNKS, POOL, QUERIES

CHUNKS_PER_QUERY = 250
N_CHUNKS = 5_000


def query_text(number: int) -> str:
    """A short query."""
    return f"how to rotate the signing secret of destination {number}"


def chunk_text(number: int) -> str:
    """About 500 characters."""
    return f"Destination {number}. " + "Open the settings, choose the secret and press Rotate; both stay valid. " * 7


def digest(text: str) -> str:
    """32 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def pair_block(first: int, pairs: int) -> pa.Table:
    """Rows of `PAIRS`, without a stage: `CHUNKS_PER_QUERY` chunks for each query."""
    queries = [first + row // CHUNKS_PER_QUERY for row in range(pairs)]
    chunks = [row % CHUNKS_PER_QUERY for row in range(pairs)]
    return pa.table(
        {
            "tenant": ["t"] * pairs,
            "query_id": [f"q{query:06}" for query in queries],
            "query": [query_text(query) for query in queries],
            "chunk_id": [f"c{chunk:06}" for chunk in chunks],
            "title": ["Secrets"] * pairs,
            "heading": pa.nulls(pairs, pa.string()),
            "text": [chunk_text(chunk) for chunk in chunks],
            "query_hash": [digest(query_text(query)) for query in queries],
            "chunk_hash": [digest(chunk_text(chunk)) for chunk in chunks],
        },
        schema=PAIRS,
    )


def put(run: Run, table: str, rows: pa.Table) -> None:
    """Give the run a table, as if a stage had written it."""
    stage = Stage(f"given_{table}", 1, (), (table,))
    run.execute(run.plan(stage, {}), lambda _tables, output: output.write(table, rows))


def fill(run: Run, pairs: int) -> None:
    """Queries, chunks and a pool of so many pairs."""
    n = -(-pairs // CHUNKS_PER_QUERY)
    ones = {name: [1] * n for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    words = {"tenant": ["t"] * n, "language": ["en"] * n, "split": ["train"] * n}
    ids = [f"q{query:06}" for query in range(n)]
    put(
        run,
        "queries",
        QUERIES.rows({"query_id": ids, "text": [query_text(query) for query in range(n)], **ones, **words}),
    )
    texts = [chunk_text(chunk) for chunk in range(N_CHUNKS)]
    names = [f"c{chunk:06}" for chunk in range(N_CHUNKS)]
    offsets = {"position": [0] * N_CHUNKS, "start": [0] * N_CHUNKS, "end": [len(text) for text in texts]}
    same = {"tenant": ["t"] * N_CHUNKS, "content_hash": [digest(text) for text in texts]}
    put(run, "chunks", CHUNKS.rows({"chunk_id": names, "doc_id": names, "text": texts, **offsets, **same}))
    rows = np.arange(pairs)
    query, chunk = rows // CHUNKS_PER_QUERY, rows // CHUNKS_PER_QUERY * 7 + rows % CHUNKS_PER_QUERY
    pool = {
        "tenant": pa.repeat("t", pairs),
        "query_id": pa.array(ids).take(pa.array(query)),
        "chunk_id": pa.array(names).take(pa.array(chunk % N_CHUNKS)),
        "retrievers": pa.array([["bm25"]]).take(pa.array(np.zeros(pairs, np.int64))),
        "best_rank": pa.repeat(1, pairs),
        "fused_score": pa.repeat(0.1, pairs),
    }
    put(run, "pool", POOL.rows(pool))


def peak_mb() -> float:
    """Most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000)
    given = parser.parse_args()
    with serving() as url, tempfile.TemporaryDirectory() as scratch:
        run = Run(str(Path(scratch) / "run"))
        fill(run, given.pairs)
        before, began = peak_mb(), time.perf_counter()
        settings, ledger = JudgeSettings(kind="llm"), Ledger(str(Path(scratch) / "ledger"))
        source = LlmJudge(LlmSettings(model="fake", base_url=(url,)))
        asked = Thresholded(LedgerJudge(source, ledger), settings.cut)
        plan = run.plan(JUDGE, {})
        made = run.execute(plan, lambda tables, output: judge(tables, output, settings, judge_for=lambda _: asked))
        assert made.rows("verdicts") == given.pairs
    seconds = time.perf_counter() - began
    print(json.dumps({"pairs": given.pairs, "peak_mb": peak_mb(), "before_mb": before, "seconds": seconds}))


if __name__ == "__main__":
    main()
