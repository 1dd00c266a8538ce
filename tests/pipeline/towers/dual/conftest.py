"""One pair of tiny towers, trained once for all tests here; their weights began at random and speak of no quality."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from darklode.flows.jobs.train_both_towers import hand_over, steps, topical
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.towers.dual.stage import DualInputs
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.schemas.settings import Settings
from darklode.schemas.towers import DualSettings
from helpers.adapted import base_for, settings_for
from helpers.dual import build_with_documents
from helpers.tiny_bert import tiny_bert

QUICK = DualSettings(
    matryoshka_dims=(2, 4, 8), max_steps=20, batch_size=8, learning_rates=(1e-2, 1e-3), eval_queries=10
)


@dataclass(frozen=True)
class Trained:
    """A build, what both towers began as, and where all stages are complete and the towers are saved."""

    root: Path
    base: BaseEncoder
    settings: Settings
    out: Run

    @property
    def encoder(self) -> SentenceTransformersSettings:
        assert isinstance(self.base.encoder, SentenceTransformersSettings)
        return self.base.encoder

    @property
    def beginning(self) -> DualInputs:
        return DualInputs(self.encoder, self.base.sources)


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Nobody writes to it."""
    root = tmp_path_factory.mktemp("both")
    source = build_with_documents(root / "run")
    tiny_bert(root / "model", initializer_range=0.3)
    base = topical(base_for(source, root=root))
    settings = settings_for(root).model_copy(update={"dual": QUICK})
    found = Trained(root, base, settings, Run(str(root / "out")))
    for step in steps(base, settings):
        found.out.execute(step.plan(found.out), step.execute)
    hand_over(found.out, base, settings, ["a run"])
    return found
