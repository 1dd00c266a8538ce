"""Training: a plain loop's steps, the same bytes again, and the steps of one process taken by two."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from darklode.pipeline.towers.distillation import WEIGHT_DECAY, schedule
from darklode.pipeline.towers.dual.loss import ContrastiveBatch, contrastive, hard_margin
from darklode.pipeline.towers.dual.stage import validation_sample_of
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.towers.dual.training import DualCollator, DualEval, DualLoss, ValidationSample, train_towers
from darklode.pipeline.towers.dual.trial_settings import TrialSettings
from darklode.pipeline.towers.dual.triplet_batches import TripletStream
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.pipeline.train.fit.trial import TrainingHistory
from darklode.pipeline.train.types import OnStep
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.towers import DualSettings
from helpers.environment import with_paths

from .conftest import QUICK, Trained

SHORT = QUICK.model_copy(update={"max_steps": 5})
RATE = 1e-2


def looked(both: Trained) -> ValidationSample:
    return validation_sample_of(both.out.tables(), both.base.sources, 10, 0)


def history_of(
    both: Trained, dual: DualSettings = SHORT, rate: float = RATE, tell: OnStep = lambda *_: None
) -> TrainingHistory[DualEval]:
    with deterministic(1):
        towers, stream = DualTowers(both.encoder, dual, AdaptSettings()), TripletStream(both.out.tables(), 8, 1)
        return train_towers(stream, looked(both), towers, dual, TrialSettings(rate, 0.05, 1), tell)


@pytest.mark.slow
def test_the_trainers_steps_are_those_of_a_plain_loop(both: Trained) -> None:
    """Batches, loss, AdamW, its rate and the cut of gradients, written out."""
    history = history_of(both)
    assert [look.step for look in history.eval_points] == [0, 1, 2, 3, 4, 5]
    with deterministic(1):
        towers, stream = DualTowers(both.encoder, SHORT, AdaptSettings()), TripletStream(both.out.tables(), 8, 1)
        loss = DualLoss(towers.model, stream, SHORT, 0.05, seen := [])
        tokens, optimiser = (
            DualCollator(stream, towers),
            torch.optim.AdamW(towers.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY),
        )
        rates = schedule(optimiser, SHORT.max_steps)
        values = [looked(both).score(towers)]
        for _ in range(SHORT.max_steps):
            given = tokens([{"label": int(slot)} for slot in stream.next()])
            parts = [
                {name.removeprefix(side): one for name, one in given.items() if name.startswith(side)}
                for side in ("query_", "document_")
            ]
            optimiser.zero_grad()
            loss(parts, given["label"]).backward()
            torch.nn.utils.clip_grad_norm_(list(towers.parameters()), 1.0)
            optimiser.step()
            rates.step()
            values.append(looked(both).score(towers))
    assert [look.contrastive for look in history.eval_points[1:]] == pytest.approx(
        [float(one[0]) for one in seen], rel=1e-4
    )
    assert [look.margin for look in history.eval_points[1:]] == pytest.approx([float(one[1]) for one in seen], rel=1e-4)
    assert [look.validation for look in history.eval_points] == pytest.approx(values)


@pytest.mark.slow
def test_training_twice_gives_the_same_bytes(both: Trained) -> None:
    told: list[tuple[int, str]] = []
    first, again = history_of(both, tell=lambda *line: told.append(line)), history_of(both)
    assert [step for step, _ in told] == [look.step for look in first.eval_points]
    assert told[0][1] == f"L^con –, L^hard –, validation {first.eval_points[0].validation:.4f}"
    assert told[-1][1].startswith(
        f"L^con {first.eval_points[-1].contrastive:.3f}, L^hard {first.eval_points[-1].margin:.3f}, "
    )
    assert first.eval_points == again.eval_points
    assert [one.tobytes() for one in first.best_weights.values()] == [
        one.tobytes() for one in again.best_weights.values()
    ]


@pytest.mark.slow
def test_layers_that_are_computed_again_give_the_same_gradients(both: Trained) -> None:
    """Of one step, whose layers run once with gradients, or twice; the weights after it hang on all gradients."""
    found = []
    for wanted in (False, True):
        dual = SHORT.model_copy(update={"gradient_checkpointing": wanted, "max_steps": 1})
        with deterministic(1):
            towers, stream = DualTowers(both.encoder, dual, AdaptSettings()), TripletStream(both.out.tables(), 8, 1)
            gradients, calls = dict[str, torch.Tensor](), list[int]()
            for name, one in towers.trained.items():
                one.register_hook(lambda given, name=name, to=gradients: to.update({name: given.clone()}))
            layer = towers.document[0].auto_model.get_submodule("encoder.layer.0.attention")
            layer.register_forward_hook(lambda *_, calls=calls: calls.append(1) if torch.is_grad_enabled() else None)
            history = train_towers(stream, looked(both), towers, dual, TrialSettings(RATE, 0.05, 1), lambda *_: None)
        found.append((len(calls), gradients, history.eval_points[1].contrastive))
    (once, plain, loss), (twice, again, same) = found
    assert (once, twice) == (1, 2)
    assert loss == pytest.approx(same, rel=1e-6)
    assert len(plain) > 20
    torch.testing.assert_close(plain, again, atol=1e-6, rtol=1e-5)


def test_a_sample_knows_the_rank_of_the_first_answer(both: Trained) -> None:
    towers = DualTowers(both.encoder, QUICK, AdaptSettings())
    texts = ["one", "two", "three"]
    scores = towers.encode(["q"], queries=True) @ towers.encode(texts, queries=False).T
    order = np.argsort(-scores[0])
    for place, number in enumerate(order):
        right = np.zeros((1, 3), bool)
        right[0, number] = True
        assert ValidationSample(["q"], texts, right).score(towers) == pytest.approx(1 / (place + 1))


GATHERED = """
import os
import sys
import numpy as np
import torch
import torch.distributed as processes
from darklode.pipeline.towers.dual.training import gather
from darklode.pipeline.towers.dual.loss import ContrastiveBatch, contrastive
from darklode.pipeline.towers.dual.loss import hard_margin

processes.init_process_group("gloo")
draws = torch.Generator().manual_seed(1)
given, weight = torch.randn(7, 8, 6, generator=draws), torch.randn(6, 4, generator=draws).requires_grad_()
mine = slice(4 * processes.get_rank(), 4 * processes.get_rank() + 4)
every = torch.ones(3, 8, dtype=torch.bool)
parts = given[:, mine] @ weight
there = gather(every[:, mine], 1)
allowed = torch.ones(8, 8, dtype=torch.bool)
equal = torch.ones(8)
batch = ContrastiveBatch(gather(parts[0]), gather(parts[1:4], 1), gather(parts[4:], 1), there, every, equal, allowed)
(contrastive(batch, (2, 4), 0.05) + hard_margin(batch, (2, 4), 0.2)).backward()
processes.all_reduce(weight.grad)
if processes.get_rank() == 0:
    np.savez(sys.argv[1], found=weight.grad / 2, given=given, weight=weight.detach())
"""


def in_two(script: Path, text: str, *given: str) -> None:
    """Run a script by torchrun on the CPU, with gloo."""
    script.write_text(text)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = with_paths(ACCELERATE_USE_CPU="true")
    done = subprocess.run([*command, *given], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@pytest.mark.slow
def test_gradients_of_two_processes_are_those_of_one_with_twice_the_batch(tmp_path: Path) -> None:
    """As DistributedDataParallel has them: the mean over processes."""
    in_two(tmp_path / "gathered.py", GATHERED, str(tmp_path / "found.npz"))
    found = np.load(tmp_path / "found.npz")
    given, weight = torch.from_numpy(found["given"]), torch.from_numpy(found["weight"]).requires_grad_()
    parts, every = given @ weight, torch.ones(3, 8, dtype=torch.bool)
    batch = ContrastiveBatch(
        parts[0], parts[1:4], parts[4:], every, every, torch.ones(8), torch.ones(8, 8, dtype=torch.bool)
    )
    loss = contrastive(batch, (2, 4), 0.05) + hard_margin(batch, (2, 4), 0.2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    np.testing.assert_allclose(found["found"], weight.grad.numpy(), rtol=1e-4, atol=1e-5)


SHARED = """
import os
import sys
import numpy as np
from pathlib import Path
from darklode.flows.jobs.train_both_towers import topical
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.towers.dual.training import train_towers
from darklode.pipeline.towers.dual.trial_settings import TrialSettings
from darklode.pipeline.towers.dual.loss import ContrastiveBatch, contrastive
from darklode.pipeline.towers.dual.loss import hard_margin
from darklode.pipeline.towers.dual.stage import validation_sample_of
from darklode.pipeline.towers.dual.triplet_batches import TripletStream
from darklode.pipeline.towers.dual.towers import DualTowers
from darklode.pipeline.train.fit.determinism import deterministic
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.towers import DualSettings
from helpers.adapted import base_for

root, run, source, settings, to = sys.argv[1:]
base, dual = topical(base_for(Run(source), root=Path(root))), DualSettings.model_validate_json(settings)
tables = Run(run).tables()
with deterministic(1):
    towers, stream = DualTowers(base.encoder, dual, AdaptSettings()), TripletStream(tables, 8, 1)
    looked = validation_sample_of(tables, base.sources, 10, 0)
    history = train_towers(stream, looked, towers, dual, TrialSettings(1e-3, 0.05, 1), lambda *_: None)
if os.environ["RANK"] == "0":
    np.savez(to, losses=[look.contrastive for look in history.eval_points[1:]], **towers.state())
"""


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one_with_twice_the_batch(both: Trained, tmp_path: Path) -> None:
    """Each encodes half of every batch, and all are compared with all."""
    dual, to = SHORT.model_copy(update={"method": "lora"}), str(tmp_path / "found.npz")
    source = both.base.sources[0].run.store.url
    in_two(tmp_path / "shared.py", SHARED, str(both.root), both.out.store.url, source, dual.model_dump_json(), to)
    history, found = history_of(both, dual, 1e-3), np.load(to)
    np.testing.assert_allclose(found["losses"], [look.contrastive for look in history.eval_points[1:]], rtol=1e-4)
