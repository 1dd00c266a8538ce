"""The calibration becomes part of the model's last layer."""

from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.reranker.distil.comparison import LogitCalibration
from darklode.pipeline.reranker.distil.folder import calibrate_head
from darklode.pipeline.reranker.model import InitialReranker
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from helpers.reranked import cross_encoder

pytest.importorskip("sentence_transformers")


def test_scores_become_slope_times_score_plus_intercept(tmp_path: Path) -> None:
    settings = SentenceTransformersSettings(model=str(cross_encoder(tmp_path / "model")), device="cpu")
    model = InitialReranker(settings, 1).open()
    pairs = ["a query", "another"], ["a text", "some other text"]
    before = model.scores(*pairs)
    calibrate_head(model.loaded, LogitCalibration(2.5, -0.75, 0.5))
    np.testing.assert_allclose(model.scores(*pairs), 2.5 * before - 0.75, atol=1e-5)


def test_a_model_without_a_last_layer_of_one_output_is_refused() -> None:
    from types import SimpleNamespace

    from torch import nn

    for head in (nn.Linear(4, 2), nn.Linear(4, 1, bias=False), nn.Identity()):
        with pytest.raises(DarklodeError, match="use another --base"):
            calibrate_head(SimpleNamespace(model=nn.Sequential(head)), LogitCalibration(1.0, 0.0, 0.5))
