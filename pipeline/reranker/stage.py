"""The stages `reranker_trials` and `reranker_control`: cross-encoders on the labels, and one on shuffled labels."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, State, Tables, key_of
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.base.types import Row
from darklode.pipeline.reranker.candidates import load_lists
from darklode.pipeline.reranker.training_pairs import load_pairs
from darklode.pipeline.train.fit.weights import as_rows, load_weights
from darklode.schemas.adaptation_tables import ADAPTER_WEIGHTS, CONTROL_WEIGHTS
from darklode.schemas.reranker import RerankerSettings
from darklode.schemas.reranker_tables import RERANK_CANDIDATES, RERANKER_LOG, RERANKER_PAIRS, RERANKER_TRIALS

if TYPE_CHECKING:
    from darklode.pipeline.reranker.lists import CandidateLists
    from darklode.pipeline.reranker.model import InitialReranker, TrainableReranker
    from darklode.pipeline.reranker.pairs import SoftPairs
    from darklode.pipeline.reranker.training import RerankerEval, ScoredValidation
    from darklode.pipeline.train.data.base_encoder import BaseEncoder
    from darklode.pipeline.train.fit.trial import TrainingHistory

READS = (
    "adaptation_queries",
    "adaptation_labels",
    "adaptation_texts",
    RERANK_CANDIDATES.name,
    RERANKER_PAIRS.name,
)
RERANKER_STAGE = Stage("reranker_trials", 1, READS, (RERANKER_LOG.name, RERANKER_TRIALS.name, ADAPTER_WEIGHTS.name))
RERANKER_CONTROL_STAGE = Stage("reranker_control", 1, (*READS, RERANKER_TRIALS.name), (CONTROL_WEIGHTS.name,))


@dataclass(frozen=True)
class RerankerTask:
    """Training pairs, and candidate lists of held-out queries that share no positive with them."""

    pairs: SoftPairs
    validation: CandidateLists

    @classmethod
    def from_tables(cls, tables: Tables, base: BaseEncoder, max_queries: int, seed: int) -> RerankerTask:
        """Load both.

        Held out are validation queries that share no positive with training or, if there are fewer than
        `MIN_VALIDATION`, one cross-validation fold of query clusters, which is then left out of training.

        Args:
            tables: the tables in `READS`.
            base: the encoder, with the runs.
            max_queries: maximum number of held-out queries; more are sampled.
            seed: seed of folds and sample.

        Raises:
            ArtifactError: no query can be held out.
        """
        from darklode.pipeline.train.data.dataset import Task
        from darklode.pipeline.train.fit.model_selection import folds, without_shared_positives

        task = Task.from_tables(tables, base.open(tables), same_document=True)
        fold_tasks = folds(task, seed)
        task = fold_tasks[0] if fold_tasks else without_shared_positives(task)
        n = len(task.validation)
        if not n:
            raise ArtifactError("no query can be held out for validation; build or mine with more queries")
        rows = np.sort(np.random.default_rng([seed, 3]).permutation(n)[:max_queries])
        held_out = task.validation.take(rows)
        queries = pa.table({"query_id": held_out.ids, "text": pa.array(held_out.texts, pa.string())})
        return cls(
            load_pairs(tables, base.sources, task.train.ids),
            load_lists(tables, base.sources, queries, held_out.labels),
        )


def train_rerankers(
    tables: Tables,
    output: Output,
    settings: RerankerSettings,
    base: BaseEncoder,
    initial: InitialReranker,
    *,
    seed: int,
) -> None:
    """Train a cross-encoder with each learning rate; write history, validation results and weights.

    Each trial is a resumable unit that continues from its last checkpoint.

    Args:
        tables: the tables in `READS`.
        output: receives `reranker_log`, `reranker_trials` and `adapter_weights`.
        settings: number of steps, batch size and learning rates.
        base: the encoder that found the candidates, with the runs.
        initial: the model that training starts from.
        seed: seed of the held-out sample, a new head and the order of pairs.

    Raises:
        ArtifactError: no query can be held out.
    """
    task = RerankerTask.from_tables(tables, base, settings.eval_queries, seed)
    inputs_key = key_of(*(tables.content(name) for name in READS), initial.identity)
    for number, rate in enumerate(settings.learning_rates):
        trial_unit = f"{number}: {rate}", key_of(inputs_key, rate)
        with output.unit(*trial_unit) as unit:
            if not unit.done:
                history = run_trial(
                    output, task.pairs, task.validation, settings, initial, number, output.state(*trial_unit)
                )
                _write(output, task, number, rate, history, initial)
    n_trials = output.rows(RERANKER_TRIALS.name)
    output.count(FunnelStep(RERANKER_STAGE.name, "pairs", len(task.pairs), "rerankers", n_trials))


def run_trial(  # noqa: PLR0913, PLR0917 (data, settings and progress)
    output: Output,
    pairs: SoftPairs,
    validation: ScoredValidation,
    settings: RerankerSettings,
    initial: InitialReranker,
    number: int,
    state: State,
) -> TrainingHistory[RerankerEval]:
    """Train with one of the learning rates, from the last checkpoint if there is one.

    Args:
        output: receives progress.
        pairs: training pairs.
        validation: held-out pairs, which select the weights.
        settings: number of steps, batch size and learning rates.
        initial: the model that training starts from.
        number: number of the learning rate.
        state: checkpoints.
    """
    from darklode.pipeline.reranker.training import train_reranker
    from darklode.pipeline.train.fit.determinism import deterministic

    n_steps = len(settings.learning_rates) * settings.max_steps
    rate, steps_before = settings.learning_rates[number], number * settings.max_steps

    def on_step(step: int, message: str) -> None:
        output.progress(steps_before + step, n_steps, message)

    with deterministic(initial.seed):
        return train_reranker(
            pairs,
            validation,
            initial.open(),
            settings,
            rate,
            initial.seed,
            on_step,
            state,
            score_initial=initial.is_cross_encoder,
        )


def _write(
    output: Output,
    task: RerankerTask,
    number: int,
    rate: float,
    history: TrainingHistory[RerankerEval],
    initial: InitialReranker,
) -> None:
    rows = [{"trial": number, **asdict(point)} for point in history.eval_points]
    output.write(RERANKER_LOG.name, pa.Table.from_pylist(rows, schema=RERANKER_LOG.schema))
    best, first, validation = history.best_point, history.eval_points[0], task.validation
    is_reranker = initial.is_cross_encoder
    row: dict[str, Any] = {"trial": number, "learning_rate": rate, "step": best.step, "weight": best.weight}
    row |= {"validation": best.validation, "candidates": validation.ndcg(validation.own_order())}
    row |= {"base": first.validation, "base_weight": first.weight} if is_reranker else {}
    row |= {"queries": len(validation.ids), "stopped": history.stopped}
    output.write(RERANKER_TRIALS.name, pa.Table.from_pylist([row], schema=RERANKER_TRIALS.schema))
    output.write(ADAPTER_WEIGHTS.name, as_rows(number, history.best_weights))


def train_control(  # noqa: PLR0913 (what the trials receive, and the switch)
    tables: Tables,
    output: Output,
    settings: RerankerSettings,
    base: BaseEncoder,
    initial: InitialReranker,
    *,
    enabled: bool,
    seed: int,
) -> None:
    """Train with the selected learning rate on positives of other queries: what remains needed no labels.

    Args:
        tables: as for `train_rerankers`, and `reranker_trials`.
        output: receives `control_weights`, empty if not enabled.
        settings: as for `train_rerankers`.
        base: as for `train_rerankers`.
        initial: as for `train_rerankers`.
        enabled: whether to train the control, which takes as long as a trial.
        seed: as for `train_rerankers`, and seed of the shuffling.
    """
    if not enabled:
        output.write(CONTROL_WEIGHTS.name, CONTROL_WEIGHTS.empty())
        return
    task = RerankerTask.from_tables(tables, base, settings.eval_queries, seed)
    shuffled = replace(task, pairs=shuffle_positives(task.pairs, seed))
    rate = settings.model_copy(update={"learning_rates": (best_trial(tables)["learning_rate"],)})
    unit_key = "control", key_of(*(tables.content(name) for name in READS), initial.identity, rate.learning_rates)
    with output.unit(*unit_key) as unit:
        if not unit.done:
            state = output.state(*unit_key)
            history = run_trial(output, shuffled.pairs, shuffled.validation, rate, initial, 0, state)
            output.write(CONTROL_WEIGHTS.name, as_rows(0, history.best_weights))


def shuffle_positives(pairs: SoftPairs, seed: int) -> SoftPairs:
    """The same pairs with the texts of positives assigned to other queries, where that is possible."""
    from darklode.pipeline.train.data.labels import Labels
    from darklode.pipeline.train.release.baselines import derange

    rows = np.flatnonzero(pairs.target > 0)
    query, text = pairs.query[rows], pairs.text[rows]
    labels = Labels.from_pairs(query, text, len(pairs.texts))
    shuffled = pairs.text.copy()
    shuffled[rows] = derange(query, text, labels, np.random.default_rng([seed, 2]))
    return replace(pairs, text=shuffled)


def best_trial(tables: Tables) -> Row:
    """The trial with the best validation result; the first one wins ties.

    Args:
        tables: `reranker_trials`.
    """
    return dict(tables.sql("FROM reranker_trials ORDER BY validation DESC, trial LIMIT 1").to_pylist()[0])


def load_best_reranker(tables: Tables, initial: InitialReranker) -> TrainableReranker:
    """The model of the best trial at its best evaluation.

    Args:
        tables: `reranker_trials` and `adapter_weights`.
        initial: as in training.
    """
    reranker = initial.open()
    reranker.restore(load_weights(tables, best_trial(tables)["trial"]))
    return reranker
