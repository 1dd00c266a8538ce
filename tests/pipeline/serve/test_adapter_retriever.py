"""An adapter as a retriever: its own vectors for queries, its base's for texts."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.serve.adapter_retriever import AdaptedBuilder
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.release.adapter import ENCODER_FOLDER, Adapter
from helpers.adapted import TENANT, model_in, settings_for, word


def test_it_searches_the_vectors_of_its_base(shipped: Path, tmp_path: Path) -> None:
    adapter, settings = Adapter.open(str(shipped / "adapter")), settings_for(shipped)
    base = NeuralBuilder("base", model_in(shipped), settings.vector_search, settings.cache)
    index = TenantIndex(TrainingSource(Run(str(shipped / "run")), 0, mined=False, text_characters=9), TENANT, tmp_path)
    queries = [f"how {word(7 * n)}" for n in range(20)]
    found = index.top({"base": base, "adapted": AdaptedBuilder(base, adapter)}, queries, 10)
    lists = {name: found.filter(np.array(found["system"]) == name) for name in ("base", "adapted")}
    assert lists["base"].num_rows == lists["adapted"].num_rows == 200
    assert lists["base"]["text_id"].to_pylist() != lists["adapted"]["text_id"].to_pylist()
    recorded = adapter.facts["indexes"][0]["queries"][0]
    again = index.top({"adapted": AdaptedBuilder(base, adapter)}, [recorded["text"]], 10)
    np.testing.assert_allclose(again["score"].to_numpy(), [one["score"] for one in recorded["found"]], atol=1e-5)
    assert AdaptedBuilder(base, adapter).identity != base.identity


def test_an_adapter_of_a_killed_save_is_refused_before_the_first_query(shipped: Path, tmp_path: Path) -> None:
    adapter, settings = shutil.copytree(shipped / "adapter", tmp_path / "adapter"), settings_for(shipped)
    (adapter / ENCODER_FOLDER / "modules.json").unlink()
    base = NeuralBuilder("base", model_in(shipped), settings.vector_search, settings.cache)
    index = TenantIndex(TrainingSource(Run(str(shipped / "run")), 0, mined=False, text_characters=9), TENANT, tmp_path)
    with pytest.raises(ArtifactError, match=r"is not what adapter\.json describes"):
        index.top({"adapted": AdaptedBuilder(base, Adapter.open(str(adapter)))}, [], 10)
