"""Both encoders' vectors of a run."""

import numpy as np
import pytest

from darklode.pipeline.model_swap.encoder_pair import EncoderPair, held_out_queries, load_vectors, tenant_of
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from helpers.adapted import TENANT, base_for
from helpers.swapped import SwappedRun


@pytest.mark.slow
def test_vectors_come_in_the_order_of_the_ids(swapped: SwappedRun) -> None:
    from dataclasses import replace

    from darklode.pipeline.base.artifacts import Run

    base = base_for(Run(str(swapped.root / "run")), root=swapped.root)
    old, new = (
        replace(base, encoder=SentenceTransformersSettings(model=str(swapped.root / name), device="cpu"))
        for name in ("old", "new")
    )
    pair = EncoderPair(old, new)
    forward = pair.documents(TENANT, ["train-000#0", "test-001#1"])
    assert (forward.new.shape, forward.old.shape) == ((2, 12), (2, 8))
    backward = pair.documents(TENANT, ["test-001#1", "train-000#0"])
    assert np.array_equal(forward.new, backward.new[::-1])
    assert pair.identity["old"] != pair.identity["new"]
    tables = swapped.out.tables()
    vectors = load_vectors(tables, pair)
    assert tenant_of(tables) == TENANT
    assert len(vectors.validation) == 17
    assert len(vectors.fitted) == len(vectors.documents) // 2
    assert not set(held_out_queries(tables)) & set(
        tables.sql("SELECT query FROM tower_queries WHERE split IN ('train', 'validation')")["query"].to_pylist()
    )
