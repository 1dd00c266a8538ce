"""The trainer: queries alone are encoded, negatives are replaced on the way, and the same bytes come again."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit import library_trainer
from darklode.pipeline.train.fit.adaptation_trial import AdaptationTrial
from darklode.pipeline.train.fit.batches import PairSampler
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.encoder_trainer import train_encoder
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import model_in

from ..conftest import Adapted

SHORT = AdaptSettings(method="lora", lora_rank=4, max_steps=60, batch_size=16, refresh_steps=20)


def encoder_of(adapted: Adapted, settings: AdaptSettings) -> TrainableEncoder:
    model = model_in(adapted.root)
    return TrainableEncoder(load_model(model, "cpu"), model, settings)


def history_of(adapted: Adapted, task: Task, settings: AdaptSettings, seed: int = 1) -> TrainingHistory:
    with deterministic(seed):
        return train_encoder(task, settings, 3e-3, encoder_of(adapted, settings), seed, lambda *_: None)


@pytest.fixture(scope="module")
def task(adapted: Adapted) -> Task:
    return Task.from_tables(adapted.out.tables(), adapted.base.open(adapted.out.tables()), same_document=False)


@pytest.mark.slow
def test_training_twice_gives_the_same_bytes_and_documents_stay(adapted: Adapted, task: Task) -> None:
    every = np.arange(len(task.frozen))
    before = task.frozen.take(every).tobytes()
    first, again, other = (history_of(adapted, task, SHORT, seed) for seed in (1, 1, 2))
    assert [one.tobytes() for one in first.best_weights.values()] == [
        one.tobytes() for one in again.best_weights.values()
    ]
    assert [one.tobytes() for one in first.best_weights.values()] != [
        one.tobytes() for one in other.best_weights.values()
    ]
    assert first.eval_points == again.eval_points
    assert [look.step for look in first.eval_points] == [0, 50, 60]
    assert any(look.replaced for look in first.eval_points[1:])
    assert task.frozen.take(every).tobytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("method", ["full", "top_n", "lora"])
def test_the_trainers_steps_are_those_of_a_plain_loop(adapted: Adapted, task: Task, method: str) -> None:
    """Mining, draws, loss, AdamW, cosine and the cut of gradients, written out."""
    settings = SHORT.model_copy(update={"method": method, "top_layers": 1, "max_steps": 25})
    history = history_of(adapted, task, settings)
    with deterministic(1):
        encoder = encoder_of(adapted, settings)
        encoder.loaded.train()
        trial, batches = AdaptationTrial(task, settings, 1, encoder, lambda *_: None), PairSampler(task, settings, 1)
        optimiser = torch.optim.AdamW(encoder.parameters(), lr=3e-3, weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 25)
        step = 0
        while trial.after_step(step):
            pairs = batches.next()
            texts = [task.train.texts[query] for query in task.pair_query[pairs]]
            loss = trial.loss(encoder.unit(encoder.loaded(encoder.features(texts))["sentence_embedding"]), pairs)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(list(encoder.parameters()), 1.0)
            optimiser.step()
            schedule.step()
            trial.losses.append(loss.detach())
            step += 1
    assert [look.loss for look in trial.history.eval_points[1:]] == pytest.approx(
        [look.loss for look in history.eval_points[1:]]
    )
    for name, one in history.best_weights.items():
        np.testing.assert_allclose(one, trial.history.best_weights[name], atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.slow
def test_training_in_bfloat16_leaves_evaluation_in_float32(
    adapted: Adapted, task: Task, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of the encoder that was trained equal those of a new one with its weights, bit for bit."""
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    settings = SHORT.model_copy(update={"max_steps": 5})
    model = model_in(adapted.root)
    losses = []
    for is_mixed in (True, False):
        monkeypatch.setattr(library_trainer, "_supports_bfloat16", lambda _device, is_mixed=is_mixed: is_mixed)
        trained, new = (TrainableEncoder(load_model(model, device), model, settings) for _ in range(2))
        with deterministic(1):
            history = train_encoder(task, settings, 3e-3, trained, 1, lambda *_: None)
        losses.append(history.eval_points[-1].loss)
        new.restore(trained.state())
        assert trained.vectors(task.validation).tobytes() == new.vectors(task.validation).tobytes()
    assert losses[0] != losses[1], "the steps are taken in bfloat16"
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_a_collapse_stops_it(adapted: Adapted, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("darklode.pipeline.train.fit.adaptation_trial.EVALUATION_STEPS", 2)
    values = iter([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
    monkeypatch.setattr("darklode.pipeline.train.data.dataset.QuerySet.ndcg", lambda *_: next(values))
    monkeypatch.setattr("darklode.pipeline.train.fit.adaptation_trial.has_collapsed", lambda looks: len(looks) == 4)
    history = history_of(adapted, task, SHORT)
    assert (history.eval_points[-1].step, history.step) == (6, 0)
    assert history.stopped == "validation fell 3 times in a row while the loss fell"


SHARED = """
import os
import sys
import numpy as np
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.models.loading import load_model
from darklode.pipeline.train.fit.trainable_encoder import TrainableEncoder
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.data.dataset import Task
from darklode.pipeline.train.fit.encoder_trainer import train_encoder
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import base_for, model_in
from pathlib import Path

root, run, source, settings, to = sys.argv[1:]
tables, model = Run(run).tables(), model_in(Path(root))
task = Task.from_tables(tables, base_for(Run(source), root=Path(root)).open(tables), same_document=False)
adapt = AdaptSettings.model_validate_json(settings)
with deterministic(1):
    encoder = TrainableEncoder(load_model(model, "cpu"), model, adapt)
    history = train_encoder(task, adapt, 3e-3, encoder, 1, lambda *_: None)
if os.environ["RANK"] == "0":
    np.savez(to, losses=[look.loss for look in history.eval_points[1:]], **history.best_weights)
"""


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(adapted: Adapted, task: Task, tmp_path: Path) -> None:
    """torchrun on the CPU: each encodes half of every batch."""
    history, script = history_of(adapted, task, SHORT), tmp_path / "shared.py"
    script.write_text(SHARED)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    given = [str(adapted.root), adapted.out.store.url, adapted.source.store.url, SHORT.model_dump_json()]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(
        [*command, *given, str(tmp_path / "found.npz")], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = np.load(tmp_path / "found.npz")
    np.testing.assert_allclose(found["losses"], [look.loss for look in history.eval_points[1:]], rtol=1e-5)
    for name, one in history.best_weights.items():
        np.testing.assert_allclose(found[name], one, atol=1e-5)
