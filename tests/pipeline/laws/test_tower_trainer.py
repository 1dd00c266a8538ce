"""Cells that train both towers of a tiny model with weights at random: a protocol, of quality nothing is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.laws.grid_point import prefix
from darklode.pipeline.laws.tower_trainer import DualTowerTrainer
from darklode.pipeline.laws.trainer import UNTRAINED, PointKey
from darklode.schemas.laws import LawSettings
from helpers.runs import read
from helpers.tiny_bert import tiny_bert

from .conftest import CELLS, DUAL, LORA, Grid, worked


@pytest.mark.slow
def test_every_cell_trains_towers_and_is_measured_on_the_same_queries(towers: Grid) -> None:
    rows = read(towers.out, "law_points")
    assert len(rows) == 2 * 3 * 3  # sources, sizes, measures
    entropy = {(row["source"], row["size"]): row for row in rows if row["measure"] == "contrastive_entropy"}
    begun = entropy["labels", 0]
    assert begun["value"] == entropy["ict", 0]["value"]
    assert begun["chosen"] == "base"
    assert len({row["value"] for row in entropy.values()}) == 5
    for (_, size), row in entropy.items():
        assert row["stopped"] == "fixed steps"  # ten validation queries choose nothing
        assert row["chosen"] == ("learning rate 0.01, τ 0.05, step 6" if size else "base")
        assert row["pairs"] == size  # each query of this build has one positive
    assert entropy["labels", 30]["parameters"] == entropy["labels", 0]["parameters"]


@pytest.mark.slow
def test_the_same_cells_elsewhere_give_the_same_bytes(towers: Grid, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "laws"))
    fewer = towers.settings.model_copy(update={"laws": CELLS.model_copy(update={"train_sizes": (10,)})})
    assert not worked([towers.base], fewer, out, apart=True)  # nothing is told from elsewhere
    mine = [row for row in read(towers.out, "law_points") if row["size"] == 10]
    assert read(out, "law_points") == mine


@pytest.mark.slow
def test_texts_are_searched_by_the_trained_document_tower(towers: Grid) -> None:
    evaluator = towers.evaluator()
    trainer, point, data = DualTowerTrainer(DUAL, LORA), PointKey("labels", 20, 0), evaluator.data
    whole = evaluator.training_task("labels", 0)
    task = whole.with_queries(prefix(whole.train, 20, 0))
    found = trainer.train(data, task, point, lambda *_: None)
    text = int(np.flatnonzero(np.array(data.task.frozen.texts["text_id"]) == "test-003#0")[0])
    place = data.task.frozen.position_of[[text]]
    vectors = []
    for one in (UNTRAINED, found):
        with trainer.search_with(data, one) as (frozen, queries):
            assert len(frozen) == len(data.task.frozen)
            assert queries.shape == (len(data.queries), 8)
            vectors.append(frozen.take(place))
            again = trainer._initial_towers(data)
            if one.weights:
                again.restore(one.weights)
            words = next(data.base.sources[0].iterate_hashes("acme"))
            hashes = data.task.frozen.texts["content_hash"]
            said = words[1][words[0].index(hashes[text].as_py()).as_py()].as_py()
            assert vectors[-1] == pytest.approx(again.encode([said], queries=False), abs=2e-3)  # kept in float16
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


@pytest.mark.slow
def test_validation_stops_training_where_it_is_large_enough(towers: Grid) -> None:
    """With a rate that ruins the towers the best look is that before the first step."""
    ruinous = DUAL.model_copy(update={"learning_rates": (3.0, 2.0)})
    evaluator = towers.evaluator(DualTowerTrainer(ruinous, LORA))
    data = replace(evaluator.data, can_select=True)
    trainer, point = DualTowerTrainer(ruinous, LORA), PointKey("shuffled", 20, 0)
    task = evaluator.training_task("shuffled", 0).with_queries(prefix(data.task.train, 20, 0))
    looks: list[str] = []
    found = trainer.train(data, task, point, lambda _step, _steps, said: looks.append(said))
    reached = [float(said.rpartition(" ")[2]) for said in looks]
    assert {said.split(":")[0] for said in looks} == {
        f"shuffled, 20, seed 0, learning rate {rate}, τ 0.05" for rate in (3, 2)
    }
    assert (found.weights is None) == (reached[0] == max(reached)) == (found.chosen == "base")
    assert found.weights is None, reached


@pytest.mark.slow
def test_few_validation_queries_choose_between_no_settings(towers: Grid, tmp_path: Path) -> None:
    two = towers.settings.model_copy(update={"dual": DUAL.model_copy(update={"temperatures": (0.05, 0.1)})})
    out = Run(str(tmp_path / "laws"))
    with pytest.raises(SettingsError, match=r"only 10 validation queries; at least 100 .* --set dual.learning_rates"):
        worked([towers.base], two, out)


@pytest.mark.slow
def test_an_encoder_more_trains_its_own_cells_alone(towers: Grid, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "laws"))
    few = {
        "dual": DUAL.model_copy(update={"max_steps": 2}),
        "laws": LawSettings(trainer="towers", train_sizes=(10,), n_seeds=1),
    }
    settings = towers.settings.model_copy(update=few)
    assert worked([towers.base], settings, out)
    alone = read(out, "law_points")
    other = towers.base.encoder.model_copy(update={"model": str(tiny_bert(tmp_path / "large", intermediate_size=16))})
    both = [replace(towers.base, encoder=other), towers.base]
    trained = worked(both, settings, out)
    assert {said.split(",")[0] for said in trained} == {"labels"}
    assert len(trained) == 3
    rows = read(out, "law_points")
    assert rows[3:] == alone
    assert len({row["parameters"] for row in rows}) == 2
