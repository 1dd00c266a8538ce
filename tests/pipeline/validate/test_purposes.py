"""What a review is for: which pairs its sample prefers, and that every pair stands for its stratum."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.validate.purposes import (
    EVALUATED_RANKS,
    PURPOSE_FILE,
    TABLES_READ,
    Purpose,
    read_purpose,
    write_purpose,
)
from darklode.pipeline.validate.sample import REVIEW_SAMPLE_STAGE, review_sample
from darklode.pipeline.validate.strata import MIN_PER_STRATUM
from darklode.schemas.label_tables import PANEL_VERDICTS, VERDICTS
from darklode.schemas.settings import ReviewSettings
from darklode.schemas.tables import POOL, QUERIES, TABLES
from helpers.runs import execute, put, read

N_QUERIES, PER_QUERY, MAX_PAIRS = 40, 50, 200
N_ANSWERED = 15  # of the 20 test queries


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose pairs have the rank of their number, and every second query is a test query."""
    run, random = Run(str(tmp_path / "run")), np.random.default_rng(2)
    n = N_QUERIES * PER_QUERY
    keys = {
        "tenant": ["a"] * n,
        "query_id": [f"q{row // PER_QUERY}" for row in range(n)],
        "chunk_id": [f"c{row % PER_QUERY}" for row in range(n)],
    }
    probability = random.beta(0.4, 1.6, n).astype(np.float32)
    found = {"retrievers": [["bm25"]] * n, "fused_score": [0.1] * n}
    put(run, "pool", POOL.rows(keys | found | {"best_rank": [row % PER_QUERY + 1 for row in range(n)]}))
    verdict = {"judge_id": ["j"] * n, "relevant": probability >= 0.5, "probability": probability}
    put(run, "verdicts", VERDICTS.rows(keys | verdict))
    votes = [VERDICTS.rows(keys | {"judge_id": [name] * n, "relevant": random.random(n) < 0.5}) for name in ("x", "y")]
    put(run, "panel_verdicts", PANEL_VERDICTS.rows(_columns(votes[0])))
    ids = [f"q{query}" for query in range(N_QUERIES)]
    words = {"tenant": ["a"] * N_QUERIES, "query_id": ids, "text": ids, "language": ["en"] * N_QUERIES}
    numbers = {name: [1] * N_QUERIES for name in ("n_words", "cluster_id", "n_represented", "language_score")}
    split = ["test" if query % 2 else "train" for query in range(N_QUERIES)]
    put(run, "queries", QUERIES.rows(words | numbers | {"split": split}))
    answered = {"tenant": ["a"] * N_ANSWERED, "query_id": [f"q{2 * query + 1}" for query in range(N_ANSWERED)]}
    columns = {"split": ["test"] * N_ANSWERED, "shares_positive": [False] * N_ANSWERED}
    put(run, "held_out", TABLES["held_out"].rows(answered | columns))
    return run


def _columns(rows: Any) -> dict[str, Any]:
    return {name: rows[name] for name in PANEL_VERDICTS.schema.names}


def draw(run: Run, purpose: Purpose, **options: Any) -> list[dict[str, Any]]:
    settings = ReviewSettings(max_pairs=MAX_PAIRS)
    stage = replace(REVIEW_SAMPLE_STAGE, reads=(*REVIEW_SAMPLE_STAGE.reads, *TABLES_READ[purpose]))
    execute(
        run, stage, lambda tables, output: review_sample(tables, output, settings, seed=1, purpose=purpose, **options)
    )
    return [dict(row) for row in read(run, "review_sample")]


def rank(row: dict[str, Any]) -> int:
    return int(row["chunk_id"][1:]) + 1


def probabilities(run: Run) -> dict[tuple[str, str], float]:
    return {(row["query_id"], row["chunk_id"]): row["probability"] for row in read(run, "verdicts")}  # type: ignore[misc]


@pytest.mark.parametrize("purpose", ["evaluate", "calibrate", "teach"])
def test_the_weights_of_every_purpose_stand_for_all_pairs(run: Run, purpose: Purpose) -> None:
    rows = draw(run, purpose)
    assert len(rows) == MAX_PAIRS
    assert sum(row["weight"] for row in rows) == pytest.approx(N_QUERIES * PER_QUERY)
    strata = {row["stratum"]: row for row in rows}
    assert len(strata) > 3
    assert min(row["sampled"] for row in strata.values()) >= MIN_PER_STRATUM
    assert len({row["query_id"] for row in rows}) > N_QUERIES / 2, "all queries are sampled from"


def test_a_weighted_sample_estimates_without_bias(run: Run) -> None:
    """The share of pairs beyond rank 10, which `evaluate` seldom samples."""
    settings, stage = (
        ReviewSettings(max_pairs=MAX_PAIRS),
        replace(REVIEW_SAMPLE_STAGE, reads=(*REVIEW_SAMPLE_STAGE.reads, "held_out")),
    )
    shares = []
    for seed in range(12):
        execute(
            run,
            replace(stage, version=100 + seed),
            lambda tables, output, seed=seed: review_sample(tables, output, settings, seed=seed, purpose="evaluate"),
        )
        rows = read(run, "review_sample")
        shares.append(sum(row["weight"] * (rank(row) > EVALUATED_RANKS) for row in rows) / N_QUERIES / PER_QUERY)
    assert np.mean(shares) == pytest.approx(1 - EVALUATED_RANKS / PER_QUERY, abs=0.02)


def test_evaluation_samples_the_top_of_test_queries_with_a_positive(run: Run) -> None:
    rows = draw(run, "evaluate")
    is_counted = {row["query_id"] for row in read(run, "held_out")}
    top = [row for row in rows if rank(row) <= EVALUATED_RANKS and row["query_id"] in is_counted]
    assert len(top) > 0.4 * MAX_PAIRS, "less than a tenth of all pairs"
    unanswered = [row for row in rows if int(row["query_id"][1:]) >= 2 * N_ANSWERED]
    assert len(unanswered) < MAX_PAIRS / 8, "a quarter of all pairs"
    first, tenth = (np.mean([row["weight"] for row in top if rank(row) in ranks]) for ranks in ((1, 2), (9, 10)))
    assert first < tenth


def test_calibration_spreads_over_the_probabilities(run: Run) -> None:
    known = probabilities(run)
    rows = draw(run, "calibrate", threshold=0.5)
    sampled = np.array([known[row["query_id"], row["chunk_id"]] for row in rows])
    everything = np.array(list(known.values()))
    middle = lambda values: ((values > 0.3) & (values < 0.7)).mean()  # noqa: E731
    assert middle(sampled) > 1.8 * middle(everything)
    assert (sampled < 0.1).mean() < (everything < 0.1).mean() / 2


def test_teaching_samples_undecided_pairs(run: Run) -> None:
    known = probabilities(run)
    sampled = np.array([known[row["query_id"], row["chunk_id"]] for row in draw(run, "teach")])
    everything = np.array(list(known.values()))
    uncertainty = lambda values: (4 * values * (1 - values)).mean()  # noqa: E731
    assert uncertainty(sampled) > 1.5 * uncertainty(everything)


def test_the_purpose_is_kept_with_the_run(tmp_path: Path) -> None:
    store = Run(str(tmp_path / "run")).store
    assert read_purpose(store) == "validate"
    write_purpose(store, "teach")
    assert read_purpose(store) == "teach"
    store.write(PURPOSE_FILE, b"{}")
    with pytest.raises(ArtifactError, match="review --for"):
        read_purpose(store)
