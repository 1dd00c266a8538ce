"""The grid: a unit a cell, every source on the same test queries."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from darklode.flows.jobs.run_laws import steps
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.sharding import here, load_shard_result, save_shard_result
from darklode.pipeline.laws.grid_stage import GRID_STAGE, default_sizes
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.laws import LawSettings
from helpers.adapted import SIDES, base_for, build_to_adapt, settings_for
from helpers.runs import read

QUICK = AdaptSettings(
    method="linear", max_steps=40, batch_size=16, learning_rates=(3e-3,), init="base", refresh_steps=20
)
CELLS = LawSettings(train_sizes=(0, 10, 20), label_sources=("labels", "bm25", "ict", "shuffled"), n_seeds=2)


def test_sizes_are_all_queries_and_their_halves() -> None:
    assert default_sizes(5036) == [78, 157, 314, 629, 1259, 2518, 5036]
    assert default_sizes(40) == [20, 40]


@pytest.mark.slow
def test_every_cell_is_measured_on_the_same_queries_and_none_is_trained_twice(tmp_path: Any) -> None:
    pytest.importorskip("sentence_transformers")
    source = build_to_adapt(tmp_path / "run")
    base, out = base_for(source, root=tmp_path), Run(str(tmp_path / "laws"))
    settings = settings_for(tmp_path).model_copy(update={"adapt": QUICK, "laws": CELLS})
    for step in steps([base], settings):
        out.execute(step.plan(out), step.execute)
    rows = read(out, "law_points")
    assert len(rows) == 3 * 3 * 4 * 2  # measures, sizes, sources, seeds
    assert {row["stopped"] for row in rows} == {"fixed steps"}  # 12 validation queries choose nothing
    entropy = [row for row in rows if row["measure"] == "contrastive_entropy"]
    without = {row["value"] for row in entropy if row["size"] == 0}
    assert len(without) == 1  # the encoder itself, whoever's labels
    taught = {row["value"] for row in entropy if row["size"] == 20}
    assert len(taught) == 8
    manifest = out.manifest(GRID_STAGE)
    assert manifest is not None
    more = settings.model_copy(update={"laws": CELLS.model_copy(update={"n_seeds": 1})})
    (grid,) = [step for step in steps([base], more) if step.stage.name == GRID_STAGE.name]
    seen: list[str] = []
    out.execute(grid.plan(out), grid.execute, lambda _done, _total, note: seen.append(note))
    assert not seen  # nothing was trained
    large = settings.model_copy(update={"laws": LawSettings(train_sizes=(SIDES["train"] + 9,))})
    (grid,) = [step for step in steps([base], large) if step.stage.name == GRID_STAGE.name]
    plan = grid.plan(out)
    with pytest.raises(SettingsError, match="there are"):
        out.execute(plan, grid.execute)


class Apart:
    """Each shard as a machine that shares nothing would work on it: it travels there, and its result is kept."""

    places = 2

    def __init__(self, run: Run) -> None:
        self.run, self.worked = run, list[str]()

    def __call__(self, work: Any, shards: Any) -> Any:
        for shard in shards:
            sent = pickle.loads(pickle.dumps((work, shard)))
            self.worked.append(shard.name)
            yield load_shard_result(
                self.run.store, shard.folder, save_shard_result(self.run.store, shard.folder, sent[0](sent[1]))
            )


@pytest.mark.slow
def test_encoders_differ_in_parameters_and_cells_may_be_trained_anywhere(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    from helpers.tiny_bert import tiny_bert

    source = build_to_adapt(tmp_path / "run")
    base = base_for(source, root=tmp_path)
    large = base.encoder.model_copy(update={"model": str(tiny_bert(tmp_path / "large", intermediate_size=64))})
    bases = [base, replace(base, encoder=large)]
    chosen = {"adapt": QUICK.model_copy(update={"max_steps": 3}), "laws": LawSettings(train_sizes=(10, 20), n_seeds=1)}
    settings, outs = settings_for(tmp_path).model_copy(update=chosen), []
    for name in ("here", "apart"):
        out = Run(str(tmp_path / name))
        spread = Apart(out) if name == "apart" else here
        for step in steps(bases, settings, spread)[:2]:
            out.execute(step.plan(out), step.execute)
        outs.append(out)
        assert not isinstance(spread, Apart) or spread.worked == ["labels, seed 0"] * 2
    assert outs[0].tables("law_points").content("law_points") == outs[1].tables("law_points").content("law_points")
    rows = read(outs[0], "law_points")
    small, big = sorted({row["parameters"] for row in rows})
    assert big - small == 2 * 8 * (64 - 8) + 64 - 8, "two matrices and a bias of the layer in between"
    assert [row["encoder"] for row in rows] == [base.encoder.model] * 6 + [large.model] * 6
    manifest = outs[1].manifest(GRID_STAGE)
    assert manifest is not None
    took = {one["parameters"]: one for one in manifest.facts["models"]}
    assert took.keys() == {small, big}
    assert all(one["texts_per_second"] > 0 and one["seconds"] > 0 for one in took.values())
    faster = settings.adapt.model_copy(update={"learning_rates": (1e-1,)})
    (step,) = [
        step for step in steps(bases[:1], settings.model_copy(update={"adapt": faster})) if step.stage == GRID_STAGE
    ]
    outs[1].execute(step.plan(outs[1]), step.execute)
    assert {row["chosen"] for row in read(outs[1], "law_points")} == {"learning rate 0.1 × 1"}, "no cell is taken over"
    (step,) = [step for step in steps(bases[:1], settings) if step.stage == GRID_STAGE]
    told: list[str] = []
    outs[0].execute(step.plan(outs[0]), step.execute, lambda _done, _total, note: told.append(note))
    assert not told, "with an encoder less, those that are left are the same cells"
    assert read(outs[0], "law_points") == rows[:6]
    refused = settings.model_copy(update={"laws": LawSettings(train_sizes=(0, 10))})
    (step,) = [step for step in steps(bases, refused) if step.stage.name == GRID_STAGE.name]
    plan = step.plan(outs[0])
    with pytest.raises(SettingsError, match="size 0 is not allowed"):
        outs[0].execute(plan, step.execute)
