"""The released folder works without Darklode, and with its commands."""

import json

import numpy as np
import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.model_swap.folder import remove, scores
from darklode.pipeline.model_swap.stage import load_selected
from darklode.pipeline.train.fit.heads import apply_layers
from darklode.pipeline.train.release.adapter import Adapter
from darklode.pipeline.train.release.warm_start import load_initial_head
from helpers.adapted import TENANT, refused
from helpers.swapped import SwappedRun


@pytest.mark.slow
def test_plain_sentence_transformers_gives_the_mapped_vectors(swapped: SwappedRun) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["how gupa", "reset"]
    base = SentenceTransformer(str(swapped.root / "new"), device="cpu").encode(texts)
    base /= np.linalg.norm(base, axis=1, keepdims=True)
    vectors = SentenceTransformer(str(swapped.root / "out" / "query_encoder"), device="cpu").encode(texts)
    assert vectors.shape == (2, 8)
    assert np.allclose(vectors, apply_layers(load_selected(swapped.out.tables()), base), atol=1e-4)


@pytest.mark.slow
def test_the_record_is_that_of_an_adapter_of_the_index_encoder(swapped: SwappedRun) -> None:
    adapter = Adapter.open(str(swapped.root / "out"))
    assert (adapter.tenant, adapter.ships, adapter.facts["base"]["encoder"]) == (TENANT, True, "old")
    assert adapter.facts["base"]["dimensions"] == 8
    assert len(adapter.facts["indexes"][0]["queries"]) == 16
    assert scores(swapped.out.tables())["difference"] is not None
    assert refused(swapped.root / "out", swapped.root / "run") == "", "adapt check passes"


@pytest.mark.slow
def test_training_does_not_start_from_a_map_of_another_encoder(swapped: SwappedRun) -> None:
    adapter = Adapter.open(str(swapped.root / "out"))
    with pytest.raises(SettingsError, match="maps the vectors of another encoder onto the base"):
        load_initial_head(adapter, TENANT, adapter.base, "linear")


@pytest.mark.slow
def test_a_refusal_removes_an_earlier_release(swapped: SwappedRun) -> None:
    swapped.swap("again", min_share=0.0)
    folder = swapped.root / "again"
    assert json.loads((folder / "adapter.json").read_text())["shipped"] == "mapped"
    remove(type(swapped.out)(str(folder)))
    assert not any((folder / name).exists() for name in ("adapter.json", "query_encoder", "adapter"))
