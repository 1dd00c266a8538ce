"""A grid of both towers of a tiny model with weights at random, complete, for all tests here."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from darklode.flows.jobs.run_laws import steps
from darklode.flows.jobs.train_both_towers import topical
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.sharding import here
from darklode.pipeline.laws.grid_point import GridContext, GridEvaluator
from darklode.pipeline.laws.tower_trainer import DualTowerTrainer
from darklode.pipeline.laws.trainer import GridTrainer
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.laws import LawSettings
from darklode.schemas.settings import Settings
from darklode.schemas.towers import DualSettings
from helpers.elsewhere import Elsewhere

DUAL = DualSettings(matryoshka_dims=(4, 8), max_steps=6, batch_size=8, learning_rates=(1e-2,), eval_queries=10)
CELLS = LawSettings(trainer="towers", train_sizes=(0, 10, 30), label_sources=("labels", "ict"), n_seeds=1)
LORA = AdaptSettings().only("lora_rank", "lora_alpha", "target_modules")


@dataclass(frozen=True)
class Grid:
    """A build, the encoder, and a grid of towers that is complete."""

    root: Path
    base: BaseEncoder
    settings: Settings
    out: Run

    def evaluator(self, trainer: GridTrainer = DualTowerTrainer(DUAL, LORA)) -> GridEvaluator:  # noqa: B008 (it never changes)
        """What its cells are measured with."""
        return GridEvaluator.from_context(GridContext(self.out.tables(), self.base, trainer, CELLS, 0))


@pytest.fixture(scope="session")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """Nobody writes to it; without transformers what asks for it is skipped."""
    pytest.importorskip("sentence_transformers")
    from helpers.adapted import base_for, settings_for
    from helpers.dual import build_with_documents
    from helpers.tiny_bert import tiny_bert

    root = tmp_path_factory.mktemp("grid")
    source = build_with_documents(root / "run")
    tiny_bert(root / "model", initializer_range=0.3)
    settings = settings_for(root).model_copy(update={"dual": DUAL, "laws": CELLS})
    found = Grid(root, topical(base_for(source, root=root)), settings, Run(str(root / "laws")))
    worked([found.base], settings, found.out)
    return found


def worked(bases: list[BaseEncoder], settings: Settings, out: Run, apart: bool = False) -> list[str]:
    """Run the stages up to the grid; what was told of training."""
    told: list[str] = []
    for step in steps(bases, settings, Elsewhere(out.store, 2) if apart else here)[:3]:
        out.execute(step.plan(out), step.execute, lambda *heard: told.append(heard[2]))
    return [one for one in told if "validation" in one]
