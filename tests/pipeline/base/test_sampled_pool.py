"""Labels of the review sample, whoever uses them: weights, clusters and the queries of a part of the pairs."""

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.sampled_pool import SampledPool
from helpers.reviewed_run import Pairs, key_of, pairs, put_run, sampled

NAMES = ("queries", "pool", "verdicts", "review_sample", "review_strata")


@pytest.fixture
def made() -> Pairs:
    return pairs({"a": 20, "b": 10}, per_query=10)


def read(run: Run, made: Pairs, joins: str = "") -> tuple[SampledPool, list[tuple[str, str, str]]]:
    with run.tables(*NAMES).connect() as connection:
        pool = SampledPool.read(connection, columns="p.retrievers", joins=joins)
        rows = connection.sql("FROM sampled_pool ORDER BY tenant, query_id, chunk_id").to_arrow_table().to_pylist()
    return pool, [key_of(row) for row in rows]


def test_each_pair_has_its_query_and_stratum_and_each_query_its_cluster(run: Run, made: Pairs) -> None:
    put_run(run, made)
    in_sample = {key_of(row) for row in sampled(run, query_share=1, max_pairs=60)}
    pool, keys = read(run, made)
    assert keys == sorted(made)
    assert {key for key, stratum in zip(keys, pool.stratum, strict=True) if stratum >= 0} == in_sample
    queries = sorted({key[:2] for key in made})
    assert [queries[query] for query in pool.query] == [key[:2] for key in keys]
    assert len(pool.cluster) == len(queries)
    assert pool.stratum_pairs.sum() == len(made)


def test_labels_stand_for_all_pairs_and_those_outside_the_sample_are_not_used(run: Run, made: Pairs) -> None:
    put_run(run, made)
    sampled(run, query_share=1, max_pairs=60)
    pool, keys = read(run, made)
    sample = pool.label(np.array([float(made[key]["true"] > 0) for key in keys]))
    assert sample.is_labelled.tolist() == (pool.stratum >= 0).tolist()
    assert np.nansum(sample.weight) == pytest.approx(len(made))


def test_a_part_of_the_queries_is_numbered_anew_and_keeps_the_weights_of_all_labels(run: Run, made: Pairs) -> None:
    put_run(run, made)
    sampled(run, query_share=1, max_pairs=60)
    pool, keys = read(run, made)
    label = np.array([float(made[key]["true"] > 0) if key[0] == "b" else np.nan for key in keys])
    whole, in_b = pool.label(label), np.array([key[0] == "b" for key in keys])
    part = whole.take_queries(in_b)
    assert sorted(set(part.query)) == list(range(10)) == list(range(part.n_queries))
    assert part.weight[part.is_labelled].tolist() == whole.weight[whole.is_labelled].tolist()
    n_labelled_queries = len(np.unique(part.query[part.is_labelled]))
    assert (whole.query_share, part.query_share) == (n_labelled_queries / 30, n_labelled_queries / 10)


def test_a_part_of_the_pool_with_the_sample_gives_the_same_weights(run: Run, made: Pairs) -> None:
    put_run(run, made)
    sampled(run, query_share=1, max_pairs=60)
    weights = []
    for joins in ("", "WHERE s.position IS NOT NULL"):
        pool, keys = read(run, made, joins)
        sample = pool.label(np.array([float(made[key]["true"] > 0) for key in keys]))
        weights.append(sample.weight[sample.is_labelled].tolist())
    assert weights[0] == weights[1]
