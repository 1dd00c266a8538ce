"""What mapped queries find, compared with re-embedding and with no change."""

import numpy as np
import pytest

from darklode.pipeline.model_swap.evaluation import (
    INDEX_ENCODER,
    MAPPED,
    RE_EMBEDDING,
    SWAP_TEST_STAGE,
    _partial,
    agreement,
    baselines,
    map_microseconds,
)
from helpers.runs import read
from helpers.swapped import SwappedRun, rotation, swap_vectors


def test_a_perfect_map_finds_everything_and_no_map_does_not() -> None:
    vectors = swap_vectors(rotation(8))
    perfect = [(np.ascontiguousarray(rotation(8).T), np.zeros(8, np.float32))]
    rows = agreement({MAPPED: perfect} | baselines(vectors, 1), vectors.validation, vectors.documents, 13).to_pylist()
    values = {(row["system"], row["reference"], row["k"]): row["value"] for row in rows}
    assert values[MAPPED, RE_EMBEDDING, 10] == values[MAPPED, INDEX_ENCODER, 100] == 1.0
    assert values[INDEX_ENCODER, RE_EMBEDDING, 10] == 1.0, "the two spaces rank alike"
    assert values["no map", RE_EMBEDDING, 10] < 0.5
    assert (INDEX_ENCODER, INDEX_ENCODER, 10) not in values


def test_without_equal_dimensions_there_is_no_unmapped_search() -> None:
    assert list(baselines(swap_vectors(rotation(12)[:, :8]), 1)) == ["random orthogonal"]


def test_without_held_out_queries_nothing_is_measured() -> None:
    vectors = swap_vectors(rotation(8))
    nobody = vectors.validation.take(np.array([], np.int64))
    assert agreement(baselines(vectors, 1), nobody, vectors.documents, 13).num_rows == 0
    partial = _partial(baselines(vectors, 1)["no map"], nobody, vectors, np.ones(300, np.float32), 13)
    assert partial.num_rows == 0


def test_the_cost_of_a_map_is_measured() -> None:
    vectors = swap_vectors(rotation(8))
    assert map_microseconds(baselines(vectors, 1)["no map"], vectors.train.new) > 0


@pytest.mark.slow
def test_the_tables_of_a_run(swapped: SwappedRun) -> None:
    systems = {row["system"] for row in read(swapped.out, "swap_agreement")}
    assert {MAPPED, INDEX_ENCODER, "procrustes", "mlp", "random orthogonal"} <= systems
    quality = {(row["system"], row["measure"]): row for row in read(swapped.out, "swap_quality")}
    assert len(quality) == 9
    assert quality[INDEX_ENCODER, "nDCG@10"]["difference"] == 0
    partial = {(row["order"], row["share"]): row for row in read(swapped.out, "swap_partial")}
    mapped = next(
        row["value"]
        for row in read(swapped.out, "swap_agreement")
        if (row["system"], row["reference"], row["k"]) == (MAPPED, RE_EMBEDDING, 10)
    )
    assert partial["hottest", 0.0]["recall_10"] == partial["random", 0.0]["recall_10"] == pytest.approx(mapped)
    assert partial["random", 0.5]["recall_10"] > mapped
    facts = swapped.out.manifests()[SWAP_TEST_STAGE.name].facts
    assert facts["documents per second"] > 0
