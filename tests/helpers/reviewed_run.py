"""A run of made-up pairs whose every label is known, and reviewers who know them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.validate.review.journal import ReviewAnswer, current_answers
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE, review_sample
from darklode.pipeline.validate.stage import VALIDATE_STAGE, validate
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.label_tables import QRELS, VERDICTS
from darklode.schemas.settings import ReviewSettings
from darklode.schemas.tables import POOL, QUERIES
from helpers.runs import execute, put, read

RETRIEVERS = ("bm25", "dense", "lsa")
WHEN = datetime(2026, 1, 1, tzinfo=UTC)
Key = tuple[str, str, str]
Pairs = dict[Key, dict[str, Any]]


def pairs(sizes: Mapping[str, int], per_query: int = 30, seed: int = 0, unreadable: float = 0.02) -> Pairs:
    """Each tenant's queries with candidates; the judge finds most of what is relevant, and some more."""
    chance, made = np.random.default_rng(seed), Pairs()
    for tenant, queries in sizes.items():
        for query in range(queries):
            for chunk in range(per_query):
                probability = np.float32(chance.beta(0.4, 1.5))
                read_ = chance.random() >= unreadable
                found = sorted(chance.choice(RETRIEVERS, chance.integers(1, 4), replace=False).tolist())
                made[tenant, f"q{query}", f"c{chunk}"] = {
                    "retrievers": found,
                    "relevant": bool(probability >= 0.5) if read_ else None,
                    "probability": float(probability) if read_ else None,
                    "true": int(chance.random() < np.clip(1.3 * probability - 0.15, 0.02, 0.95)),
                }
    return made


def put_run(run: Run, made: Pairs) -> Run:
    """Write `queries`, `pool`, `verdicts` and `qrels`; a pair whose `relevant` is "unjudged" has no verdict.

    What the judge calls relevant is uncertain below the probability .8.
    """
    named = ("tenant", "query_id", "chunk_id")
    keys = {name: [key[place] for key in made] for place, name in enumerate(named)}
    n = len(made)
    found = {"retrievers": [pair["retrievers"] for pair in made.values()], "best_rank": [1] * n}
    put(run, "pool", POOL.rows(keys | found | {"fused_score": [0.1] * n}))
    judged = {key: pair for key, pair in made.items() if pair["relevant"] != "unjudged"}
    said = {name: [key[place] for key in judged] for place, name in enumerate(named)}
    said |= {name: [pair.get(name) for pair in judged.values()] for name in ("relevant", "probability", "grade")}
    put(run, "verdicts", VERDICTS.rows(said | {"judge_id": ["j"] * len(judged)}))
    labels = [
        dict(zip(named, key, strict=True))
        | {"relevance": None if pair["relevant"] and (pair["probability"] or 1) < 0.8 else int(pair["relevant"])}
        | {"weight": pair["probability"], "source": "judge"}
        for key, pair in judged.items()
        if pair["relevant"] is not None
    ]
    put(run, "qrels", pa.Table.from_pylist(labels, QRELS.schema))
    ids = list(dict.fromkeys(key[:2] for key in made))
    one = {name: [1] * len(ids) for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    words = {name: ["x"] * len(ids) for name in ("text", "language", "split")}
    put(run, "queries", QUERIES.rows({"tenant": [i[0] for i in ids], "query_id": [i[1] for i in ids]} | one | words))
    return run


def sampled(run: Run, seed: int = 13, **options: Any) -> list[dict[str, Any]]:
    """Draw the sample; returns its rows."""
    settings = ReviewSettings.model_validate(options)
    execute(run, REVIEW_SAMPLE_STAGE, lambda tables, output: review_sample(tables, output, settings, seed=seed))
    return read(run, "review_sample")


def key_of(row: Mapping[str, Any]) -> Key:
    return row["tenant"], row["query_id"], row["chunk_id"]


def answer(key: Key, relevance: int | None, reviewer: str = "ann", **more: Any) -> ReviewAnswer:
    return ReviewAnswer(*key, reviewer, relevance, WHEN, **more)


def answered(run: Run, answers: Iterable[ReviewAnswer]) -> None:
    put(run, "reviews", current_answers(answers))


def honest(made: Pairs, keys: Sequence[Key], reviewer: str = "ann") -> list[ReviewAnswer]:
    """What somebody says who knows."""
    return [answer(key, made[key]["true"], reviewer) for key in keys]


def validated(run: Run, thresholds: Mapping[str, float] | None = None, seed: int = 13) -> Manifest:
    settings = EvaluateSettings(n_resamples=200)
    return execute(
        run,
        VALIDATE_STAGE,
        lambda tables, output: validate(tables, output, settings, thresholds=thresholds or {}, seed=seed),
    )


def rows_of(run: Run) -> dict[tuple[str | None, str | None], dict[str, Any]]:
    """Rows of `validation` by tenant and retriever."""
    return {(row["tenant"], row["retriever"]): row for row in read(run, "validation")}  # type: ignore[misc]


def reviewed(run: Run, made: Pairs, **options: Any) -> list[dict[str, Any]]:
    """Draw a sample, have it labelled by somebody who knows, and validate."""
    sample = sampled(put_run(run, made), **options)
    answered(run, honest(made, [key_of(row) for row in sample]))
    validated(run, {"a": 0.5, "b": 0.5})
    return sample
