"""Scores of a cross-encoder as logits and as probabilities; see also the judge and the reranker made of it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.models.cross_encoder import CrossEncoderModel
from darklode.pipeline.base.models.local import versioned_name
from darklode.schemas.pooling import LocalModel
from helpers.composites import tiny_cross_encoder
from helpers.tiny_bert import tiny_bert

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the extra neural is not installed")
PAIRS = [("reset the router", "open the box"), ("reset", "reset the router"), ("billing", "two days")]


def test_probabilities_are_the_sigmoids_of_the_outputs(tmp_path: Path) -> None:
    settings = LocalModel(model=str(tiny_cross_encoder(tmp_path / "model")), device="cpu", batch_size=2)
    model = CrossEncoderModel(settings)
    assert (model.versioned_name, model.pairs_per_pass) == (versioned_name(settings), 2)
    outputs, probabilities = (model.scores(PAIRS, as_probabilities=chosen) for chosen in (False, True))
    assert outputs.shape == (3,)
    assert len(set(outputs.round(4))) == 3
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-outputs)), atol=1e-6)


def test_a_model_without_a_score_or_a_bare_name_is_refused(tmp_path: Path) -> None:
    bare = CrossEncoderModel(LocalModel(model=str(tiny_bert(tmp_path / "bare")), device="cpu"))
    with pytest.raises(SettingsError, match="not a cross-encoder with a single score"):
        bare.scores(PAIRS, as_probabilities=False)
    with pytest.raises(SettingsError, match="in full"):
        CrossEncoderModel(LocalModel(model="ms-marco-MiniLM-L6-v2"))
