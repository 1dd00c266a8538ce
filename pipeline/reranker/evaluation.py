"""Rankings of the test queries' candidates by the trained cross-encoder and by what it is compared with, and speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.evaluate.stage import evaluate
from darklode.pipeline.reranker.candidates import load_lists
from darklode.pipeline.reranker.stage import best_trial, load_best_reranker
from darklode.pipeline.train.data.system_names import BASE, BM25
from darklode.pipeline.train.release.evaluation import (
    ranked_systems,
    test_queries,
    write_rankings,
    write_test_labels,
)
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS, CONTROL_WEIGHTS
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.reranker_tables import RERANK_CANDIDATES, RERANKER_TRIALS

if TYPE_CHECKING:
    from darklode.pipeline.base.types import Doubles
    from darklode.pipeline.reranker.lists import CandidateLists
    from darklode.pipeline.reranker.model import InitialReranker, TrainableReranker
    from darklode.pipeline.train.data.base_encoder import BaseEncoder

READS = (
    "adaptation_queries",
    "adaptation_labels",
    "adaptation_texts",
    RERANK_CANDIDATES.name,
    RERANKER_TRIALS.name,
    ADAPTER_WEIGHTS.name,
    CONTROL_WEIGHTS.name,
)
RERANKER_TEST_STAGE = Stage("reranker_test", 1, READS, ("test_queries", "test_labels", "test_rankings"))

CANDIDATES, RERANKED, BASE_RERANKER = "candidates", "reranked", "base reranker"
ALONE = f"{RERANKED}, without the candidates' scores"
CONTROL = f"{RERANKED}, labels: shuffled"
BEST_ORDER = "candidates in the best order"
SYSTEMS = (BM25, BASE, CANDIDATES, BASE_RERANKER, RERANKED, ALONE, CONTROL, BEST_ORDER)
"""Compared systems; `base` is the encoder alone, and `base reranker` and the control may be missing."""

MEASURES = ("nDCG@10", "R@10", "Judged@10")

N_TIMED_QUERIES = 16
"""Queries whose candidates are scored for the timing, one query at a time."""


def rank_test_candidates(
    tables: Tables, output: Output, base: BaseEncoder, initial: InitialReranker, depth: int
) -> None:
    """Rank the candidates of the test queries; BM25 and the encoder rank all texts, to the same depth.

    Args:
        tables: the tables in `READS`.
        output: receives `test_queries`, `test_labels` and `test_rankings`; its facts are the parameters and the
            single-core milliseconds per query, tokenization included.
        base: the encoder that found the candidates, with the runs.
        initial: the model that training started from.
        depth: candidates per query.

    Raises:
        ArtifactError: no test query has a positive.
    """
    from darklode.pipeline.train.fit.determinism import deterministic
    from darklode.pipeline.train.fit.weights import from_rows
    from darklode.pipeline.train.release.bm25_rankings import Bm25Rankings

    frozen = base.open(tables)
    queries, trial = test_queries(tables, frozen), best_trial(tables)
    query_rows = pa.table({"query_id": queries.ids, "text": pa.array(queries.texts, pa.string())})
    lists = load_lists(tables, base.sources, query_rows, queries.labels)
    rankings = {
        BM25: Bm25Rankings(base, frozen).rankings(queries, depth),
        BASE: queries.ranking(frozen, queries.vectors, depth),
        CANDIDATES: lists.own_order(),
        BEST_ORDER: lists.best_order(),
    }
    with deterministic(0):
        reranker = load_best_reranker(tables, initial)
        scores = _scores(output, lists, reranker)
        rankings |= {RERANKED: lists.rerank(scores, trial["weight"]), ALONE: lists.rerank(scores, 1.0)}
        output.facts |= measure_latency(lists, reranker)
        control = tables.read(CONTROL_WEIGHTS.name)
        if control.num_rows:
            reranker.restore(from_rows(control))
            rankings[CONTROL] = lists.rerank(_scores(output, lists, reranker), trial["weight"])
        if trial["base"] is not None:
            base_scores = _scores(output, lists, initial.open())
            rankings[BASE_RERANKER] = lists.rerank(base_scores, trial["base_weight"])
    write_rankings(tables, output, rankings, RERANKER_TEST_STAGE)
    write_test_labels(tables, output)


PAIRS_PER_BLOCK = 1 << 10
"""Pairs scored between two reports of progress."""


def _scores(output: Output, lists: CandidateLists, reranker: TrainableReranker) -> Doubles:
    queries, texts = lists.pairs()
    blocks = [np.empty(0)]
    for start in range(0, len(texts), PAIRS_PER_BLOCK):
        block = slice(start, start + PAIRS_PER_BLOCK)
        blocks.append(reranker.scores(queries[block], texts[block]))
        output.progress(min(start + PAIRS_PER_BLOCK, len(texts)), len(texts), "candidates of the test queries")
    return np.concatenate(blocks)


def measure_latency(lists: CandidateLists, reranker: TrainableReranker) -> dict[str, Any]:
    """Processor milliseconds to score one query's candidates, mean over `N_TIMED_QUERIES`, and the parameters."""
    queries, texts = lists.pairs()
    ends = np.searchsorted(lists.query, np.arange(N_TIMED_QUERIES), side="right").tolist()
    blocks = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False) if end > start]
    for block in blocks[:1]:  # warm-up
        reranker.scores(queries[block], texts[block])
    start_time = time.process_time()
    for block in blocks:
        reranker.scores(queries[block], texts[block])
    seconds = time.process_time() - start_time
    return {
        "milliseconds": round(1000 * seconds / max(len(blocks), 1), 1),
        "pairs": round((ends[-1] if ends else 0) / max(len(blocks), 1), 1),
        "parameters": sum(parameter.numel() for parameter in reranker.parameters()),
    }


def compared_pairs(systems: Sequence[str]) -> list[tuple[str, str]]:
    """The reranked lists with each other system, and each of the others with the candidates' own order."""
    pairs = [(RERANKED, system) for system in systems if system != RERANKED]
    return pairs + [(system, CANDIDATES) for system in systems if system not in {RERANKED, CANDIDATES}]


def evaluate_reranker(tables: Tables, output: Output, settings: EvaluateSettings, *, seed: int) -> None:
    """Evaluate all ranked systems, and compare the pairs of `compared_pairs`.

    Args:
        tables: as for `evaluate`.
        output: as for `evaluate`.
        settings: measures, resamples and sign flips.
        seed: seed of resamples and sign flips.
    """
    systems = ranked_systems(tables, SYSTEMS)
    evaluate(tables, output, settings, systems=systems, compared=compared_pairs(systems), seed=seed)
