"""A judged build whose relevant texts have a word of their own, and a small judge distilled from its verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from darklode.flows.jobs.distil_judge import distil_judge
from darklode.pipeline.base.artifacts import Run
from darklode.schemas.tables import TABLES
from helpers.adapted import TENANT
from helpers.reranked import bi_encoder, build_to_rerank, quick_settings
from helpers.runs import put

TEACHER = "llm-1:teacher"
PARTS = 3  # texts per topic


def judged_build(folder: Path, *, people: bool = True) -> Run:
    """Three judged texts for each query, the first of them relevant; the teacher errs at a tenth, people at none."""
    run = build_to_rerank(folder)
    ids = run.tables("queries").sql("SELECT query_id FROM queries ORDER BY query_id")["query_id"].to_pylist()
    pairs = [(query, f"{query}#{part}", part == 0) for query in ids for part in range(PARTS)]
    random = np.random.default_rng(3)
    relevant = [bool(label ^ (random.random() < 0.1)) for *_, label in pairs]
    columns = {
        "tenant": [TENANT] * len(pairs),
        "query_id": [query for query, *_ in pairs],
        "chunk_id": [chunk for _, chunk, _ in pairs],
    }
    rank = [1 + number % PARTS for number in range(len(pairs))]
    pool = {"retrievers": [["bm25"]] * len(pairs), "best_rank": rank, "fused_score": [0.1] * len(pairs)}
    put(run, "pool", TABLES["pool"].rows(columns | pool))
    verdicts = {
        "judge_id": [TEACHER] * len(pairs),
        "relevant": relevant,
        "probability": pa.array([0.9 if label else 0.1 for label in relevant], pa.float32()),
    }
    put(run, "verdicts", TABLES["verdicts"].rows(columns | verdicts))
    if people:
        put(
            run,
            "human_labels",
            TABLES["human_labels"].rows(columns | {"relevance": [int(label) for *_, label in pairs]}),
        )
    return run


@dataclass(frozen=True)
class DistilledRun:
    """A judged build, and the output folder of a distillation.

    Attributes:
        root: folder of the run, the model and the cache.
        out: the output folder.
        verdict: what the job returned.
    """

    root: Path
    out: Run
    verdict: str


def distilled_run(root: Path) -> DistilledRun:
    """Build, and distil from a bi-encoder."""
    judged_build(root / "run")
    bi_encoder(root / "bi")
    verdict = distil_judge(str(root / "run"), str(root / "bi"), str(root / "out"), quick_settings(root))
    return DistilledRun(root, Run(str(root / "out")), verdict)
