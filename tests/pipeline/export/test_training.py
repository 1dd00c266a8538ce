"""What is exported for sentence-transformers, trained on by its own trainer with a tiny model of random weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from helpers.runs import put
from helpers.tiny_bert import tiny_bert
from helpers.triplet_rows import triplet_rows

pytest.importorskip("accelerate", reason="accelerate, which SentenceTransformerTrainer asks for, is not installed")
torch = pytest.importorskip("torch", reason="torch is not installed")
datasets = pytest.importorskip("datasets", reason="datasets is not installed")

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

pytestmark = pytest.mark.slow

STEPS = 3
BATCH = 2


@pytest.fixture
def model(tmp_path: Path) -> SentenceTransformer:
    """A tiny one."""
    sentence_transformers = pytest.importorskip("sentence_transformers")  # seconds, which `make test` does not wait
    built: SentenceTransformer = sentence_transformers.SentenceTransformer(
        str(tiny_bert(tmp_path / "model")), device="cpu"
    )
    return built


def train(model: SentenceTransformer, rows: Any, folder: Path) -> tuple[list[int], list[float]]:
    """Take STEPS optimizer steps; the numbers of texts that each step's loss was given per row, and the losses."""
    import sentence_transformers
    from sentence_transformers.sentence_transformer import losses

    columns: list[int] = []

    class Counting(losses.MultipleNegativesRankingLoss):
        def forward(self, sentence_features: Iterable[dict[str, Any]], labels: Any) -> Any:
            given = list(sentence_features)
            columns.append(len(given))
            return super().forward(given, labels)

    arguments = sentence_transformers.SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=0.01,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = sentence_transformers.SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=rows, loss=Counting(model)
    )
    trainer.train()
    assert trainer.state.global_step == STEPS
    return columns, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize(("kind", "columns"), [("triplet", 3), ("n-tuple", 4)])
def test_the_trainer_steps_on_what_is_exported(
    kind: str, columns: int, model: SentenceTransformer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    put(run, "triplets", triplet_rows([(f"q{n}", f"p{n}", [f"n{n}", f"m{n}"]) for n in range(STEPS * BATCH)]))
    export(run, "sentence-transformers", tmp_path / "out")
    rows = datasets.load_dataset(str(tmp_path / "out"), kind, split="train", cache_dir=str(tmp_path / "cache"))
    before = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    given, lost = train(model, rows, tmp_path / "trained")
    assert given == [columns] * STEPS
    assert len(lost) == STEPS
    assert all(0 < loss < float("inf") for loss in lost)
    assert any(not torch.equal(before[name], weights) for name, weights in model.named_parameters())
