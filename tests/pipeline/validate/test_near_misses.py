"""Near misses: one pair per query without a certain positive, outside of the sample and of the estimates."""

from typing import Any

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.validate.near_misses import NEAR_MISSES_STAGE, SAMPLE_SHARE, near_misses
from darklode.pipeline.validate.stage import VALIDATE_STAGE, validate
from darklode.schemas.evaluation import EvaluateSettings
from darklode.schemas.tables import QUERIES
from helpers.reviewed_run import Pairs, answer, answered, key_of, put_run, sampled
from helpers.runs import execute, put, read, written

Row = dict[str, Any]


def drawn(run: Run, **options: Any) -> tuple[list[Row], list[Row]]:
    """The near misses and the sample of a run."""
    sample = sampled(run, **options)
    execute(run, NEAR_MISSES_STAGE, near_misses)
    return read(run, "near_misses"), sample


def test_each_is_the_most_probable_uncertain_pair_of_its_query(run: Run, made: Pairs) -> None:
    missed, sample = drawn(put_run(run, made))
    labels = read(run, "qrels")
    certain = {(row["tenant"], row["query_id"]) for row in labels if (row["relevance"] or 0) > 0}
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for row in labels:
        query = row["tenant"], row["query_id"]
        if row["relevance"] is None and query not in certain:
            best[query] = max(best.get(query, (0.0, "")), (row["weight"], row["chunk_id"]))
    assert 0 < len(missed) <= SAMPLE_SHARE * len(sample)
    assert {(row["tenant"], row["query_id"]): (row["probability"], row["chunk_id"]) for row in missed}.items() <= (
        best.items()
    )
    probabilities = [row["probability"] for row in missed]
    assert [row["position"] for row in missed] == list(range(len(missed)))
    assert probabilities == sorted(probabilities, reverse=True)
    assert not {key_of(row) for row in missed} & {key_of(row) for row in sample}


def test_test_queries_come_first(run: Run, made: Pairs) -> None:
    put_run(run, made)
    first, _ = drawn(run)
    last = first[-1]["tenant"], first[-1]["query_id"]
    queries = read(run, "queries")
    splits = ["test" if (row["tenant"], row["query_id"]) == last else "train" for row in queries]
    rows = [row | {"split": split} for row, split in zip(queries, splits, strict=True)]
    put(run, "queries", pa.Table.from_pylist(rows, QUERIES.schema))
    again, _ = drawn(run)
    assert (again[0]["tenant"], again[0]["query_id"]) == last
    assert [key_of(row) for row in again[1:]] == [key_of(row) for row in first[:-1]]


def test_a_small_sample_has_few(run: Run, made: Pairs) -> None:
    missed, sample = drawn(put_run(run, made), max_pairs=16)
    assert (len(missed), len(sample)) == (2, 16)


def test_a_query_with_a_certain_positive_or_without_content_has_none(run: Run) -> None:
    weights = {"certain": [0.9, 0.7], "empty": [0.0, 0.0], "missed": [0.6, 0.7]}
    labels = [
        {"query_id": query, "chunk_id": f"c{number}", "relevance": 1 if weight == 0.9 else None, "weight": weight}
        for query, of_query in weights.items()
        for number, weight in enumerate(of_query)
    ]
    written(run, "queries", [{"query_id": query, "split": "train"} for query in weights])
    written(run, "qrels", labels)
    written(run, "review_sample", [{"query_id": f"other{number}", "chunk_id": "c"} for number in range(20)])
    execute(run, NEAR_MISSES_STAGE, near_misses)
    assert [(row["query_id"], row["chunk_id"]) for row in read(run, "near_misses")] == [("missed", "c1")]


def test_their_answers_change_no_estimate(run: Run, made: Pairs) -> None:
    missed, sample = drawn(put_run(run, made))
    answers = [answer(key_of(row), made[key_of(row)]["true"]) for row in sample[::2]]

    def estimates() -> list[Row]:
        execute(
            run,
            VALIDATE_STAGE,
            lambda tables, output: validate(tables, output, EvaluateSettings(n_resamples=50), thresholds={}, seed=1),
        )
        return read(run, "validation")

    answered(run, answers)
    before = estimates()
    answered(run, [*answers, *(answer(key_of(row), 1) for row in missed)])
    after = estimates()
    assert after[0]["outside"] == len(missed) > 0
    assert before[0]["precision"] is not None
    assert [row | {"outside": 0} for row in after] == [row | {"outside": 0} for row in before]
