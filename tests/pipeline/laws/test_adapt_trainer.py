"""Cells that train what `adapt` would: the best rate by validation, or the last step of the only one."""

from dataclasses import replace

import numpy as np
import pytest

from darklode.pipeline.laws.adapt_trainer import AdapterTrainer
from darklode.pipeline.laws.trainer import PointKey
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.fit.method_registry import create_method
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings

from .conftest import Grid

HEAD = AdaptSettings(
    method="linear", max_steps=20, batch_size=16, learning_rates=(3e-3, 100.0), init="base", refresh_steps=20
)


@pytest.mark.slow
def test_validation_chooses_the_rate_and_what_did_not_help_is_the_base(towers: Grid) -> None:
    trainer = AdapterTrainer(HEAD)
    evaluator = towers.evaluator(trainer)
    data = replace(evaluator.data, can_select=True)
    point, task, looks = PointKey("labels", 39, 0), evaluator.training_task("labels", 0), list[str]()
    assert trainer.n_settings(data.base) == 2
    found = trainer.train(data, task, point, lambda _step, _steps, said: looks.append(said))
    assert {said.split(":")[0].rpartition(" ")[2] for said in looks} == {"0.003", "100"}
    with trainer.search_with(data, found) as (frozen, vectors):
        assert frozen is data.task.frozen, "texts stay where they are"
        assert (found.chosen == "base") == np.array_equal(vectors, data.queries.vectors)
    ruined = AdapterTrainer(HEAD.model_copy(update={"learning_rates": (100.0,)}))
    last = ruined.train(replace(data, can_select=False), task, point, lambda *_: None)
    assert last.chosen == "learning rate 100 × 1"
    with ruined.search_with(data, last) as (_, vectors):
        assert np.abs(vectors - data.queries.vectors).max() > 0.1


def test_the_untrained_start_is_no_setting() -> None:
    """With one learning rate there is nothing to select, so few validation queries do."""
    encoder = SentenceTransformersSettings(model="any")
    base = BaseEncoder(encoder, CacheSettings(), VectorSearchSettings(), ())
    one_rate = HEAD.model_copy(update={"init": "whitened", "learning_rates": (1e-3,)})
    assert list(create_method(one_rate, base).hyperparameters) == [0.0, 1e-3]
    assert AdapterTrainer(one_rate).n_settings(base) == 1
