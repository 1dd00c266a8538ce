"""The stage `control_weights`: the selected setting trained again with shuffled labels.

What it reaches comes from the queries and texts, not from the labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from darklode.pipeline.base.artifacts import Output, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.schemas.adaptation import AdaptSettings
from darklode.schemas.adaptation_tables import CONTROL_WEIGHTS

if TYPE_CHECKING:
    from darklode.pipeline.train.data.base_encoder import BaseEncoder

CONTROL_STAGE = Stage(
    "control_weights",
    4,
    ("adaptation_queries", "adaptation_labels", "adaptation_texts", "term_queries", "adaptation_trials"),
    (CONTROL_WEIGHTS.name,),
)


def train_control(tables: Tables, output: Output, settings: AdaptSettings, base: BaseEncoder, *, seed: int) -> None:
    """Train the selected setting with each positive assigned to another query, and write its weights.

    Writes nothing if there is nothing to compare: the base or an untrained start was selected, the method learns from
    no label (`whitened`), or the labels cannot be shuffled.

    Args:
        tables: the tables of `adaptation_pairs`, `term_queries` and the trials.
        output: receives `control_weights`.
        settings: method, loss, negatives and steps.
        base: the encoder that is adapted.
        seed: seed of all random draws.
    """
    from darklode.pipeline.train.data.dataset import Task
    from darklode.pipeline.train.fit.method_registry import create_method
    from darklode.pipeline.train.fit.model_selection import folds, full_training, without_shared_positives
    from darklode.pipeline.train.fit.stage import best_trial
    from darklode.pipeline.train.fit.weights import as_rows
    from darklode.pipeline.train.release.baselines import shuffle_labels

    method, best = create_method(settings, base), best_trial(tables)
    setting = method.hyperparameters[best["trial"]]
    is_untrained = settings.method != "closed_form" and not best["step"]  # a closed form has no steps
    if settings.method == "whitened" or not best["share"] or not setting or is_untrained:
        return
    task = Task.from_tables(tables, base.open(tables), same_document=settings.allow_same_document_negatives)
    task = full_training(task) if folds(task, seed) else without_shared_positives(task)
    try:
        shuffled = shuffle_labels(task, seed)
    except ArtifactError as error:
        output.facts["reason"] = str(error)
        return

    def on_step(step: int, message: str) -> None:
        output.progress(step, settings.n_steps, f"shuffled labels: {message}")

    weights = method.fit(shuffled, setting, seed, on_step).best_weights
    rows = as_rows(best["trial"], weights)
    output.write(
        CONTROL_WEIGHTS.name, CONTROL_WEIGHTS.rows({name: rows[name] for name in CONTROL_WEIGHTS.schema.names})
    )
