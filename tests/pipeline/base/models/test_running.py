"""A model on its devices: loaded at its first use, with copies on several devices."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models import running
from darklode.pipeline.base.models.running import RunningModel
from darklode.schemas.pooling import LocalModel
from helpers.tiny_bert import tiny_bert

pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="the extra neural is not installed")
TEXTS = ["reset the router", "open", "billing page", "two days"]


def settings(model: Path) -> LocalModel:
    return LocalModel(model=str(model), device="cpu", batch_size=2)


def test_a_model_is_loaded_when_it_is_used_first(tmp_path: Path) -> None:
    absent = RunningModel(settings(tmp_path / "nowhere"), "SentenceTransformer")
    assert absent.inputs_per_pass == 2
    with pytest.raises(MissingPart, match="the folder does not exist"):
        assert absent.model


@pytest.mark.slow
def test_two_devices_give_the_same_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = RunningModel(settings(tiny_bert(tmp_path / "model")), "SentenceTransformer")
    assert one.options == {"batch_size": 2, "pool": None, "show_progress_bar": False}
    vectors = one.model.encode(TEXTS, **one.options)
    monkeypatch.setattr(running, "devices", lambda _device: ["cpu", "cpu"])
    two = RunningModel(one.settings, "SentenceTransformer")
    assert two.inputs_per_pass == 4
    np.testing.assert_allclose(two.model.encode(TEXTS, **two.options), vectors, atol=1e-5)
